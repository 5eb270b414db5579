"""Errors in the protocol's form: what is wrong with a request, never just "internal error"."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from kb.errors import KbError, NotFoundError, UsageError
from kb.server.bodies import ARGUMENTS
from kb.tools.call import echoed

log = logging.getLogger("kb.server")

T = TypeVar("T")

MOST_PROBLEMS = 5
# The library's message for a request before the handshake.
_TOO_EARLY = "Invalid request parameters"


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run what waits for the disk; our errors become the protocol's."""
    try:
        return await anyio.to_thread.run_sync(function, *arguments)
    except KbError as error:
        is_request = isinstance(error, NotFoundError | UsageError)
        code = types.INVALID_PARAMS if is_request else types.INTERNAL_ERROR
        raise MCPError(code, echoed(error.message), echoed(error.as_result())) from error


async def explained(ctx: Any, call_next: Callable[[Any], Any]) -> Any:
    """Middleware of every request: explains the library's refusals."""
    arguments = ctx.request.scope.get(ARGUMENTS) if ctx.request is not None else None
    if arguments is not None:  # large ones, which went past the library
        ctx = dataclasses.replace(ctx, params={**ctx.params, "arguments": arguments})
    try:
        return await call_next(ctx)
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


def _problems(error: ValidationError) -> str:
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    texts = [
        f"{'.'.join(map(str, row['loc'])) or 'params'}: {row['msg'][:1].lower()}{row['msg'][1:]}"
        for row in errors[:MOST_PROBLEMS]
    ]
    return "; ".join(texts)
