"""`kb token`: who may talk to a server of this file over HTTP."""

from __future__ import annotations

import argparse

from kb.cli import render
from kb.cli.arguments import Parser, positive
from kb.errors import UsageError
from kb.results.roles import READ, ROLES, WRITE
from kb.tools.session import Session

ADD, LIST, REVOKE, FORGET = ACTIONS = ("add", "list", "revoke", "forget")
COLUMNS = ("name", "role", "state", "created", "expires", "revoked", "requestsPerMinute")


def token_options(parser: Parser) -> None:
    parser.example = "kb token add anna --role write --days 90"
    action = (
        "add (the token is printed this once), list, revoke (at once, also for a server that "
        "runs), or forget those that are revoked or have expired"
    )
    parser.argument("action", "ACTION", action, choices=ACTIONS)
    parser.argument("names", "NAME", "the person or program it is for", nargs="*")
    role = f"what it may do with the file: {READ} (default) or {WRITE}"
    parser.option("--role", None, role, choices=ROLES, default=READ)
    parser.option("--days", "N", "how long it is valid", type=positive)
    limit = "requests a minute (default: as the server has it)"
    parser.option("--limit", "N", limit, type=positive)
    parser.table_format()


def token(session: Session, options: argparse.Namespace) -> int:
    names: list[str] = options.names
    if options.action in (ADD, REVOKE) and not names:
        raise UsageError(f"say whose: kb token {options.action} NAME")
    if options.action in (LIST, FORGET) and names:
        raise UsageError(f"kb token {options.action} takes no name")
    if options.action == ADD:
        return _add(session, names, options)
    if options.action == LIST:
        return _list(session, options)
    if options.action == REVOKE:
        session.base.revoke_tokens(*names)
        render.text({"revoked": names}, f"revoked: {', '.join(names)}", options)
        return 0
    forgotten = session.base.forget_tokens()
    render.text({"forgotten": forgotten}, f"forgotten: {forgotten}", options)
    if not session.base.asks_for_tokens():
        render.remark("this file asks for no tokens any more", options)
    return 0


def _add(session: Session, names: list[str], options: argparse.Namespace) -> int:
    if len(names) > 1:
        raise UsageError("one token at a time: it is printed this once")
    made = session.base.add_token(
        names[0], options.role, days=options.days, requests_per_minute=options.limit
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


def _list(session: Session, options: argparse.Namespace) -> int:
    rows = [token.to_dict() for token in session.base.list_tokens()]
    blank = [{key: "" if value is None else value for key, value in row.items()} for row in rows]
    render.table({"tokens": rows}, blank, COLUMNS, options)
    render.remark("" if rows else "no tokens: `kb token add NAME` makes one", options)
    return 0 if rows else 1
