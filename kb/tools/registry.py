"""The list of tools, and the one way to call one: for the server, `kb tool` and the tests.

A tool is a function that takes the call and its parameters and returns a typed reply; `**` keywords
stand for the filters. Name, description, schemas and defaults come from the function itself, so a
new tool is one function under `kb/tools/` with its named SQL. What careless clients get wrong in
arguments is tolerated, and the rest reported by parameter.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import DataclassSchema

from kb.disk.read import system_error
from kb.errors import ConfigurationError, KbError, PermissionDenied, UsageError
from kb.results.base import Result, camel_case
from kb.text.file_names import clean, writable
from kb.text.json_text import JsonError, parse_json
from kb.text.nearest import nearest
from kb.tools.call import Call, Progress, as_json, echoed, join, shortened
from kb.tools.parameters import Filtered
from kb.tools.session import Session

# Texts that a client relies on, by (parameter, kind of pydantic error).
Messages = Mapping[tuple[str, str], str]

MOST_FIELDS = 20  # listed by an error
LONGEST_NAME = 100  # characters of an unknown argument's name
_MUST_BE = {
    "bool": "must be true or false",
    "dict": "must be an object",
    "float": "must be a number",
    "int": "must be a whole number",
    "list": "must be a list",
    "model": "must be an object",
    "string": "must be text",
}

CAMEL_FAMILIES = ("documents", "archive", "context")  # how their parameters are written
FAMILIES = ("documents", "index", "archive", "external", "context")


@dataclass(frozen=True)
class Tool:
    """One tool as clients see it, and the function behind it, which gives it name and family."""

    function: Callable[..., Result]
    title: str
    example: Mapping[str, Any]
    read_only: bool = True
    idempotent: bool = True
    destructive: bool = False
    messages: Messages = field(default_factory=dict)
    name: str = ""
    serves_readers: bool | None = None  # who may not write; by default if it only reads

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.function.__name__)
        if self.serves_readers is None:
            object.__setattr__(self, "serves_readers", self.read_only)

    @property
    def family(self) -> str:
        return self.function.__module__.rpartition(".")[2]

    @cached_property
    def description(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or "")

    @cached_property
    def parameters(self) -> type[BaseModel]:
        """The parameters as a pydantic model that refuses unknown ones."""
        hints = get_type_hints(self.function, include_extras=True)
        fields: dict[str, Any] = {}
        for name, parameter in list(inspect.signature(self.function).parameters.items())[1:]:
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                limits = get_type_hints(Filtered, include_extras=True)
                defaults = {name: info.default for name, info in Filtered.model_fields.items()}
                fields |= {name: (limits[name], default) for name, default in defaults.items()}
                continue
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[name] = (hints[name], default)
        config = ConfigDict(
            extra="forbid", alias_generator=to_camel if self.family in CAMEL_FAMILIES else None
        )
        return create_model(self.name, __config__=config, **fields)

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        return _portable(self.parameters.model_json_schema())

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        """The keys that every reply and its rows have, in few bytes; `reply_schema` has all."""
        properties = {
            name: {"items": {"required": part["items"]["required"]}}
            for name, part in self.reply_schema["properties"].items()
            if name in self.reply_schema["required"] and "required" in part.get("items", {})
        }
        return {
            "type": "object",
            **({"properties": properties} if properties else {}),
            "required": self.reply_schema["required"],
        }

    @cached_property
    def reply_schema(self) -> dict[str, Any]:
        """All keys of a reply with their types; for docs and tests."""
        hints = get_type_hints(self.function, include_extras=True)
        schema = TypeAdapter(hints["return"]).json_schema(schema_generator=_SentSchema)
        return _portable(schema, without=("title", "description"))


class _SentSchema(GenerateJsonSchema):
    def dataclass_schema(self, schema: DataclassSchema) -> dict[str, Any]:
        """Leave out fields of a result that are not sent."""
        sent = super().dataclass_schema(schema)
        for name in schema["cls"].unsent:
            del sent["properties"][camel_case(name)]
        return sent


class ToolResult:
    """What a client receives; `text`: the content as compact JSON."""

    def __init__(self, content: dict[str, Any], *, is_error: bool) -> None:
        self.content, self.text, self.is_error = content, as_json(content), is_error
        try:
            self.text.encode()
        except UnicodeEncodeError:  # such as in the name of a file or an environment variable
            self.content = writable(content)
            self.text = as_json(self.content)


def tool(**facts: Any) -> Callable[[Callable[..., Result]], Tool]:
    """Make a tool of a function; the facts are fields of `Tool`."""
    return partial(Tool, **facts)


@cache
def load_tools(families: tuple[str, ...] = ()) -> dict[str, Tool]:
    """All tools by name, or those of some families.

    Raises:
        ConfigurationError: Python has dropped the tools' descriptions.
        UsageError: there is no such family.
    """
    if sys.flags.optimize >= 2:
        raise ConfigurationError(
            "python -OO leaves out the descriptions of the tools: start it without, and unset "
            "PYTHONOPTIMIZE"
        )
    # In the order of the families and of their functions, which clients see.
    modules = [importlib.import_module(f"kb.tools.{family}") for family in FAMILIES]
    tools = [
        value for module in modules for value in vars(module).values() if isinstance(value, Tool)
    ]
    names = list(dict.fromkeys(tool.family for tool in tools))
    for family in families:
        if family not in names:
            raise UsageError(f'no tool family "{family}": there are {", ".join(names)}')
    return {tool.name: tool for tool in tools if not families or tool.family in families}


def call_tool(
    session: Session,
    name: str,
    arguments: Mapping[str, Any] | None,
    tools: Mapping[str, Tool] | None = None,
    progress: Progress | None = None,
) -> ToolResult:
    """Call a tool. Any outcome is returned as a result, counted and logged."""
    started = time.perf_counter()
    tools = load_tools() if tools is None else tools
    try:
        if name not in tools:
            result = _unknown_tool(name, tools)
        else:
            if not (session.rights.may_write or tools[name].serves_readers):
                raise PermissionDenied(
                    f"{name} writes, and this token may only read: whoever runs the server can "
                    "make one that may write, with `kb token add NAME --role write`"
                )
            session.limits.check(name)
            result = _run(Call(session, progress), tools[name], arguments or {})
    except KbError as error:
        result = _failure(session, tools[name], error.as_result())
    except Exception as error:  # noqa: BLE001 - logged there
        result = _failure(session, tools[name], _unforeseen(session, name, error))
    session.activity.note_call()
    milliseconds = (time.perf_counter() - started) * 1000
    code = result.content.get("code", "INTERNAL_ERROR") if result.is_error else ""
    if name in tools:
        session.calls.add(name, code, milliseconds, len(result.text))
        if not result.is_error:
            session.log.note_queries(name, arguments or {})
    log.info("%s %s in %.1f ms", name, code or "done", milliseconds)
    return result


def _run(call: Call, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
    try:
        given = tolerant(clean_values(dict(arguments)), tool.input_schema)
        values = tool.parameters.model_validate(given)
    except ValidationError as error:
        content = field_errors(error, tool.input_schema, tool.messages)
        return _failure(call.session, tool, content)
    keywords = {name: getattr(values, name) for name in type(values).model_fields}
    content = tool.function(call, **keywords).to_dict()
    if not tool.read_only and (held := call.base.held_log()):
        content["notice"] = join(content.get("notice", ""), f"Stored; but {held}")
    return ToolResult(content, is_error=False)


def _unforeseen(session: Session, name: str, error: Exception) -> dict[str, Any]:
    try:
        session.base.require_sound(error)
    except KbError as reason:
        log.error("%s failed: %s", name, reason.message)
        log.debug("the cause", exc_info=error)
        return reason.as_result()
    if isinstance(error, OSError):
        refused = system_error(error)
        log.error("%s failed: %s", name, refused.message)
        log.debug("the cause", exc_info=error)
        return refused.as_result()
    log.error("%s failed", name, exc_info=error)
    return {
        "error": f"{name} failed: {type(error).__name__}: {error}. Its log has the details.",
        "code": "INTERNAL_ERROR",
    }


def _unknown_tool(name: str, tools: Mapping[str, Tool]) -> ToolResult:
    near = nearest(name[:LONGEST_NAME], tools)
    hint = f" Did you mean {near[0]}?" if near else f" There are: {', '.join(tools)}."
    content = {
        "error": f"Unknown tool: {name[:LONGEST_NAME]}.{hint}",
        "code": "VALIDATION_ERROR",
        "details": {"fieldErrors": {"name": ["there is no such tool"]}},
    }
    return ToolResult({**content, "suggestions": near} if near else content, is_error=True)


def _failure(session: Session, tool: Tool, content: dict[str, Any]) -> ToolResult:
    return ToolResult(
        failure_shape(shortened(echoed(content), session.reply_tokens, exact=()), tool.family),
        is_error=True,
    )


def failure_shape(error: Mapping[str, Any], family: str) -> dict[str, Any]:
    """An error in the shape of a family's errors."""
    content: dict[str, Any] = echoed(dict(error))
    if content["code"] == "VALIDATION_ERROR" and "details" not in content:
        content["details"] = {"fieldErrors": {"arguments": [content["error"]]}}
    if family != "external":
        return content
    details = content.pop("details", {})
    message, code = content.pop("error"), content.pop("code")
    if not isinstance(details, dict):
        details = {"innerMessage": details}
    return {"error": True, "code": code, "message": message, "details": {**details, **content}}


