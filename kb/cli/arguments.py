"""Arguments as people type them: near names for typos, query words that look like options, errors
on one line or as JSON."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from kb.errors import UsageError
from kb.text.nearest import nearest

_OWN_GROUPS = 2  # positional arguments and options, which argparse creates first
TABLE_FORMATS = ("table", "json", "csv", "tsv")
QUERY_COMMANDS = ("search", "context", "recall")
# `-n5` is an option with its value; `-cats` and `-north` exclude a word from a query.
_ATTACHED_NUMBER = re.compile(r"-[A-Za-z]\d+")
# Before a word that looks like an option. No argument of a program can contain it.
_MARK = "\0"


class WrongUse(UsageError):
    """Arguments that the command line does not take."""

    def __init__(self, message: str, program: str) -> None:
        super().__init__(f"{message} (see {program} --help)")
        self.program = program


class Parser(argparse.ArgumentParser):
    """Raises its errors, with the next step, instead of printing the whole usage.

    Its help shows the command's own options first, then one example, then common options.
    """

    def __init__(self, *, prog: str, description: str, example: str = "") -> None:
        super().__init__(prog=prog, description=description, add_help=False)
        self.example = example
        self.commands: dict[str, list[tuple[str, str]]] = {}  # names and summaries by heading

    def argument(self, name: str, metavar: str, text: str = "", **more: Any) -> None:
        self.add_argument(name, metavar=metavar, help=text or None, **more)

    def option(
        self, names: str, metavar: str | None, text: str, *, is_list: bool = False, **more: Any
    ) -> None:
        """Declare an option with a value, such as "-n --limit"."""
        if is_list:
            more = {"action": "append", "default": [], **more}
        self.add_argument(*names.split(), metavar=metavar, help=text, **more)

    def flag(self, names: str, text: str, **more: Any) -> None:
        self.add_argument(*names.split(), help=text, **{"action": "store_true", **more})

    def limit(self, default: int, text: str = "rows") -> None:
        text = f"{text} (default: {default})"
        self.option("-n --limit", "N", text, type=positive, default=default)

    def table_format(self) -> None:
        text = "csv, tsv: with headers (default: a table; in a pipe tab-separated, without headers)"
        self.option("--format", None, text, choices=TABLE_FORMATS)

    def error(self, message: str) -> NoReturn:
        raise WrongUse(message, self.prog)

    def _get_formatter(self) -> argparse.HelpFormatter:
        # argparse tries each metavar on one, which would ask for the terminal's width.
        return argparse.HelpFormatter(self.prog, width=80)

    def format_usage(self) -> str:
        words = [self.prog, *(["COMMAND"] if self.commands else [])]
        for action in self._actions:
            if action.option_strings and action.required:
                words.append(f"{action.option_strings[0]} {action.metavar}")
            elif not action.option_strings:
                more = " ..." if action.nargs in ("+", "*") else ""
                is_optional = action.nargs in ("?", "*")
                word = f"{action.metavar}{more}"
                words.append(f"[{word}]" if is_optional else word)
        return f"usage: {' '.join([*words, '[options]'])}\n"

    def format_help(self) -> str:
        shown = argparse.HelpFormatter(self.prog)
        shown.add_text(self.description)
        for heading, commands in self.commands.items():
            shown.start_section(heading)
            shown.add_arguments(
                argparse.Action([], n, metavar=n, help=text) for n, text in commands
            )
            shown.end_section()
        first, last = self._action_groups[:_OWN_GROUPS], self._action_groups[_OWN_GROUPS:]
        parts = [self.format_usage(), "\n", self._with_groups(shown, first)]
        parts += [f"\n{self.epilog}\n"] if self.epilog else []
        parts += [f"\nexample:\n  {self.example}\n"] if self.example else []
        return "".join([*parts, "\n", self._with_groups(argparse.HelpFormatter(self.prog), last)])

    @staticmethod
    def _with_groups(
        formatter: argparse.HelpFormatter, groups: Iterable[argparse._ArgumentGroup]
    ) -> str:
        for group in groups:
            formatter.start_section(group.title)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        return formatter.format_help()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            hint = suggestion(str(value), map(str, action.choices))
            raise argparse.ArgumentError(action, f'"{value}" is not one of its values: {hint}')


def positive(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (number := int(text)) > 0:
            return number
    raise argparse.ArgumentTypeError(f"{text} is not a positive number")


def byte_count(text: str) -> int:
    """An argument that is a size, such as 500MB or 2GB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)b?", text.lower())
    size = int(float(match[1]) * 1000 ** " kmgt".index(match[2] or " ")) if match else 0
    if not size:
        raise argparse.ArgumentTypeError(f"{text} is not a size, such as 500MB or 2GB")
    return size


