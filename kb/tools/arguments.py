"""Arguments as clients send them: what is tolerated, and what is reported of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kb.errors import UsageError
from kb.text.file_names import clean
from kb.text.json_text import JsonError, parse_json
from kb.text.nearest import nearest

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


def tolerant(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without what careless clients get wrong: null for absent, lists as JSON text, and
    arguments of a tool that takes none. Raises UsageError for unreadable JSON in place of an
    object or list."""
    if not schema["properties"]:
        return {}
    return _without_nulls(clean_values(dict(arguments)), schema)


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


def _without_nulls(values: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    accepted: dict[str, Any] = {}
    for name, value in values.items():
        part = properties.get(name, {})
        if value is None and name in properties:
            continue
        if isinstance(value, str):
            value = _from_json_text(name, value, part.get("type"))
        elif isinstance(value, bool) and part.get("type") in ("integer", "number"):
            value = str(value)  # otherwise `true` would count as 1
        if isinstance(value, dict) and "properties" in part:
            value = _without_nulls(value, part)
        elif isinstance(value, list) and "properties" in part.get("items", {}):
            value = [
                _without_nulls(item, part["items"]) if isinstance(item, dict) else item
                for item in value
            ]
        accepted[name] = value
    return accepted


def _from_json_text(name: str, text: str, expected: str | None) -> Any:
    """A list or object that came as text; other text in place of a list is its only item."""
    if expected not in ("array", "object"):
        return text
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
