"""What of real files comes through conversion, ours beside markitdown's; started by `fidelity`.

The files are those that packages of PyPI and Debian ship. What they hold is read by readers of
their own, in the plainest way: the XML of Office files, Python's parser of pages, pdftotext and
the bookmarks of a PDF, for its tables the pages of the same manual. Sheets of OpenDocument say
themselves what their cells show; Excel's, and those that do not, are read as LibreOffice shows
them in American English, where it is installed. Of both converters' Markdown the same is taken:
words, lines with `#`, cells between bars, targets of links. A figure is the share of what a file
holds, as a multiset, that came through; `cpu` is processor time with the check for losses that
ours has.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pypdfium2
from markitdown import MarkItDown

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kb.formats.convert.completeness import with_losses
from kb.formats.convert.formats import format_of

MOST_BYTES = 3_000_000
MOST_FILES = 40  # of one kind and package
PACKAGES = {
    "pypi": {
        "python-docx": (".docx",),
        "python-pptx": (".pptx",),
        "pypdf": (".pdf",),
        "tablib": (".xlsx", ".xls", ".ods"),
        "xlsx2csv": (".xlsx",),
        "xlutils": (".xlsx", ".xls"),
        "pyexcel": (".xlsx", ".xls", ".ods"),
        "pyexcel-ods": (".ods",),
        "pyexcel-ods3": (".ods",),
        "pyexcel-xls": (".xls",),
        "odfpy": (".odt", ".ods", ".odp"),
        "ezodf": (".odt", ".ods", ".odp"),
        "relatorio": (".odt",),
        "trafilatura": (".html",),
        "readability-lxml": (".html",),
    },
    "debian": {
        "debian-reference-fr": (".pdf", ".html"),
        "developers-reference": (".pdf", ".html", ".epub"),
        "gnuplot-doc": (".pdf",),
        "bash-doc": (".pdf", ".html"),
        "xfig-doc": (".pdf",),
        "python-reportlab-doc": (".pdf",),
        "libpython3.11-testsuite": (".txt",),
    },
}
# Pages that hold the tables of a manual in PDF.
SAME_AS = {
    "debian-reference.fr.pdf": "debian-reference-fr/**/*.fr.html",
    "gnuplot.pdf": "gnuplot-doc/**/htmldocs/*.html",
    "xfig_ref_en.pdf": "xfig-doc/**/html/*.html",
    "developers-reference.pdf": "developers-reference/**/*.html",
}
# Cells (row, column) that LibreOffice shows otherwise than Excel, each by its record in the file: a
# formula whose result is error 1d, #NAME?, and a date of number 0, the day before 1 January 1900.
AS_IN_EXCEL = {
    "errors.xls": ("010001000f0002001d000000ffff", 1, 1, "#NAME?"),
    "date_field.xls": ("04000000150002000000", 4, 0, "00/01/00"),
}
PARTS = ("words", "headings", "cells", "links")
Parts = dict[str, Counter[str]]


@dataclass
class Score:
    """What of the files of a kind came through one converter."""

    wanted: Counter[str] = field(default_factory=Counter)
    got: Counter[str] = field(default_factory=Counter)
    cpu: float = 0.0
    refused: int = 0


# Getting the files


def unpacked(folder: Path) -> Iterator[tuple[str, Path]]:
    """Each package's name and where its files are; downloads what is not there."""
    for registry, packages in PACKAGES.items():
        for name in packages:
            target = folder / name
            if not target.exists():
                target.mkdir(parents=True)
                with tempfile.TemporaryDirectory() as work:
                    fetch(registry, name, Path(work), target)
            yield name, target


