"""The table of commands, the parser of each, whose options are declared beside its function, and
`kb completion`.

Arguments are as people type them: near names for typos, query words that look like options, errors
on one line or as JSON. Only the module of the command that is typed is imported; help and typos
need none. Argcomplete reads commands and options from the parsers. Names that only the file knows
are looked up without printing or waiting: a missing, damaged or busy file completes to nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from kb.cli import render
from kb.errors import UsageError
from kb.settings import PACKAGE, VERSION, database_paths
from kb.text.nearest import nearest

QUERY_COMMANDS = ("search", "context", "recall")
# `-n5` is an option with its value; `-cats` and `-north` exclude a word from a query.
_ATTACHED_NUMBER = re.compile(r"-[A-Za-z]\d+")
# Before a word that looks like an option. No argument of a program can contain it.
MARK = "\0"


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
        self.option("--format", None, text, choices=("table", "json", "csv", "tsv"))

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
        # Positional arguments and options, which argparse creates first, and ours.
        first, last = self._action_groups[:2], self._action_groups[2:]
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
    names = ("paths", "tags", "metadata", "since", "until", "max_per_document", "sort")
    return {name: getattr(options, name) for name in names}


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
        setattr(
            namespace, self.dest, self.value_of([word.removeprefix(MARK) for word in values or ()])
        )

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
        is_short = len(argument) == 2 or _ATTACHED_NUMBER.fullmatch(argument)
        if argument.startswith("--") or (
            argument[:2] in parser._option_string_actions and is_short
        ):
            end = index + 1 + _value_count(parser, argument)
            options += arguments[index:end]
            index = end
        else:
            words.append(argument)
            index += 1
    return [*(MARK + word for word in words), *options]


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


# Paths are opened as given; every other argument is text that UTF-8 must be able to hold.
PATH_OPTIONS = frozenset(
    "access_log allow_docs db db_folder file folder judged root sources token_file".split()
)
ABOUT = "A project's knowledge in one SQLite file: add folders, search, serve."
EXAMPLE = 'kb search "how do I calibrate the wind vane?" --from docs'
# By the headings of the overview: NAME FUNCTION[, USE]: SUMMARY, and an example on the next line.
# The function is MODULE.NAME in `kb.cli`; NAME_options beside it declares its arguments. "creates":
# it creates a missing file; "no file": it opens none.
_TABLE = PACKAGE / "assets" / "commands.txt"


class Command(NamedTuple):
    """What is known of a command before its module is imported."""

    function: str
    use: str
    summary: str
    heading: str
    example: str


def _commands() -> Iterator[tuple[str, Command]]:
    heading = ""
    lines = iter(_TABLE.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith("  "):
            name, _, rest = line.strip().partition(" ")
            call, _, summary = rest.partition(": ")
            function, _, use = call.partition(", ")
            yield name, Command(function, use, summary, heading, next(lines).strip())
        else:
            heading = line


COMMANDS = dict(_commands())


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; raises WrongUse, or SystemExit once help or version are
    printed."""
    if arguments[:1] in ([], ["help"]):  # `kb`, `kb help`, `kb help search`
        arguments = [*arguments[1:2], "--help"]
    general = overview()
    index = command_index(general, arguments)
    if index == len(arguments):
        _, unknown = general.parse_known_args(arguments)
        if unknown:
            raise WrongUse(unknown_argument(general, unknown[0]), general.prog)
        raise WrongUse("name a command, such as `kb add FOLDER` or `kb search QUERY`", general.prog)
    name = arguments[index]
    if name not in COMMANDS:
        raise WrongUse(f'there is no command "{name}": {suggestion(name, COMMANDS)}', general.prog)
    parser = command_parser(name)
    rest = [*arguments[:index], *arguments[index + 1 :]]
    if name in (*QUERY_COMMANDS, "add"):
        rest = words_first(parser, rest)
    options, unknown = parser.parse_known_args(rest)
    if unknown:
        raise WrongUse(unknown_argument(parser, unknown[0].removeprefix(MARK)), parser.prog)
    return options


