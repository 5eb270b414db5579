"""What people see on a terminal, drawn by Rich, whose import takes 50 ms."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.rule import Rule
from rich.style import Style
from rich.table import Table
from rich.text import Text

from kb.cli.streams import coloured
from kb.results.search import SCORE_WORDS, score_word
from kb.text.controls import flat, visible
from kb.text.counted import some_of

BAR_CELLS = 5
NARROW = 80  # columns of a terminal, below which a table has only the most important ones
LEAST_NAME = 16  # letters of a name that are not broken to make room for other columns
_WORD_WIDTH = max(len(word) for _, word in SCORE_WORDS)
_STYLES = {"very likely": "green", "likely": "green", "maybe": "yellow", "unlikely": "red"}
TEXT_COLUMNS = frozenset({"context", "does", "description", "content", "text", "message"})


def console(*, to_stderr: bool = False) -> Console:
    """Stdout or stderr as it is now: everything that it prints must be `visible`."""
    stream = sys.stderr if to_stderr else sys.stdout
    return Console(file=coloured(stream), highlight=False, markup=False, emoji=False)


def say(program: str, sentence: str, style: str) -> None:
    """Print a line on stderr whose beginning is coloured."""
    console(to_stderr=True).print(
        Text.assemble((f"{program}:", style), " ", sentence), soft_wrap=True
    )


def labelled(label: str, style: str, sentence: str) -> None:
    """Print a line after a short coloured word; further lines are aligned below its beginning."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=7)
    grid.add_column(overflow="fold")
    grid.add_row(Text(label, style=style), Text(sentence))
    console().print(grid)


def table(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    """Print rows below their headers, as wide as the terminal at most."""
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        figures = all(row[number].replace(".", "", 1).isdigit() for row in rows)
        # Names are broken at their ends if need be, and prose gives way first.
        prose = column in TEXT_COLUMNS
        grid.add_column(
            column,
            justify="right" if figures else "left",
            overflow="fold",
            no_wrap=figures,
            ratio=1 if prose else None,
            min_width=24 if prose else None,
        )
    for row in rows:
        grid.add_row(*map(Text, row))
    console().print(grid)


def document(text: str, title: str, *, as_markdown: bool) -> None:
    """Print a document's text, Markdown rendered, below its title if there is one."""
    shown = console()
    if title:
        shown.print(Rule(Text(visible(title), style="bold cyan"), align="left", style="dim"))
    text = visible(text)
    if as_markdown:
        shown.print(Markdown(text, hyperlinks=True, code_theme="ansi_dark"))
    else:
        shown.print(Text(text.rstrip("\n")), soft_wrap=True)


def bar(share: float, cells: int = BAR_CELLS, style: str = "green") -> Text:
    """A share, 0 to 1, as a bar; in ASCII on a terminal without block letters."""
    full, empty = "█░"
    try:
        "█░".encode(console().encoding)
    except (LookupError, UnicodeEncodeError):
        full, empty = "#."
    filled = round(share * cells)
    return Text.assemble((full * filled, style), (empty * (cells - filled), "dim"))


def search_group(file: str, title: str, address: str) -> None:
    """Print the document that the following rows belong to."""
    line = Text.assemble((flat(file), _linked("bold cyan", address)), "  ", (title, "bold"))
    console().print(line, soft_wrap=True)


def search_row(
    row: dict[str, Any], lines: str, heading: str, address: str, explanation: str
) -> None:
    """Print one row: how good it is, where it is, and the text around the matched words."""
    shown = console()
    line = Text("  ")
    if "relevanceScore" in row:
        score = row["relevanceScore"]
        word = score_word(score)
        style = _STYLES[word]
        line.append_text(bar(score, style=style))
        line.append(f" {score:.2f} ")
        line.append(f"{word:<{_WORD_WIDTH}}  ", style=style)
    line.append(flat(lines), style=_linked("cyan", address))
    if row["changedSinceSync"]:
        line.append("  (changed since sync)", style="yellow")
    if also := row.get("alsoIn"):
        line.append(f"  (also in {flat(some_of(also, 3))})", style="dim")
    if heading:
        line.append("  ").append(heading, style="bold")
    shown.print(line)
    snippet, text, done = row["snippet"], Text(), 0
    for start, end in row["marks"]:
        text.append(visible(snippet[done:start]))
        text.append(visible(snippet[start:end]), style="bold yellow")
        done = end
    shown.print(Padding(text.append(visible(snippet[done:])), (0, 0, 0, 4)))
    if explanation:
        shown.print(Padding(Text(flat(explanation), style="dim"), (0, 0, 0, 4)))


def _linked(style: str, address: str) -> Style:
    return Style.parse(style) + Style(link=address or None)


def status(heading: str, facts: Sequence[str], collections: Sequence[dict[str, Any]]) -> None:
    """Print what the file contains, with a bar for the passages that have a vector."""
    shown = console()
    shown.print(Text(flat(heading), style="bold"), soft_wrap=True)
    for fact in facts:
        shown.print(Text(flat(fact)))
    if not collections:
        return
    is_narrow = shown.width < NARROW
    heading = "collection"
    name = max(len(heading), *(len(flat(row["collection"])) for row in collections))
    grid = Table(box=None, header_style="bold", pad_edge=False)
    grid.add_column(heading, overflow="fold", min_width=min(name, LEAST_NAME))
    if not is_narrow:
        grid.add_column("kind")
    grid.add_column("documents", justify="right", no_wrap=True)
    grid.add_column("passages", justify="right", no_wrap=True)
    grid.add_column("vectors", no_wrap=True)
    grid.add_column("synced", no_wrap=True)
    for row in collections:
        passages = row["passages"]
        done = row["embedded"] / passages if passages else 1.0
        vectors = bar(done, 0 if is_narrow else 8, "green" if done == 1 else "yellow")
        vectors.append(f" {int(done * 100):>3}%")  # never 100 % before all have one
        grid.add_row(
            Text(flat(row["collection"])),
            *([] if is_narrow else [row["kind"]]),
            f"{row['documents']:,}",
            f"{passages:,}",
            vectors,
            (row["synced"] or "")[: 10 if is_narrow else 16].replace("T", " "),
        )
    shown.print()
    shown.print(grid)
    shown.print()
    for row in collections:
        if row["source"]:
            line = Text.assemble(
                flat(row["collection"]), (f" is read from {flat(row['source'])}", "dim")
            )
            shown.print(line, soft_wrap=True)
