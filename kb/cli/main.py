"""The command line: parse, run one command, leave with its exit code."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from kb.cli import render
from kb.cli.commands import PATH_OPTIONS, WrongUse, parse
from kb.cli.exit_codes import DONE, FAILURE, INTERRUPTED, NOTHING_FOUND, WRONG_USE
from kb.cli.streams import OutputError, ending_on_signals, prepare_streams, written_output
from kb.disk.read import system_error
from kb.errors import InvalidPattern, KbError, NotFoundError, SourceError, UsageError
from kb.text.file_names import writable

log = logging.getLogger("kb.cli")

SHELL_ASKS = "_ARGCOMPLETE"  # set by the shell's function to ask for completions


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    prepare_streams()
    code = DONE
    try:
        with written_output():
            code = _outcome(list(sys.argv[1:] if arguments is None else arguments))
    except OutputError as error:
        render.say(str(error), style=render.ERROR)
        code = FAILURE
    except KeyboardInterrupt:
        render.say("interrupted; what was done is kept")
        code = INTERRUPTED
    sys.exit(code)


def _outcome(arguments: list[str]) -> int:
    """Run the command and print what went wrong; the exit code."""
    if SHELL_ASKS in os.environ:
        from kb.cli.commands import complete

        complete()
    try:
        options = parse(arguments)
    except WrongUse as error:
        _print_error(error, as_json="--json" in arguments, program=error.program)
        return WRONG_USE
    except SystemExit as ended:  # the help or the version was printed
        return int(ended.code or 0)
    for option, value in vars(options).items():
        if option not in PATH_OPTIONS:
            setattr(options, option, writable(value))
    logging.basicConfig(
        stream=sys.stderr, level=options.log_level.upper(), format="%(name)s: %(message)s"
    )
    try:
        with ending_on_signals():
            return _run(options)
    except KbError as error:
        if options.command == "care.call" and not isinstance(error, UsageError):
            from kb.tools.registry import failure_shape, load_tools

            tool = load_tools().get(options.name)
            print(render.as_json(failure_shape(error.as_result(), tool.family if tool else "")))
            _print_error(error, as_json=False)
            return NOTHING_FOUND
        _print_error(error, as_json=options.json)
        if isinstance(error, NotFoundError):
            return NOTHING_FOUND
        return WRONG_USE if isinstance(error, UsageError | InvalidPattern) else FAILURE
    except (BrokenPipeError, OutputError):
        raise
    except OSError as error:
        log.debug("the cause", exc_info=True)
        _print_error(system_error(error), as_json=options.json)
        return FAILURE
    except Exception as error:
        log.debug("the cause", exc_info=True)
        text = f"{type(error).__name__}: {error}".replace("\n", " ")
        text = f"internal error: {text} (--log-level debug shows more)"
        _print_error(KbError(text), as_json=options.json)
        return FAILURE


def _run(options: argparse.Namespace) -> int:
    if options.command != "browse.search" or options.folder is not None:
        gc.enable()  # one search makes hardly any garbage (`kb.__main__`)
    if (root := getattr(options, "root", None)) is not None:
        try:
            os.chdir(root.expanduser())
        except OSError as error:
            why = f"cannot work in the folder {root}: {error.strerror}"
            raise SourceError(why, path=str(root)) from error
    if options.command == "browse.search":
        from kb.cli.browse import search_by_server

        if (code := search_by_server(options)) is not None:
            return code
    # Only now: loading what opens a file takes as long as a running server's answer.
    from kb.cli.run import run_command

    return run_command(options)


def _print_error(error: KbError, *, as_json: bool, program: str = "kb") -> None:
    if as_json:
        print(render.as_json(error.as_result()))
    suggestions = error.details.get("suggestions", [])
    names_them = any(start in error.message for start in ("Did you", "There are"))
    hint = f" Near: {', '.join(suggestions)}." if suggestions and not names_them else ""
    reason = f": {error.details['reason']}" if error.details.get("reason") else ""
    render.say(f"{error.message}{reason}{hint}", program=program, style=render.ERROR)
