"""Every row of the README's tables of sources and formats does what it says."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server_process import HANDSHAKE, Process
from sources.web_server import Site, serving
from support import ROOT, git

from kb.cli.main import main
from kb.text.suffixes import MARKDOWN_SUFFIXES

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIXTURES = ROOT / "fixtures" / "formats"
BEFORE = {"a.md": "# Quartz\n\nThe quartz crystal is hard.\n", "b.md": "# Beryl\n\nThe beryl.\n"}
AFTER = {"a.md": "# Marble\n\nThe marble slab is soft.\n", "b.md": BEFORE["b.md"]}
ARTICLE = "<html><body><main><h1>{0}</h1><p>{1}</p></main></body></html>"


def table(title: str) -> list[list[str]]:
    """The rows of the table with this first column."""
    lines = README.split(f"| {title} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


SOURCES, FORMATS = table("source"), table("format")


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["--json", *words])
    output = capsys.readouterr()
    assert ended.value.code == 0, (words, output)
    return json.loads(output.out)


def folder_of(place: Path, pages: dict[str, str]) -> Path:
    place.mkdir(exist_ok=True)
    for name, text in pages.items():
        (place / name).write_text(text)
    return place


def bundle_of(path: Path, pages: dict[str, str]) -> Path:
    folder = folder_of(path.with_name("from"), pages)
    path.unlink(missing_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name in pages:
                archive.write(folder / name, name)
    else:
        with tarfile.open(path, "w:gz") as archive:
            for name in pages:
                archive.add(folder / name, name)
    return path


def repository_of(place: Path, pages: dict[str, str]) -> str:
    folder_of(place / "docs", pages) if place.exists() else place.mkdir()
    folder_of(place / "docs", pages)
    for words in (["init", "-qb", "main"], ["add", "-A"], ["commit", "-qm", "all"]):
        git(place, *words)
    return f"git+file://{place}?path=docs#main"


def articles(site: Site, pages: dict[str, str]) -> list[str]:
    for name, text in pages.items():
        title, _, body = text.removeprefix("# ").partition("\n\n")
        site.put(f"/{name.removesuffix('.md')}", ARTICLE.format(title, body))
    return [f"/{name.removesuffix('.md')}" for name in pages]


def listed(site: Site, path: str, pages: dict[str, str]) -> str:
    """A list of pages at an address."""
    if path == "/docs/manifest.json":
        for name, text in pages.items():
            site.put(f"/docs/{name}", text, "text/markdown")
        site.put(path, json.dumps({"sources": {"files": list(pages)}}), "application/json")
    elif path == "/llms.txt":
        links = "".join(f"- [x]({place})\n" for place in articles(site, pages))
        site.put(path, f"# Pages\n\n{links}", "text/plain")
    else:
        places = articles(site, pages)
        locs = "".join(f"<url><loc>{site.url}{place}</loc></url>" for place in places)
        site.put(path, f"<urlset>{locs}</urlset>", "application/xml")
    return site.url + path


Make = Callable[[Path, Site, dict[str, str]], list[str]]  # the sources to add, with these pages


def put(site: Site, path: str, text: str | bytes, kind: str) -> list[str]:
    site.put(path, text, kind)
    return [site.url + path]


MAKE: dict[str, Make] = {
    "folder": lambda place, _, pages: [str(folder_of(place / "docs", pages))],
    "file": lambda place, _, pages: [str(folder_of(place / "docs", pages) / "a.md")],
    "file address": lambda place, _, pages: [folder_of(place / "my docs", pages).as_uri()],
    "bundle": lambda place, _, pages: [
        str(bundle_of(place / f"docs{suffix}", pages)) for suffix in (".tar.gz", ".tgz", ".zip")
    ],
    "git repository": lambda place, _, pages: [repository_of(place / "r", pages)],
    "page": lambda _, site, pages: [site.url + articles(site, pages)[0]],
    "document on the web": lambda _, site, pages: put(site, "/x.md", pages["a.md"], "text/plain"),
    "sitemap": lambda _, site, pages: [listed(site, "/sitemap.xml", pages)],
    "llms.txt": lambda _, site, pages: [listed(site, "/llms.txt", pages)],
    "manifest": lambda _, site, pages: [listed(site, "/docs/manifest.json", pages)],
    "bundle on the web": lambda place, site, pages: put(
        site, "/d.tgz", bundle_of(place / "d.tgz", pages).read_bytes(), "application/gzip"
    ),
}


def test_the_table_of_sources_names_what_there_is() -> None:
    assert [row[0] for row in SOURCES] == list(MAKE)


@pytest.mark.parametrize("kind", MAKE)
def test_a_source_is_searched_changed_and_synced_again(
    kind: str,
    tmp_path: Path,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = tmp_path / "project"
    (project / ".kb").mkdir(parents=True)
    monkeypatch.chdir(project)
    sources = MAKE[kind](tmp_path, site, BEFORE)
    for number, source in enumerate(sources):
        words = ("add", source, "--no-embed", "--allow-private", "--name", f"c{number}")
        (report,) = run(capsys, *words)["collections"]
        assert report["errors"] == []
    names = [f"c{number}" for number in range(len(sources))]
    # Named, since what is the same in several collections is one row otherwise.
    within = (word for name in names for word in ("-c", name))
    rows = run(capsys, "search", "quartz crystal", *within)["results"]
    assert {row["collection"] for row in rows} == {*names}
    MAKE[kind](tmp_path, site, AFTER)
    for report in run(capsys, "sync", "--no-embed")["collections"]:
        assert (report["updated"], report["errors"]) == (1, [])
    with Process("-m", "kb", "serve", folder=project) as server:
        server.send("initialize", {"protocolVersion": "2025-06-18", **HANDSHAKE}, 1)
        server.reply()
        server.send("notifications/initialized")
        server.call("documents_search", {"query": "+marble slab", "collections": names}, 2)
        answer = json.loads(server.reply()["result"]["content"][0]["text"])
    assert {row["collection"] for row in answer["results"]} == {*names}
    is_page = "://127" in sources[0] and not kind.startswith("bundle")
    assert all(("url" in row) == is_page for row in answer["results"])


# tests/formats makes a .msg of its parts; no library at hand writes .xlsb.
WITHOUT_SAMPLE = {".xlsb", ".msg"}


def sample(suffix: str) -> Path:
    """A file of the fixtures that is of the same format."""
    same = {
        ".markdown": ".md", ".mdx": ".md", ".asciidoc": ".adoc", ".xlsm": ".xlsx", ".htm": ".html",
        ".xhtml": ".html", ".txt": ".md", ".text": ".md", ".asc": ".adoc", ".ad": ".adoc",
        ".9": ".1", ".gz": ".1", ".tsv": ".csv", ".docm": ".docx", ".pptm": ".pptx", ".ott": ".odt",
    }  # fmt: skip
    same |= dict.fromkeys(MARKDOWN_SUFFIXES, ".md")
    wanted = same.get(suffix.lower(), suffix)
    return next(file for file in FIXTURES.iterdir() if file.suffix == wanted)


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row[0])
def test_a_format_is_read(
    row: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, files, place = row
    folder = tmp_path / "docs" / "man"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    endings = [ending.rsplit("*", 1)[-1] for ending in re.findall(r"`([^`]+)`", files)]
    endings = [ending for ending in endings if ending not in WITHOUT_SAMPLE]
    for number, ending in enumerate(endings):
        source = sample(ending)
        if ending == ".gz":
            (folder / f"n{number}.1.gz").write_bytes(gzip.compress(source.read_bytes()))
        else:
            shutil.copy(source, folder / f"n{number}{ending}")
    (report,) = run(capsys, "add", "docs", "--no-embed")["collections"]
    assert (report["added"], report["errors"]) == (len(endings), [])
    question = ("harbour berth mooring ship", "-n", "100", "--min-score", "0")
    rows = run(capsys, "search", *question)["results"]
    # Samples with one text are one row, which names the others.
    paths = [path for row in rows for path in (row["documentId"], *row.get("alsoIn", ()))]
    assert {path.split("/")[-1].split(".")[0] for path in paths} == {
        f"n{number}" for number in range(len(endings))
    }
    allowed = set(place.split(", ")) if place else set()
    for found in rows:
        places = {"page", "slide", "sheet", "cell"} & found.keys()
        assert places == allowed or (len(allowed) > 1 and places < allowed)