def share(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (number := float(text)) <= 1:
            return number
    raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1")


# As the library names them.
FILTERS = ("paths", "tags", "metadata", "since", "until", "max_per_document", "sort")


def add_filters(parser: Parser) -> None:
    paths = 'only documents such as "guide/**"; may be given several times'
    parser.option("--path", "GLOB", paths, is_list=True, dest="paths")
    parser.option("--tag", "TAG", "only documents with this tag", is_list=True, dest="tags")
    values = "only documents whose front matter says so; of one key any will do"
    parser.option("--meta", "KEY=VALUE", values, is_list=True, dest="metadata")
    since = "only documents of this day, month or year and later"
    parser.option("--since", "DATE", since, default="")
    parser.option("--until", "DATE", "only documents of it and earlier", default="")
    most = "at most so many rows of each document"
    parser.option("--per-document", "N", most, type=positive, default=0, dest="max_per_document")
    order = "date: the same rows, the newest first"
    parser.option("--sort", None, order, choices=("score", "date"), default="score")


def filters_of(options: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_filters`, as the library takes them."""
    return {name: getattr(options, name) for name in FILTERS}


def add_shards(parser: Parser) -> None:
    """The options of a command that reads files on other machines."""
    workers = (
        "read on the workers of a Dask scheduler too, such as tls://host:8786: see --shards "
        "(pip install 'kbfile[dask]')"
    )
    parser.option("--workers", "ADDRESS", workers, default="")
    shards = 'with --workers: files on their machines, such as "/srv/kb/*.db", or a folder of them'
    parser.option("--shards", "PATTERN", shards, is_list=True)
    seconds = "with --workers: how long a question waits for them (default: 5)"
    parser.option("--shard-seconds", "S", seconds, type=positive, default=5)


class Words(argparse.Action):
    """Words that may stand before, between and after the options."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, self.value_of([without_mark(word) for word in values or ()]))

    def value_of(self, words: list[str]) -> Any:
        return words


class Text(Words):
    """One text, even if typed without quotes: `kb search retry with backoff`."""

    def value_of(self, words: list[str]) -> Any:
        return " ".join(words) if words else None


def command_index(parser: Parser, arguments: Sequence[str]) -> int:
    """Where the command is, after the global options, which the parser knows."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        index += 1 + _value_count(parser, arguments[index])
    return min(index, len(arguments))


def words_first(parser: Parser, arguments: Sequence[str]) -> list[str]:
    """The words of a command's query, wherever they are, and after them its options."""
    options: list[str] = []
    words: list[str] = []
    index = 0
    while index < len(arguments):
        argument = arguments[index]
        if argument == "--":
            words += arguments[index + 1 :]
            break
        if _is_option(parser, argument):
            end = index + 1 + _value_count(parser, argument)
            options += arguments[index:end]
            index = end
        else:
            words.append(argument)
            index += 1
    return [*(_MARK + word for word in words), *options]


def without_mark(word: str) -> str:
    return word.removeprefix(_MARK)


def _is_option(parser: Parser, argument: str) -> bool:
    if argument.startswith("--"):
        return True
    is_option = argument[:2] in parser._option_string_actions
    return is_option and (len(argument) == 2 or _ATTACHED_NUMBER.fullmatch(argument) is not None)


def _value_count(parser: Parser, argument: str) -> int:
    """How many arguments after an option belong to it."""
    if "=" in argument:
        return 0
    actions = parser._option_string_actions
    names = [name for name in actions if name.startswith(argument)]
    action = actions.get(argument) or (actions[names[0]] if len(names) == 1 else None)
    return int(action is not None and action.nargs is None)


def suggestion(name: str, names: Iterable[str]) -> str:
    """The nearest name, or all of them."""
    names = list(names)
    near = nearest(name, names, limit=1)
    return f'did you mean "{near[0]}"?' if near else f"there are {', '.join(names)}"


def unknown_argument(parser: Parser, argument: str) -> str:
    """Why a command does not take an argument."""
    if not argument.startswith("-"):
        return f'"{argument}" is one argument too many'
    name = argument.split("=")[0]
    near = nearest(name, [option for option in parser._option_string_actions if option[1] == "-"])
    hint = f": did you mean {near[0]}?" if near else ""
    if parser.prog.split()[-1] in QUERY_COMMANDS:
        hint += f"{'' if hint else ':'} To search for it, put -- before the query"
    return f"there is no option {name}{hint}"
