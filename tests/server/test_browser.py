"""The page and the graph in a real browser: typed, clicked and compared with the command line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_process import HttpServer
from server_process import HANGS, environment
from test_page import make_file

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 30_000  # milliseconds until something that does not come fails the test


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("there is no Chromium: run scripts/browser")
    with playwright.sync_playwright() as started:
        # Root may not use the sandbox; what is opened here is ours alone.
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(windrose_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_file(tmp_path_factory.mktemp("browser"), windrose_file)


@pytest.fixture(scope="module")
def server(file: Path) -> Iterator[HttpServer]:
    with HttpServer(file) as running:
        yield running


@pytest.fixture
def page(browser: Any, server: HttpServer) -> Iterator[Any]:
    """A page that loads nothing from elsewhere, whose scripts and policy do not complain."""
    context = browser.new_context(
        base_url=f"http://127.0.0.1:{server.port}",
        viewport={"width": 1280, "height": 800},
        reduced_motion="reduce",
    )
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    opened.on("console", lambda one: complaints.append(one.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    asked: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    yield opened
    assert complaints == []
    here = (f"http://127.0.0.1:{server.port}/", "file://", "data:")
    assert [url for url in asked if not url.startswith(here)] == []
    context.close()


def printed(file: Path, *arguments: str) -> Any:
    """What a command prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "kb", "--db", str(file), *arguments],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=HANGS,
    )
    return json.loads(done.stdout)


def test_results_come_while_one_types_and_are_those_of_the_command(page: Any, file: Path) -> None:
    page.goto("/")
    page.keyboard.type("calibrate the vane")  # the field has the focus
    page.wait_for_selector(".result mark")
    page.wait_for_url("**/?q=calibrate+the+vane")
    rows = printed(file, "search", "calibrate the vane", "--json", "-n", "20")["results"]
    shown = [text.partition(" ·")[0] for text in page.locator(".result > .place").all_inner_texts()]
    assert shown == [
        f"{row['collection']}/{row['documentId']}:{row['startLine']}–{row['endLine']}"
        for row in rows
    ]
    scores = [float(text.split()[0]) for text in page.locator(".score").all_inner_texts()]
    assert scores == [round(row["relevanceScore"], 2) for row in rows]
    marked = {text.lower() for text in page.locator(".result mark").all_inner_texts()}
    assert "vane" in marked


def test_the_keyboard_leads_from_the_question_to_the_marked_passage(page: Any) -> None:
    page.goto("/?q=E417")
    page.wait_for_selector(".result")
    page.keyboard.press("ArrowDown")
    place = page.evaluate("document.activeElement.querySelector('.place').innerText")
    first, last = map(int, re.findall(r":(\d+)–(\d+)", place)[0])
    page.keyboard.press("Enter")
    page.wait_for_selector(".passage")
    lines = page.evaluate("[...document.querySelectorAll('.passage')].map(one => +one.id.slice(1))")
    assert lines == list(range(first, last + 1))
    # The page is there before it has been moved to the passage.
    page.wait_for_function(
        """() => {
            const top = document.querySelector(".passage").getBoundingClientRect().top;
            return 0 < top && top < innerHeight;
        }"""
    )
    assert "E417" in "".join(page.locator(".passage").all_inner_texts())
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    page.wait_for_url("**/collections")


def test_the_outline_and_the_citations_lead_on(page: Any) -> None:
    page.goto("/doc?collection=windrose&id=how-to%2Fcalibrate+the+vane.md")
    page.click(".outline a:text('If storing fails')")
    line = page.evaluate("location.hash")
    heading = page.locator(line)
    assert "If storing fails" in heading.inner_text()
    assert 0 < heading.bounding_box()["y"] < 300
    page.click(".citations:has(summary:text('Cited by')) a >> nth=0")
    page.wait_for_selector(".line:target")
    assert "calibrate" in page.locator(".line:target").inner_text()


def test_no_document_runs_a_script(page: Any) -> None:
    hostile = "/doc?collection=odd&id=a+%22b%22+%26+%3Cc%3E.md"
    for path in ("/?q=zebra", hostile, "/graph", "/discoveries", "/collection?name=odd"):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert page.title() != "taken"
        assert page.locator("main img").count() == 0


def test_a_discovery_is_forgotten_by_two_clicks(page: Any, file: Path) -> None:
    page.goto("/discoveries")
    entry = page.locator("li:has-text('raw pulses')")
    entry.locator("summary").click()
    entry.locator("button").click()
    page.wait_for_selector("[role=status]")
    assert page.locator("li:has-text('raw pulses')").count() == 0
    left = printed(file, "--json", "recall")["discoveries"]
    assert not [one for one in left if "raw pulses" in one["content"]]