def _portable(schema: dict[str, Any], without: Sequence[str] = ("title",)) -> dict[str, Any]:
    """A JSON schema that every client accepts: without references and titles. A reply's schema also
    lacks docstrings, which are for readers of the code."""
    definitions = schema.pop("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            target = definitions[node["$ref"].rsplit("/", 1)[-1]]
            return resolve({**target, **{k: v for k, v in node.items() if k != "$ref"}})
        # What may be None is left out of a reply, so clients need not hear of null.
        choices = [choice for choice in node.get("anyOf", []) if choice != {"type": "null"}]
        if "anyOf" in node and len(choices) == 1:
            rest = {k: v for k, v in node.items() if k not in ("anyOf", "default")}
            return resolve({**choices[0], **rest})
        return {
            key: (
                {name: resolve(item) for name, item in value.items()}
                if key == "properties"
                else resolve(value)
            )
            for key, value in node.items()
            if key not in without or not isinstance(value, str)
        }

    resolved: dict[str, Any] = resolve(schema)
    return resolved


def tolerant(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without what careless clients get wrong: null for absent, lists as JSON text, and
    arguments of a tool that takes none. Raises UsageError for unreadable JSON in place of an
    object or list."""
    if not (properties := schema["properties"]):
        return {}
    accepted: dict[str, Any] = {}
    for name, value in arguments.items():
        part = properties.get(name, {})
        if value is None and name in properties:
            continue
        if isinstance(value, str) and part.get("type") in ("array", "object"):
            value = _from_json_text(name, value, part["type"])
        elif isinstance(value, bool) and part.get("type") in ("integer", "number"):
            value = str(value)  # otherwise `true` would count as 1
        if isinstance(value, dict) and "properties" in part:
            value = tolerant(value, part)
        elif isinstance(value, list) and "properties" in part.get("items", {}):
            value = [
                tolerant(item, part["items"]) if isinstance(item, dict) else item for item in value
            ]
        accepted[name] = value
    return accepted


def clean_values(value: Any) -> Any:
    """Text without lone surrogates, which neither SQLite nor a JSON reply can contain."""
    if isinstance(value, str):
        return value if value.isascii() and "\0" not in value else clean(value)
    if isinstance(value, list):
        return [clean_values(item) for item in value]
    if isinstance(value, dict):
        return {clean_values(key): clean_values(item) for key, item in value.items()}
    return value


def field_errors(
    error: ValidationError, schema: Mapping[str, Any], messages: Messages
) -> dict[str, Any]:
    """All that is wrong with some arguments, by parameter; the first one's text in front."""
    errors: dict[str, list[str]] = {}
    problems = error.errors(include_url=False)
    for problem in problems:
        path = ".".join(str(part)[:LONGEST_NAME] for part in problem["loc"]) or "arguments"
        errors.setdefault(path, []).append(_problem_text(problem, schema, messages))
    shown = dict(list(errors.items())[:MOST_FIELDS])
    if len(errors) > MOST_FIELDS:
        shown["..."] = [f"{len(errors) - MOST_FIELDS} more"]
    message = messages.get((next(iter(errors)), problems[0]["type"]))
    summary = message or "Invalid arguments: " + "; ".join(
        f"{path}: {'; '.join(texts)}" for path, texts in shown.items()
    )
    return {"error": summary, "code": "VALIDATION_ERROR", "details": {"fieldErrors": shown}}


def _from_json_text(name: str, text: str, expected: str) -> Any:
    """A list or object that came as text; other text in place of a list is its only item."""
    value = None
    try:
        value = clean_values(parse_json(text, from_client=True))
    except JsonError as error:
        if error.is_bound or (expected == "object" and text.lstrip().startswith("{")):
            why = f"{name} is text that cannot be read as JSON: {error}"
            raise UsageError(why, field=name) from error
    if expected == "object":
        return value if isinstance(value, dict) else text
    if isinstance(value, list):
        return value
    return [text] if text.strip() else []


def _problem_text(problem: ErrorDetails, schema: Mapping[str, Any], messages: Messages) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    kind = problem["type"]
    if message := messages.get((path, kind)):
        return message
    if kind == "extra_forbidden" and (why := _why_unread(problem)):
        return why
    if kind == "extra_forbidden":
        names = _names_at(schema, problem["loc"][:-1])
        near = nearest(str(problem["loc"][-1])[:LONGEST_NAME], names, limit=1)
        hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(names)}"
        return f"unknown argument, {hint}"
    if kind == "missing":
        return "is required"
    expected, _, suffix = kind.partition("_")
    if suffix in ("type", "parsing", "from_float") and expected in _MUST_BE:
        return _MUST_BE[expected]
    return problem["msg"][0].lower() + problem["msg"][1:]


def _why_unread(problem: ErrorDetails) -> str:
    """Why text in place of all arguments, which then has this name, is not an object."""
    if problem["loc"] == ("arguments",) and isinstance(problem["input"], str):
        try:
            parse_json(problem["input"], from_client=True)
        except JsonError as error:
            return f"is text that cannot be read as JSON: {error}"
    return ""


def _names_at(schema: Mapping[str, Any], place: tuple[int | str, ...]) -> list[str]:
    for part in place:
        is_item = isinstance(part, int)
        schema = schema.get("items", {}) if is_item else schema.get("properties", {}).get(part, {})
    return list(schema.get("properties", {}))


log = logging.getLogger("kb.tools")
