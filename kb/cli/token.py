"""`kb token`: who may talk to a server of this file over HTTP."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from kb.cli import render
from kb.cli.arguments import ASSISTANTS, Parser, add_format, positive
from kb.errors import UsageError
from kb.store.roles import READ, ROLES, WRITE

if TYPE_CHECKING:
    from kb.tools.session import Session

ADD, LIST, REVOKE, FORGET = ACTIONS = ("add", "list", "revoke", "forget")
COLUMNS = ("name", "role", "state", "created", "expires", "revoked", "requestsPerMinute")


def add_options(add: Callable[..., Parser]) -> None:
    """The command with its options."""
    sub = add(
        "token",
        "token.token",
        "say who may use this file over HTTP: a token for each person",
        group=ASSISTANTS,
        example="kb token add anna --role write --days 90",
        creates=True,
    )
    sub.add_argument(
        "action",
        choices=ACTIONS,
        metavar="ACTION",
        help="add (the token is printed this once), list, revoke (at once, also for a server that "
        "runs), or forget those that are revoked or have expired",
    )
    sub.add_argument("names", metavar="NAME", nargs="*", help="the person or program it is for")
    sub.add_argument(
        "--role",
        choices=ROLES,
        default=READ,
        help=f"what it may do with the file: {READ} (default) or {WRITE}",
    )
    sub.add_argument("--days", type=positive, metavar="N", help="how long it is valid")
    sub.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help="requests a minute (default: as the server has it)",
    )
    add_format(sub)


def token(kb: Session, options: argparse.Namespace) -> int:
    """Make, list, revoke or forget tokens."""
    names: list[str] = options.names
    if options.action in (ADD, REVOKE) and not names:
        raise UsageError(f"say whose: kb token {options.action} NAME")
    if options.action in (LIST, FORGET) and names:
        raise UsageError(f"kb token {options.action} takes no name")
    if options.action == ADD:
        return _add(kb, names, options)
    if options.action == LIST:
        return _list(kb, options)
    return _end(kb, names, options)


def _add(kb: Session, names: list[str], options: argparse.Namespace) -> int:
    from kb.store.tokens import add_token

    if len(names) > 1:
        raise UsageError("one token at a time: it is printed this once")
    with kb.database.write() as connection:
        made = add_token(
            connection,
            names[0],
            options.role,
            days=options.days,
            requests_per_minute=options.limit,
        )
    result = {"name": names[0], "role": options.role, "token": made}
    render.text(result, made, options)
    if not options.quiet:
        render.remark(
            f"{names[0]} may {options.role}. This is the only time that the token is shown; its "
            f"owner's client sends it as `Authorization: Bearer TOKEN`",
            options,
        )
    return 0


def _list(kb: Session, options: argparse.Namespace) -> int:
    from kb.store.tokens import all_tokens, state_of

    with kb.database.read() as connection:
        rows = all_tokens(connection)
    shown = [
        {
            "name": row["name"],
            "role": row["role"],
            "state": state_of(row),
            "created": row["created_at"],
            "expires": row["expires_at"],
            "revoked": row["revoked_at"],
            "requestsPerMinute": row["requests_per_minute"],
        }
        for row in rows
    ]
    blank = [{key: "" if value is None else value for key, value in row.items()} for row in shown]
    render.table({"tokens": shown}, blank, COLUMNS, options)
    render.remark("" if rows else "no tokens: `kb token add NAME` makes one", options)
    return 0 if rows else 1


def _end(kb: Session, names: list[str], options: argparse.Namespace) -> int:
    from kb.store.tokens import forget_tokens, has_tokens, revoke_token

    with kb.database.write() as connection:
        for name in names:
            revoke_token(connection, name)
        forgotten = forget_tokens(connection) if options.action == FORGET else 0
        asks = has_tokens(connection)
    if options.action == REVOKE:
        render.text({"revoked": names}, f"revoked: {', '.join(names)}", options)
        return 0
    render.text({"forgotten": forgotten}, f"forgotten: {forgotten}", options)
    if not asks:
        render.remark("this file asks for no tokens any more", options)
    return 0