def command_parser(name: str) -> Parser:
    command = COMMANDS[name]
    description = f"{command.summary[0].upper()}{command.summary[1:]}."
    parser = Parser(prog=f"kb {name}", description=description, example=command.example)
    parser.set_defaults(
        command=command.function,
        creates=command.use == "creates",
        needs_file=command.use != "no file",
    )
    module, function = command.function.split(".")
    getattr(importlib.import_module(f"kb.cli.{module}"), f"{function}_options")(parser)
    _add_common_options(parser)
    return parser


def overview() -> Parser:
    """The parser of what precedes a command; its help lists all commands."""
    parser = Parser(prog="kb", description=ABOUT, example=EXAMPLE)
    for name, command in COMMANDS.items():
        parser.commands.setdefault(command.heading, []).append((name, command.summary))
    _add_common_options(parser)
    return parser


def _add_common_options(parser: Parser) -> None:
    add = parser.add_argument_group("every command takes").add_argument
    files = (
        "the knowledge base file (default: KB_DB, else .kb/kb.db of the project); several, "
        "or those in a folder, are read as one; the first is written, of shards each"
    )
    add("--db", metavar="PATH", action="append", help=files)
    add("--json", action="store_true", help="one JSON document on stdout")
    add("--quiet", action="store_true", help="no progress and no summary")
    levels = ("debug", "info", "warning", "error")
    add("--log-level", choices=levels, default="warning", help="how much to log on stderr")
    model = "embedding model or URL#NAME (default: the file's, else one for the documents)"
    add("--model", metavar="NAME", help=model)
    add("--reranker", metavar="NAME", help="a fastembed cross-encoder or URL#NAME, for rerank")
    add("--threads", type=positive, default=1, metavar="N", help="threads of one model run")
    download = "let fastembed download the model named with --model"
    add("--download", action="store_true", help=download)
    add("--version", action="version", version=f"kb {VERSION}", help="print the version")
    add("-h", "--help", action="help", help="show this")


SHELLS = ("bash", "zsh", "fish")
PROGRAMS = ("kb", "kbfile")
MOST = 500  # names that a shell is given
NAMES_A_COLLECTION = ("sync", "remove", "move", "list")
_HOW = {
    "bash": 'eval "$(kb completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(kb completion zsh)"       # in ~/.zshrc, behind compinit',
    # A file, since fish has completions for another program named kb, and reads them beside ours.
    "fish": "kb completion fish > ~/.config/fish/completions/kb.fish",
}


def completion_options(parser: Parser) -> None:
    parser.argument("shell", "SHELL", ", ".join(SHELLS), choices=SHELLS)
    parser.epilog = "\n".join(("how:", *(f"  {how}" for how in _HOW.values())))


def completion(_: object, options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    text = shellcode(list(PROGRAMS), shell=options.shell)
    render.text({"shell": options.shell, "code": text}, text, options)
    return 0


def complete() -> None:
    import argcomplete

    parser = overview()
    commands = parser.add_subparsers()
    words = os.environ.get("COMP_LINE", "").split()
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.summary, description="")
        if name in words:  # the others' options are not asked for
            typed = commands.choices[name] = command_parser(name)
            for action in typed._actions:
                if action.dest == "db":  # it may be named before the command
                    action.default = argparse.SUPPRESS
                action.completer = _completer(name, action)  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options="long")


def _completer(command: str, action: argparse.Action) -> Callable[..., list[str]] | None:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    is_name = not action.option_strings and action.dest in ("name", "names")
    if action.dest == "collection" or metavar == "COLLECTION":
        return _collections
    if is_name and command in NAMES_A_COLLECTION:
        return _collections
    if metavar.startswith("DOC"):
        return _documents
    if is_name and command == "tool":
        from kb.tools.registry import load_tools

        return lambda prefix, **_: [name for name in load_tools() if name.startswith(prefix)]
    if action.dest == "client":
        from kb.assistants.catalog import ASSISTANTS

        return lambda prefix, **_: [name for name in ASSISTANTS if name.startswith(prefix)]
    return None


def _collections(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    from kb.library.names import collection_names

    files = database_paths(getattr(parsed_args, "db", None))
    return sorted({name for file in files for name in collection_names(file, prefix, MOST)})


def _documents(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    from kb.library.names import document_ids

    collection = getattr(parsed_args, "collection", "")
    only = collection if isinstance(collection, str) else ""
    files = database_paths(getattr(parsed_args, "db", None))
    return sorted({id_ for file in files for id_ in document_ids(file, prefix, only, MOST)})
