"""The list of tools, and the one way to call one: for the server, `kb tool` and the tests.

A tool is a function that takes the call and its parameters and returns a typed reply.
Name, description, schemas and defaults come from the function itself; adding a tool is writing
one function under `kb/tools/` with its named SQL.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic.alias_generators import to_camel

from kb.disk.read import system_error
from kb.errors import ConfigurationError, KbError, PermissionDenied, UsageError
from kb.store.waiting_log import COPY, held_log
from kb.text.file_names import writable
from kb.text.nearest import nearest
from kb.tools.arguments import LONGEST_NAME, Messages, field_errors, tolerant
from kb.tools.call import Call, Progress
from kb.tools.replies import Reply, as_json, echoed, said, shortened
from kb.tools.session import Session

log = logging.getLogger("kb.tools")

CAMEL_FAMILIES = ("documents", "archive", "context")  # how their parameters are written
FAMILIES = ("documents", "related", "index", "archive", "external", "context")


@dataclass(frozen=True)
class Tool:
    """One tool as clients see it, and the function behind it."""

    name: str
    title: str
    family: str
    function: Callable[..., Reply]
    read_only: bool
    idempotent: bool
    destructive: bool
    example: Mapping[str, Any]
    messages: Messages = field(default_factory=dict)
    serves_readers: bool = True  # also those who may not write: it then only reads

    @cached_property
    def description(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or "")

    @cached_property
    def parameters(self) -> type[BaseModel]:
        """The parameters as a pydantic model that refuses unknown ones."""
        hints = get_type_hints(self.function, include_extras=True)
        fields: dict[str, Any] = {}
        for name, parameter in list(inspect.signature(self.function).parameters.items())[1:]:
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
        hints = get_type_hints(self.function, include_extras=True)
        return _portable(TypeAdapter(hints["return"]).json_schema())


@dataclass(frozen=True)
class ToolResult:
    """What a client receives."""

    content: dict[str, Any]
    is_error: bool

    def __post_init__(self) -> None:
        try:
            self.text.encode()
        except UnicodeEncodeError:  # such as the name of a file or an environment variable
            object.__setattr__(self, "content", writable(self.content))
            self.__dict__.pop("text")

    @cached_property
    def text(self) -> str:
        """The content as compact JSON; made once, though it is measured and sent."""
        return json.dumps(self.content, ensure_ascii=False, separators=(",", ":"))


def tool(
    *,
    family: str,
    title: str,
    example: Mapping[str, Any],
    read_only: bool = True,
    idempotent: bool = True,
    destructive: bool = False,
    messages: Messages | None = None,
    name: str = "",
    serves_readers: bool | None = None,
) -> Callable[[Callable[..., Reply]], Tool]:
    """Make a tool of a function.

    Args:
        name: by default the function's.
        serves_readers: whether those who may not write can call it; by default when it only reads.
    """

    def made(function: Callable[..., Reply]) -> Tool:
        return Tool(
            name or function.__name__,
            title,
            family,
            function,
            read_only,
            idempotent,
            destructive,
            example,
            messages or {},
            read_only if serves_readers is None else serves_readers,
        )

    return made


def load_tools(families: tuple[str, ...] = ()) -> dict[str, Tool]:
    """All tools by name, or those of some families.

    Raises:
        ConfigurationError: Python left out what clients are told of the tools.
        UsageError: a family that does not exist.
    """
    if sys.flags.optimize >= 2:
        raise ConfigurationError(
            "python -OO leaves out the descriptions of the tools: start it without, and unset "
            "PYTHONOPTIMIZE"
        )
    # In the order of the families and of their functions, which is the order that clients see.
    modules = [importlib.import_module(f"kb.tools.{family}") for family in FAMILIES]
    tools = [
        value for module in modules for value in vars(module).values() if isinstance(value, Tool)
    ]
    known = list(dict.fromkeys(tool.family for tool in tools))
    for family in families:
        if family not in known:
            raise UsageError(f'no tool family "{family}": there are {", ".join(known)}')
    return {tool.name: tool for tool in tools if not families or tool.family in families}


def call_tool(
    session: Session,
    name: str,
    arguments: Mapping[str, Any] | None,
    tools: Mapping[str, Tool] | None = None,
    progress: Progress | None = None,
) -> ToolResult:
    """Call a tool. Whatever happens comes back as a result, counted and logged."""
    started = time.perf_counter()
    tools = load_tools() if tools is None else tools
    try:
        if name not in tools:
            result = _unknown_tool(name, tools)
        else:
            _require_rights(session, tools[name])
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


def _require_rights(session: Session, tool: Tool) -> None:
    if not (session.rights.may_write or tool.serves_readers):
        raise PermissionDenied(
            f"{tool.name} writes, and this token may only read: whoever runs the server can make "
            "one that may write, with `kb token add NAME --role write`"
        )


def _run(call: Call, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
    try:
        values = tool.parameters.model_validate(tolerant(arguments, tool.input_schema))
    except ValidationError as error:
        content = field_errors(error, tool.input_schema, tool.messages)
        return _failure(call.session, tool, content)
    keywords = {name: getattr(values, name) for name in type(values).model_fields}
    content = as_json(tool.function(call, **keywords))
    if not tool.read_only and call.database.log_waits:
        log_held = held_log(call.database)
        notice = f"Stored; but {log_held.sentence()}. To copy all, {COPY}."
        content["notice"] = said(content.get("notice", ""), notice)
    return ToolResult(content, is_error=False)


def _unforeseen(session: Session, name: str, error: Exception) -> dict[str, Any]:
    from kb.store.health import require_sound  # here: it is hardly ever needed

    try:
        require_sound(session.database, error)
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


def failure_shape(said: Mapping[str, Any], family: str) -> dict[str, Any]:
    """An error as the tools of a family answer with it."""
    content: dict[str, Any] = echoed(dict(said))
    if content["code"] == "VALIDATION_ERROR" and "details" not in content:
        content["details"] = {"fieldErrors": {"arguments": [content["error"]]}}
    if family != "external":
        return content
    details = content.pop("details", {})
    message, code = content.pop("error"), content.pop("code")
    if not isinstance(details, dict):
        details = {"innerMessage": details}
    return {"error": True, "code": code, "message": message, "details": {**details, **content}}


def _portable(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema that every client accepts: references put in place, no titles."""
    definitions = schema.pop("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            target = definitions[node["$ref"].rsplit("/", 1)[-1]]
            return resolve({**target, **{k: v for k, v in node.items() if k != "$ref"}})
        # What may be None is left out of a reply: clients need not hear of null.
        choices = [one for one in node.get("anyOf", []) if one != {"type": "null"}]
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
            if key != "title" or not isinstance(value, str)
        }

    resolved: dict[str, Any] = resolve(schema)
    return resolved