def fetch(registry: str, name: str, work: Path, target: Path) -> None:
    """Download and unpack one package; its folder stays empty where it is not to be had."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name, name]
    command = pip if registry == "pypi" else ["apt-get", "-q", "download", name]
    if subprocess.run(command, cwd=work, capture_output=True, check=False).returncode:
        print(f"not to be had: {name}", file=sys.stderr)
    for file in work.iterdir():
        if file.suffix == ".deb":
            subprocess.run(["dpkg-deb", "-x", file, target], check=True)
        else:
            shutil.unpack_archive(file, target, filter="data")
    for packed in target.rglob("*.gz"):
        if packed.suffixes[-2:-1] in ([".pdf"], [".html"]):
            subprocess.run(["gunzip", "-kf", packed], check=True)


def chosen(folder: Path) -> Iterator[Path]:
    """The files that are read, the same ones each time."""
    suffixes = PACKAGES["pypi"] | PACKAGES["debian"]
    for name, place in unpacked(folder):
        for suffix in suffixes[name]:
            found = sorted(place.rglob(f"*{suffix}"))
            if suffix == ".txt":
                found = [file for file in found if file.match("test_email/data/msg_*.txt")]
            sized = [file for file in found if 0 < file.stat().st_size < MOST_BYTES]
            yield from [file for file in sized if file.is_file()][:MOST_FILES]


# What files hold

_WORD = re.compile(r"[^\W_]+")
_SIGNS = re.compile(r"[\W_]+")
_NUMBER = re.compile(
    r"\A\s*(?:(?i:chapter|appendix|part|chapitre)\s+)?"
    r"(?:\d+(?:\.\d+)*|[A-Z]\.\d[\d.]*|[IVX]+)[.:)]?\s+"
)


def key(text: str) -> str:
    """A heading or a cell as it compares: letters and digits."""
    return _SIGNS.sub("", text).casefold()


def parts(
    text: str, headings: Iterable[str] = (), cells: Iterable[str] = (), links: Iterable[str] = ()
) -> Parts:
    """What compares."""
    return {
        "words": Counter(_WORD.findall(text.casefold())),
        "headings": Counter(filter(None, (key(_NUMBER.sub("", one)) for one in headings))),
        "cells": Counter(filter(None, map(key, cells))),
        "links": Counter(link for link in links if link.startswith(("http:", "https:", "mailto:"))),
    }


_PASSED_OVER = (
    *("Fallback", "moveFrom", "delText", "instrText", "tracked-changes", "table-of-content"),
    *("sequence-decls", "forms", "oMath", "scripts", "event-listeners", "note-citation"),
    *("creator", "date", "sender-initials"),
)


def local(element: ElementTree.Element) -> str:
    """An element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def xml_text(element: ElementTree.Element, leaf: str = "") -> str:
    """The text of an element, or of the elements below it that are called `leaf`."""
    if local(element) in _PASSED_OVER:
        return ""
    own = (element.text or "") if not leaf or local(element) == leaf else ""
    text = own + "".join(xml_text(one, leaf) + ("" if leaf else one.tail or "") for one in element)
    return text + " " * (local(element) in ("p", "br", "tab", "s", "line-break", "tc", "h"))


def office(data: bytes, members: str) -> Parts:
    """An Office file: the text of its members, and where its relationships lead."""
    package = zipfile.ZipFile(io.BytesIO(data))
    names = [name for name in package.namelist() if re.fullmatch(members, name)]
    roots = [ElementTree.fromstring(package.read(name)) for name in names]
    elements = [element for root in roots for element in root.iter()]
    anchors = {  # by relationship: where in its target a link leads
        value: next((v for k, v in one.items() if k.endswith("}anchor")), "")
        for one in elements
        if local(one) in ("hyperlink", "hlinkClick")
        for name, value in one.items()
        if name.endswith("}id")
    }
    links = []
    for name in names:
        folder, _, file = name.rpartition("/")
        relations = f"{folder}/_rels/{file}.rels"
        if relations in package.namelist():
            links += [
                "#".join(filter(None, (one.get("Target", ""), anchors[one.get("Id", "")])))
                for one in ElementTree.fromstring(package.read(relations))
                if one.get("Type", "").endswith("/hyperlink") and one.get("Id") in anchors
            ]
    # A table of one column is a box around text: its cells have none beside them.
    rows = [
        [[xml_text(cell, "t") for cell in row if local(cell) == "tc"] for row in table]
        for table in elements
        if local(table) == "tbl"
    ]
    return parts(
        "\n".join(xml_text(root, "t") for root in roots),
        [xml_text(one, "t") for one in elements if is_heading(one)],
        [cell for table in rows if max(map(len, table)) > 1 for row in table for cell in row],
        links,
    )


