"""Errors as the protocol has them: what is wrong with a request, never "internal error" alone."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from kb.errors import KbError, NotFoundError, UsageError
from kb.tools.replies import echoed

__all__ = ["explained", "in_thread"]

log = logging.getLogger("kb.server")

T = TypeVar("T")

MOST_PROBLEMS = 5
# The library's words for a request that comes before the handshake.
_TOO_EARLY = "Invalid request parameters"


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run what waits for the disk; our errors become the protocol's."""
    try:
        return await anyio.to_thread.run_sync(function, *arguments)
    except KbError as error:
        asked = isinstance(error, NotFoundError | UsageError)
        code = types.INVALID_PARAMS if asked else types.INTERNAL_ERROR
        raise MCPError(code, echoed(error.message), echoed(error.as_result())) from error


async def explained(ctx: Any, call_next: Callable[[Any], Any]) -> Any:
    """Around every request: say what is wrong with it, where the library says that it is wrong."""
    try:
        return await call_next(_with_arguments(ctx))
    except ValidationError as error:
        raise MCPError(types.INVALID_PARAMS, f"Invalid params: {_problems(error)}") from error
    except MCPError as error:
        if error.error.message != _TOO_EARLY:
            raise
        why = f'send "initialize" before "{ctx.method}"'
        raise MCPError(types.INVALID_REQUEST, f"Invalid request: {why}") from error
    except Exception as error:
        log.exception("%s failed", ctx.method)
        why = f"{type(error).__name__}: {error}. The server's log has the details"
        raise MCPError(types.INTERNAL_ERROR, f"{ctx.method} failed: {why}") from error


def _with_arguments(context: Any) -> Any:
    """The request with an object as its tool's arguments.

    JSON text that holds one is read. What else comes there is handed to the tool under a name that
    it does not have, so that its own refusal tells what it takes.
    """
    if context.method != "tools/call" or not context.params:
        return context
    arguments = context.params.get("arguments")
    if arguments is None or isinstance(arguments, dict):
        return context
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        arguments = {"arguments": arguments}
    return dataclasses.replace(context, params={**context.params, "arguments": arguments})


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    texts = [
        f"{'.'.join(map(str, one['loc'])) or 'params'}: {one['msg'][:1].lower()}{one['msg'][1:]}"
        for one in found[:MOST_PROBLEMS]
    ]
    return "; ".join(texts)
