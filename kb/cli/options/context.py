"""Options of the working memory."""

from __future__ import annotations

from collections.abc import Callable

from kb.cli.arguments import FIND, MEMORY, Parser, Words, add_format, positive

TYPES = ("", "pattern", "rule", "decision", "issue")
_TYPES_SHOWN = "pattern, rule, decision or issue"


def add_options(add: Callable[..., Parser]) -> None:
    """The commands with their options."""
    sub = add(
        "grep",
        "context.grep",
        "search the project's files by regular expression",
        group=FIND,
        example='kb grep "retry_?count" --glob "src/**/*.py"',
        creates=True,
    )
    sub.add_argument("pattern", metavar="PATTERN", help="a regular expression")
    sub.add_argument("--glob", default="", metavar="GLOB", help='only files such as "src/**/*.ts"')
    sub.add_argument("-s", "--case-sensitive", action="store_true", help="tell A from a")
    sub.add_argument(
        "-n", "--limit", type=positive, default=1000, metavar="N", help="matches (default: 1000)"
    )

    sub = add(
        "record",
        "context.record",
        "record something learned about the project",
        group=MEMORY,
        example='kb record "Decided to retry three times, then to give up" --module network',
        creates=True,
    )
    sub.add_argument("text", metavar="TEXT", help='a sentence or two, or "-" to read stdin')
    sub.add_argument(
        "--type",
        choices=TYPES,
        default="",
        metavar="TYPE",
        help=f"{_TYPES_SHOWN} (default: told from the words)",
    )
    sub.add_argument("--module", default="", metavar="NAME", help="the part it is about")
    sub.add_argument(
        "--source", dest="origin", default="", metavar="TEXT", help="where it comes from"
    )
    sub.add_argument(
        "--allow-secrets",
        action="store_true",
        help="record it though it seems to hold a password, a key or a token",
    )

    sub = add(
        "recall",
        "context.recall",
        "search what was recorded, or print all as Markdown",
        group=MEMORY,
        example='kb recall "how often do we retry?"',
    )
    sub.add_argument(
        "query", metavar="QUERY", nargs="*", action=Words, help="without it: all, by module"
    )
    sub.add_argument(
        "--type", choices=TYPES, default="", metavar="TYPE", help=f"only {_TYPES_SHOWN}"
    )
    sub.add_argument("--module", default="", metavar="NAME", help="only of this part")
    sub.add_argument(
        "-n", "--limit", type=positive, default=5, metavar="N", help="rows (default: 5)"
    )
    add_format(sub)

    sub = add(
        "forget",
        "context.forget",
        "take back what was recorded, without a trace",
        group=MEMORY,
        example="kb forget 3f9c2a7b",
    )
    sub.add_argument("id", metavar="ID", help="as `kb recall` shows it; its beginning is enough")