def is_heading(element: ElementTree.Element) -> bool:
    """A paragraph in a style of headings, or the title of a slide."""
    if local(element) == "p":
        styles = (one for one in element.iter() if local(one) == "pStyle")
        return any(
            re.match(r"(?:Heading|Ttulo|berschrift)\d", value)
            for one in styles
            for value in one.attrib.values()
        )
    kinds = [one.get("type") for one in element.iterfind("{*}nvSpPr/{*}nvPr/{*}ph")]
    return local(element) == "sp" and any(kind in ("title", "ctrTitle") for kind in kinds)


def opendocument(data: bytes) -> Parts:
    """A text, slides, or sheets of OpenDocument."""
    body = opendocument_body(data)
    elements = list(body.iter())
    rows = [list(one) for one in elements if local(one) == "table-row"]
    # A cell alone in its row is written as a line.
    cells = [[shown for cell in row if (shown := xml_text(cell).strip())] for row in rows]
    return parts(
        xml_text(body),
        [xml_text(one) for one in elements if local(one) == "h"],
        [cell for row in cells if len(row) > 1 for cell in row],
        [value for one in elements for name, value in one.items() if name.endswith("}href")],
    )


def opendocument_body(data: bytes) -> ElementTree.Element:
    """What an OpenDocument file shows."""
    root = ElementTree.fromstring(zipfile.ZipFile(io.BytesIO(data)).read("content.xml"))
    return next(one for one in root if local(one) == "body")


def says_what_it_shows(data: bytes) -> bool:
    """Whether each cell with a value has its text beside it."""
    cells = (one for one in opendocument_body(data).iter() if local(one) == "table-cell")
    return all(len(cell) for cell in cells if any("value" in name for name in cell.attrib))


_NOT_READ = ("script", "style", "nav", "noscript", "template", "head", "footer", "button")