def test_light_and_dark_differ_and_both_can_be_read(page: Any) -> None:
    brightness = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto("/?q=vane")
        colours = page.evaluate(
            "(style => [style.backgroundColor, style.color])(getComputedStyle(document.body))"
        )
        back, text = [sum(map(int, re.findall(r"\d+", one)[:3])) for one in colours]
        assert abs(back - text) > 400
        brightness.append(back)
    assert brightness[0] > brightness[1]


def screen_place(page: Any, node: str) -> tuple[float, float]:
    """Where a document of the graph is drawn."""
    found = page.evaluate(
        """id => { const view = document.querySelector('.graph');
        const box = view.getBoundingClientRect();
        const node = view.graph.nodes.find(one => one.id === id), at = view.graph.onScreen(node);
        return [box.left + at.x, box.top + at.y]; }""",
        node,
    )
    return found[0], found[1]


def chosen(page: Any) -> str:
    found: str = page.evaluate("(document.querySelector('.graph').graph.chosen() || {}).id || ''")
    return found


@pytest.mark.parametrize("where", ["page", "file"])
def test_the_graph_is_searched_clicked_and_opened(
    where: str, page: Any, file: Path, tmp_path: Path
) -> None:
    if where == "page":
        page.goto("/graph")
    else:
        drawn = tmp_path / "graph.html"
        command = [sys.executable, "-m", "kb", "--db", str(file), "graph", "--format", "html"]
        subprocess.run([*command, "-o", drawn, "--quiet"], env=environment(), check=True)
        page.goto(drawn.as_uri())
    vane = "windrose/how-to/calibrate the vane.md"
    known = {node["id"] for node in printed(file, "graph", "--format", "json")["nodes"]}
    kinds = page.evaluate(
        "document.querySelector('.graph').graph.nodes.map(one => [one.id, one.kind])"
    )
    documents = {id_ for id_, kind in kinds if kind == "document"}
    assert documents <= known
    assert vane in documents
    # Pages of the web are there and not shown before somebody asks for them.
    shown = "document.querySelector('.graph').graph.shown().map(one => one.kind)"
    assert "external" in {kind for _, kind in kinds}
    assert "external" not in page.evaluate(shown)
    page.click(".legend label:has-text('The web')")
    assert "external" in page.evaluate(shown)
    page.click(".legend label:has-text('The web')")

    page.fill(".graph input[type=search]", "calibrate")
    listed = page.locator(".hits button").all_inner_texts()
    assert any("Calibrate the vane" in text for text in listed)
    assert len(listed) > 1  # the rest is listed
    page.fill(".graph input[type=search]", "calibrate the vane")
    page.keyboard.press("Enter")
    assert chosen(page) == vane
    assert page.locator(".about h2").inner_text() == "Calibrate the vane"
    said = page.locator(".about q").all_inner_texts()
    assert any("vane" in text for text in said)  # the citing sentences
    x, y = screen_place(page, vane)
    assert 0 < x < 1280
    assert 0 < y < 800

    page.click(".zoom button[value='0']")
    page.keyboard.press("Escape")
    other = page.evaluate(
        "document.querySelector('.graph').graph.shown().find(n => n.id.endsWith('/wind.md')).id"
    )
    page.mouse.click(*screen_place(page, other))
    assert chosen(page) == other
    missing = page.evaluate(
        "document.querySelector('.graph').graph.nodes.filter(n => n.kind === 'missing')"
        ".map(n => n.label)"
    )
    assert "../how-to/solder-the-board.md" in missing
    page.click(".about a:text('Open the document')")
    page.wait_for_url("**wind.md*" if where == "file" else "**/doc?*wind.md*")


def test_two_thousand_documents_are_drawn_in_time(page: Any, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    for number in range(2000):
        place = folder / f"part-{number % 12}"
        place.mkdir(parents=True, exist_ok=True)
        targets = [(number + 1) % 2000, number // 2]
        links = "".join(f"[{to}](../part-{to % 12}/page-{to}.md)\n" for to in targets)
        (place / f"page-{number}.md").write_text(f"# Page {number}\n\n{links}")
    file, drawn = tmp_path / "many.db", tmp_path / "many.html"
    command = [sys.executable, "-m", "kb", "--db", str(file), "--quiet"]
    subprocess.run(
        [*command, "add", str(folder), "--no-embed"], env=environment(), check=True, timeout=300
    )
    subprocess.run(
        [*command, "graph", "--format", "html", "-o", drawn], env=environment(), check=True
    )
    page.goto(drawn.as_uri())
    assert page.evaluate("document.querySelector('.graph').graph.shown().length") == 2000
    page.fill(".graph input[type=search]", "Page 1234")
    page.keyboard.press("Enter")
    assert chosen(page).endswith("/page-1234.md")
