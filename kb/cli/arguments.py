"""Arguments as people type them: near names for what is misspelt, words of a query that look like
options, errors on one line or as JSON."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from kb.errors import UsageError
from kb.text.nearest import nearest

__all__ = [
    *("Parser", "Unasked", "Words", "WrongUse"),
    *("add_format", "parse", "positive", "share", "typed_command"),
]

_OWN_GROUPS = 2  # positional arguments and options, which argparse makes first
# Headings of the overview, in their order.
FIND, FILL, MEMORY = "find and read", "fill the file", "what was learned"
ASSISTANTS, CARE = "assistants", "care"
TABLE_FORMATS = ("table", "json", "csv", "tsv")
QUERY_COMMANDS = ("search", "recall")
# `-n5` is an option with its value; `-cats` and `-north` are words that must not come.
_ATTACHED_NUMBER = re.compile(r"-[A-Za-z]\d+")
# Before a word that could be taken for an option. No argument of a program can hold it.
_MARK = "\0"


class WrongUse(UsageError):
    """Arguments that the command line does not take."""

    def __init__(self, message: str, program: str) -> None:
        super().__init__(f"{message} (see {program} --help)")
        self.program = program


class Parser(argparse.ArgumentParser):
    """Raises its errors, with the next step, instead of printing the whole usage.

    Its help shows what is its own first, one example, and what every command takes last.
    """

    example = ""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.groups: dict[str, list[str]] = {}  # of commands, by heading

    def error(self, message: str) -> NoReturn:
        raise WrongUse(message, self.prog)

    def _get_formatter(self) -> argparse.HelpFormatter:
        # argparse tries each argument's metavar on one, which would ask for the terminal's width.
        return argparse.HelpFormatter(self.prog, width=80)

    def format_usage(self) -> str:
        return f"usage: {self._usage()}\n"

    def format_help(self) -> str:
        parts = [self.format_usage(), "\n", self._section(self._add_own)]
        if self.epilog:
            parts.append(f"\n{self.epilog}\n")
        if self.example:
            parts.append(f"\nexample:\n  {self.example}\n")
        for group in self._action_groups[_OWN_GROUPS:]:
            parts += ["\n", self._section(partial(self._add_group, group=group))]
        return "".join(parts)

    def _section(self, add: Callable[[argparse.HelpFormatter], None]) -> str:
        formatter = argparse.HelpFormatter(self.prog)
        add(formatter)
        return formatter.format_help()

    def _add_own(self, formatter: argparse.HelpFormatter) -> None:
        formatter.add_text(self.description)
        commands = self._commands_action()
        if commands is not None:
            self._add_commands(formatter, commands)
            return
        for group in self._action_groups[:_OWN_GROUPS]:
            self._add_group(formatter, group)

    @staticmethod
    def _add_group(formatter: argparse.HelpFormatter, group: argparse._ArgumentGroup) -> None:
        formatter.start_section(group.title)
        formatter.add_arguments(group._group_actions)
        formatter.end_section()

    def _usage(self) -> str:
        words = [self.prog]
        for action in self._actions:
            if action.option_strings and action.required:
                words.append(f"{action.option_strings[0]} {action.metavar}")
            elif not action.option_strings:
                shown = str(action.metavar)
                more = " ..." if action.nargs in ("+", "*") else ""
                optional = action.nargs in ("?", "*")
                words.append(f"[{shown}{more}]" if optional else f"{shown}{more}")
        return " ".join([*words, "[options]"])

    def _commands_action(self) -> argparse._SubParsersAction[Any] | None:
        found = [one for one in self._actions if isinstance(one, argparse._SubParsersAction)]
        return found[0] if found else None

    def _add_commands(
        self, formatter: argparse.HelpFormatter, commands: argparse._SubParsersAction[Any]
    ) -> None:
        lines = {line.dest: line for line in commands._choices_actions}
        for heading, names in self.groups.items():
            formatter.start_section(heading)
            formatter.add_arguments(lines[name] for name in names)
            formatter.end_section()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        near = nearest(str(value), known, limit=1)
        there_are = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(known)}"
        if isinstance(action, argparse._SubParsersAction):
            raise WrongUse(f'there is no command "{value}": {there_are}', self.prog)
        raise argparse.ArgumentError(action, f'"{value}" is none of its values: {there_are}')


class Unasked(Parser):
    """Stands for the parser of a command that is not the one that was typed: it takes no note.

    All of them take 5 ms to make, of the 80 of a search.
    """

    def __init__(self, **_: Any) -> None:
        self.example = self.epilog = ""

    def add_argument(self, *_: Any, **__: Any) -> argparse.Action:
        return argparse.Action([], "")

    def add_mutually_exclusive_group(self, **_: Any) -> Any:
        return self

    def set_defaults(self, **_: Any) -> None:
        pass


def add_format(parser: argparse.ArgumentParser) -> None:
    """The option of a command that prints a table."""
    parser.add_argument(
        "--format",
        choices=TABLE_FORMATS,
        help="csv, tsv: with headers (default: a table; in a pipe tab-separated, without headers)",
    )


def positive(text: str) -> int:
    """An argument that is a whole number above 0."""
    with contextlib.suppress(ValueError):
        if (number := int(text)) > 0:
            return number
    raise argparse.ArgumentTypeError(f"{text} is no positive number")


def share(text: str) -> float:
    """An argument that is a number from 0 to 1."""
    with contextlib.suppress(ValueError):
        if 0 <= (number := float(text)) <= 1:
            return number
    raise argparse.ArgumentTypeError(f"{text} is no number from 0 to 1")


class Words(argparse.Action):
    """One text, also when it was typed without quotes: `kb search retry with backoff`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        words = [word.removeprefix(_MARK) for word in values or ()]
        setattr(namespace, self.dest, " ".join(words) if words else None)


def parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options that a command line gives.

    Raises:
        WrongUse: it makes no sense.
    """
    commands = _commands(parser)
    if arguments[:1] == ["help"]:  # `kb help`, `kb help search`
        arguments = [*arguments[1:2], "--help"]
    place = _place_of_command(parser, arguments)
    name = arguments[place] if place < len(arguments) else ""
    own = commands.get(name, parser)
    if any(argument.startswith("--db") for argument in arguments[:place]) and name:
        # Each occurrence is one of several files, wherever it stands.
        arguments, place = [name, *arguments[:place], *arguments[place + 1 :]], 0
    if name in QUERY_COMMANDS:
        rest = _with_words_first(own, arguments[place + 1 :])
        arguments = [*arguments[: place + 1], *rest]
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise WrongUse(_unknown(own, unknown[0].removeprefix(_MARK)), own.prog)
    if not name:
        raise WrongUse("name a command, such as `kb add FOLDER` or `kb search QUERY`", parser.prog)
    return options


def typed_command(parser: Parser, arguments: Sequence[str]) -> str:
    """The name of the command that a command line is about, as it was typed; "" for none.

    Args:
        parser: knows the global options.
    """
    if arguments[:1] == ["help"]:
        return arguments[1] if len(arguments) > 1 else ""
    place = _place_of_command(parser, arguments)
    return arguments[place] if place < len(arguments) else ""


def _commands(parser: Parser) -> dict[str, Parser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _place_of_command(parser: Parser, arguments: Sequence[str]) -> int:
    """Where the command stands, behind the global options."""
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        place += 1 + _values(parser, arguments[place])
    return place


def _with_words_first(parser: Parser, arguments: Sequence[str]) -> list[str]:
    """The words of a command's query, wherever they stood, and behind them its options."""
    options: list[str] = []
    words: list[str] = []
    place = 0
    while place < len(arguments):
        argument = arguments[place]
        if argument == "--":
            words += arguments[place + 1 :]
            break
        if _is_option(parser, argument):
            end = place + 1 + _values(parser, argument)
            options += arguments[place:end]
            place = end
        else:
            words.append(argument)
            place += 1
    return [*(_MARK + word for word in words), *options]


def _is_option(parser: Parser, argument: str) -> bool:
    if argument.startswith("--"):
        return True
    known = argument[:2] in parser._option_string_actions
    return known and (len(argument) == 2 or _ATTACHED_NUMBER.fullmatch(argument) is not None)


def _values(parser: Parser, argument: str) -> int:
    """How many arguments behind an option belong to it."""
    if "=" in argument:
        return 0
    known = parser._option_string_actions
    names = [name for name in known if name.startswith(argument)]
    action = known.get(argument) or (known[names[0]] if len(names) == 1 else None)
    return int(action is not None and action.nargs is None)


def _unknown(parser: Parser, argument: str) -> str:
    if not argument.startswith("-"):
        return f'"{argument}" is one argument too many'
    name = argument.split("=")[0]
    near = nearest(name, [option for option in parser._option_string_actions if option[1] == "-"])
    hint = f": did you mean {near[0]}?" if near else ""
    if parser.prog.split()[-1] in QUERY_COMMANDS:
        hint += f"{'' if hint else ':'} To search for it, put -- before the query"
    return f"there is no option {name}{hint}"