class Page(HTMLParser):
    """What a page holds outside of its navigation; of tables those with rows and columns."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.headings: list[str] = []
        self.cells: list[str] = []
        self.links: list[str] = []
        self._tables: list[list[list[str]]] = []
        self._open = ""
        self._left_out = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._left_out += tag in _NOT_READ
        if self._left_out:
            return
        self.text.append(" ")
        if tag == "a":
            self.links.append(dict(attrs).get("href") or "")
        elif tag == "table":
            self._tables.append([])
        elif tag == "tr" and self._tables:
            self._tables[-1].append([])
        elif tag in ("td", "th") and self._tables and self._tables[-1]:
            self._tables[-1][-1].append("")
        elif re.fullmatch("h[1-6]", tag):
            self._open = tag
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in _NOT_READ:
            self._left_out = max(0, self._left_out - 1)
        elif tag == self._open:
            self._open = ""
        elif tag == "table" and self._tables:
            rows = self._tables.pop()
            if len(rows) > 1 and max(map(len, rows)) > 1:
                self.cells += [cell for row in rows for cell in row]

    def handle_data(self, data: str) -> None:
        if self._left_out:
            return
        self.text.append(data)
        if self._open:
            self.headings[-1] += data
        if self._tables and self._tables[-1] and self._tables[-1][-1]:
            self._tables[-1][-1][-1] += data


def page(data: bytes) -> Parts:
    """A page; of a table its cells."""
    reader = Page()
    reader.feed(data.decode("utf-8", "replace"))
    return parts("".join(reader.text), reader.headings, reader.cells, reader.links)


def book(data: bytes) -> Parts:
    """An EPUB: its pages but for the list of contents."""
    package = zipfile.ZipFile(io.BytesIO(data))
    names = [n for n in package.namelist() if n.endswith((".html", ".xhtml")) and "nav" not in n]
    return joined(page(package.read(name)) for name in names)


def joined(several: Iterable[Parts]) -> Parts:
    """What several files hold together."""
    total: Parts = {part: Counter() for part in PARTS}
    for one in several:
        for part in PARTS:
            total[part] += one[part]
    return total


def mail(data: bytes) -> Parts:
    """The plain texts and subjects of a mail and those inside it."""
    message = message_from_bytes(data, policy=policy.default)
    if not message.keys():
        raise ValueError("a text without a header is no mail")
    walked = list(message.walk())
    texts = [
        (part.get_payload(decode=True) or b"").decode("latin-1")
        for part in walked
        if part.get_content_type() == "text/plain" and not part.get_filename()
    ]
    return parts("\n".join(texts), [one["subject"] for one in walked if one["subject"]])


_DIGITS = re.compile(r"[\divxlc]+")


def pdf(file: Path, folder: Path) -> Parts:
    """A PDF: pdftotext's words, its bookmarks, and the cells of the same manual's pages."""
    shown = subprocess.run(["pdftotext", file, "-"], capture_output=True, check=False).stdout
    document = pypdfium2.PdfDocument(file)
    headings = [bookmark.get_title() for bookmark in document.get_toc()]
    pages = [page.splitlines() for page in shown.decode("utf-8", "replace").split("\f")]
    filled = [[line for line in lines if line.strip()] for lines in pages]
    ends = Counter(_DIGITS.sub("", line) for lines in filled for line in lines[:3] + lines[-3:])
    # Running heads and the lines of a table of contents are left out on purpose.
    kept = [
        line
        for lines in filled
        for line in lines
        if ends[_DIGITS.sub("", line)] < 3 and not re.search(r"(?:[.·]\s?){5,}", line)
    ]
    text = re.sub(r"[-\u00ad\ufffe]\n", "", "\n".join(kept))
    found = parts(text, headings)
    if file.name in SAME_AS:
        # DocBook's notes and tips are tables on its pages alone, without lines.
        read = (one.read_bytes() for one in sorted(folder.glob(SAME_AS[file.name])))
        pages = (page(data.replace(b'<table border="0"', b"<div")) for data in read)
        found["cells"] = joined(pages)["cells"] & cells_in_words(text)
    return found


def cells_in_words(text: str) -> Counter[str]:
    """Stands for every cell that a text may hold at all."""
    solid = key(text)

    class Held(Counter[str]):
        def __getitem__(self, cell: str) -> int:
            return 10**6 if cell in solid else 0

    return Held()


def sheets(files: list[Path]) -> dict[Path, Parts]:
    """Workbooks as LibreOffice shows them."""
    found: dict[Path, Parts] = {}
    if not shutil.which("soffice"):
        return found
    kind = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,true,true,false,false,-1"
    for file in files:
        with tempfile.TemporaryDirectory() as work:
            profile = f"-env:UserInstallation=file://{tempfile.gettempdir()}/fidelity-profile"
            command = ["soffice", profile, "--headless", "--convert-to", kind, "--outdir", work]
            subprocess.run([*command, file], capture_output=True, check=False)
            rows = [
                row
                for table in sorted(Path(work).glob("*.csv"))
                for row in csv.reader(io.StringIO(table.read_text(errors="replace"), newline=""))
            ]
            if file.name in AS_IN_EXCEL:
                record, at, column, shown = AS_IN_EXCEL[file.name]
                assert bytes.fromhex(record) in file.read_bytes(), file
                rows[at][column] = shown
            # A cell alone in its row is written as a line.
            cells = [cell for row in rows if sum(map(bool, row)) > 1 for cell in row]
            if any(map(any, rows)):
                found[file] = parts("\n".join(" ".join(row) for row in rows), cells=cells)
    return found


OFFICE: dict[str, Callable[[bytes], Parts]] = {
    ".docx": lambda data: office(data, r"word/(?:document|footnotes|comments)\.xml"),
    ".pptx": lambda data: office(data, r"ppt/(?:slides|notesSlides)/[^/]*\.xml"),
    ".odt": opendocument,
    ".odp": opendocument,
    ".ods": opendocument,
    ".html": page,
    ".epub": book,
    ".txt": mail,
}

# What converters give

_LINK = re.compile(r"\]\(\s*<?([^\s<>)]+)|<((?:https?|mailto):[^\s<>]+)>")
_BAR = re.compile(r"(?<!\\)\|")


def of_markdown(text: str) -> Parts:
    """The same of Markdown."""
    lines = text.splitlines()
    rows = [line.strip() for line in lines if line.lstrip().startswith("|")]
    cells = [cell for row in rows for cell in _BAR.split(row)[1:-1]]
    shown = [re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", cell) for cell in cells]
    headings = [re.sub(r"\{#[^}]*\}$", "", line) for line in lines if re.match("#{1,6} ", line)]
    plain = [re.sub(r"^#+ |!?\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    words = re.sub(r"\]\([^)]*\)", "] ", text).replace("\\", "")
    return parts(words, plain, shown, [one or other for one, other in _LINK.findall(text)])


def ours(file: Path, data: bytes) -> str:
    """What is stored of a file."""
    kind = format_of(f"{file.stem}.eml" if file.suffix == ".txt" else file.name)
    assert kind is not None
    module = importlib.import_module(f"kb.formats.convert.{kind.module}")
    converted = with_losses(kind.module, data, module.convert(data, file.name))
    return f"{converted.title}\n{converted.text}"


def theirs() -> Callable[[Path, bytes], str]:
    """What markitdown makes of a file."""
    converter = MarkItDown(enable_plugins=False)
    return lambda file, data: (
        converter.convert_stream(
            io.BytesIO(data), file_extension=".eml" if file.suffix == ".txt" else file.suffix
        ).text_content
    )


def main() -> None:
    """Read, convert, compare, print."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", nargs="*", default=[], help="only these, such as docx pdf")
    parser.add_argument("--losses", type=int, default=0, help="files of ours with most missing")
    options = parser.parse_args()
    files = [
        file
        for file in chosen(options.folder.resolve())
        if not options.kinds or file.suffix[1:] in options.kinds
    ]
    books = sheets(
        [
            file
            for file in files
            if file.suffix in (".xlsx", ".xls")
            or (file.suffix == ".ods" and not says_what_it_shows(file.read_bytes()))
        ]
    )
    converters = {"kb": ours, "markitdown": theirs()}
    scores: dict[str, dict[str, Score]] = defaultdict(lambda: defaultdict(Score))
    count: Counter[str] = Counter()
    losses: list[tuple[float, str]] = []
    for file in files:
        data = file.read_bytes()
        try:
            truth = (
                books[file]
                if file in books
                else pdf(file, options.folder.resolve())
                if file.suffix == ".pdf"
                else OFFICE[file.suffix](data)
            )
        except Exception as error:  # noqa: BLE001 a file that is broken on purpose
            print(f"left out: {file.name}: {error!r}"[:100], file=sys.stderr)
            continue
        if not truth["words"].total():
            continue
        kind = "mail" if file.suffix == ".txt" else file.suffix[1:]
        count[kind] += 1
        for name, convert in converters.items():
            score = scores[kind][name]
            start = time.process_time()
            try:
                text = convert(file, data)
            except Exception:  # noqa: BLE001
                text = ""
                score.refused += 1
            score.cpu += time.process_time() - start
            made = of_markdown(text)
            for part in PARTS:
                score.wanted[part] += truth[part].total()
                score.got[part] += (truth[part] & made[part]).total()
            if name == "kb":
                missing = truth["words"] - made["words"]
                share = missing.total() / truth["words"].total()
                losses.append((share, f"{file.name}: {[w for w, _ in missing.most_common(8)]}"))
    print_table(scores, count)
    for share, what in sorted(losses, reverse=True)[: options.losses]:
        print(f"{share:.0%} {what}")


def print_table(scores: dict[str, dict[str, Score]], count: Counter[str]) -> None:
    """Two lines for each kind of file."""
    print(f"| files | by | {' | '.join(PARTS)} | cpu s | refused |\n|---|---|{'---:|' * 6}")
    for kind, both in scores.items():
        for name, score in both.items():
            shares = [
                f"{score.got[part] / score.wanted[part]:.1%} of {score.wanted[part]:,}"
                if score.wanted[part]
                else "-"
                for part in PARTS
            ]
            label = f"{count[kind]} {kind}" if name == "kb" else ""
            print(
                f"| {label} | {name} | {' | '.join(shares)} | {score.cpu:.1f} | {score.refused} |"
            )


if __name__ == "__main__":
    main()
