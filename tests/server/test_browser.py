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
from support import ROOT
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
    # That a page answers 404 is what some tests want to see.
    opened.on("console", lambda one: "404" in one.text or complaints.append(one.text))
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
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:  # under their documents, which come in the order of their best rows
        groups.setdefault(f"{row['collection']}/{row['documentId']}", []).append(row)
    assert page.locator(".results > li > .place").all_inner_texts() == [*groups]
    assert len(groups) < len(rows)
    rows = [row for group in groups.values() for row in group]
    shown = [text.partition(" ·")[0] for text in page.locator(".result > .place").all_inner_texts()]
    assert shown == [
        f"{row['documentId'].split('/')[-1]}:{row['startLine']}–{row['endLine']}" for row in rows
    ]
    scores = [float(text.split()[0]) for text in page.locator(".score").all_inner_texts()]
    assert scores == [round(row["relevanceScore"], 2) for row in rows]
    marked = {text.lower() for text in page.locator(".result mark").all_inner_texts()}
    assert "vane" in marked


def test_what_is_nowhere_has_the_nearest_and_no_query_what_is_new(page: Any) -> None:
    page.goto("/?q=how+do+I+bake+sourdough+bread")
    assert "Nothing likely" in page.locator(".empty").inner_text()
    assert 1 <= page.locator(".results > li").count() <= 3
    page.goto("/?q=%2Bxylophonist&c=windrose")
    assert "Nothing found" in page.locator(".empty").inner_text()
    page.click("a:text('Search all collections')")
    page.wait_for_url("**/?q=%2Bxylophonist")
    page.goto("/")
    new = page.locator(".recent a").first
    title = new.inner_text()
    new.click()
    page.wait_for_selector("article")
    assert title in page.locator("h1").first.inner_text()


AXE = ROOT / "tests" / "assistants" / "node" / "node_modules" / "axe-core" / "axe.min.js"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
ADDRESSES = (
    *("/", "/?q=vane", "/?q=how+do+I+bake+sourdough+bread", "/?q=%2Bxylophonist"),
    *(
        "/doc?collection=windrose&id=how-to%2Fcalibrate+the+vane.md&from=14&to=26",
        "/doc?collection=windrose&id=how-to%2Fcalibrate+the+vane.md&view=source&from=14",
        "/doc?collection=windrose&id=reference%2Ferror-messages.md",
        "/doc?collection=odd&id=a+%22b%22+%26+%3Cc%3E.md",
        "/doc?collection=odd&id=callouts.md",
    ),
    *("/graph", "/collections", "/collection?name=windrose", "/activity", "/discoveries"),
    "/collection?name=nothing",
)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_every_page_is_accessible_and_fits_the_screen(page: Any, width: int, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is missing: run scripts/foreign-clients")
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    for address in ADDRESSES:
        if (wanted := page.goto(address).status) != 200:
            assert (address, wanted) == ("/collection?name=nothing", 404)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        assert page.locator("h1").count() >= 1, address
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate(
            "levels => axe.run({ runOnly: levels }).then(done => done.violations.map("
            "rule => [rule.id, rule.nodes.map(node => node.html + node.failureSummary)]))",
            LEVELS,
        )
        assert found == [], address


def press(page: Any, key: str) -> None:
    """Press a key once the page's script listens: text is shown before its script has run."""
    page.wait_for_load_state("load")
    page.keyboard.press(key)


def test_who_has_no_token_is_asked_for_it(browser: Any, file: Path) -> None:
    token = "correct-horse-battery-staple"
    with HttpServer(file, KB_TOKEN=token) as server:
        context = browser.new_context(base_url=f"http://127.0.0.1:{server.port}")
        page = context.new_page()
        assert page.goto("/?q=vane").status == 401
        if AXE.is_file():
            page.evaluate(AXE.read_text(encoding="utf-8"))
            found = "levels => axe.run({ runOnly: levels }).then(done => done.violations)"
            assert page.evaluate(found, LEVELS) == []
        page.fill("input[name=token]", "a-wrong-one")
        press(page, "Enter")
        page.wait_for_selector("[role=alert]")
        page.fill("input[name=token]", token)
        press(page, "Enter")
        page.wait_for_selector(".result")
        assert page.url.endswith("/?q=vane")
        context.close()


def test_the_keyboard_leads_from_the_question_to_the_marked_passage(page: Any) -> None:
    page.goto("/?q=E417")
    page.wait_for_selector(".result")
    press(page, "ArrowDown")
    place = page.evaluate("document.activeElement.querySelector('.place').innerText")
    first, last = map(int, re.findall(r":(\d+)–(\d+)", place)[0])
    press(page, "Enter")
    page.wait_for_selector(".passage")
    marked = "[...document.querySelectorAll('.passage')].map(one => +one.id.slice(1))"
    lines = page.evaluate(marked)
    assert lines[0] == first
    assert set(lines) <= set(range(first, last + 1))
    # The page is there before it has been moved to the passage.
    page.wait_for_function(
        """() => {
            const top = document.querySelector(".passage").getBoundingClientRect().top;
            return 0 < top && top < innerHeight;
        }"""
    )
    assert "E417" in "".join(page.locator(".passage").all_inner_texts())
    press(page, "s")  # the source, line by line
    page.wait_for_selector(".lines .passage")
    assert page.evaluate(marked) == list(range(first, last + 1))
    press(page, "s")
    page.wait_for_selector(".rendered .passage")
    numbers = page.locator(".rendered .number:visible")
    edges = numbers.evaluate_all("all => all.map(one => Math.round(one.getBoundingClientRect().x))")
    assert len(set(edges)) == 1  # in the margin, also those of code
    press(page, "/")
    assert page.evaluate("document.activeElement.name") == "q"
    press(page, "Escape")
    press(page, "?")
    assert page.locator("#keys").is_visible()
    press(page, "Escape")
    press(page, "c")
    page.wait_for_url("**/collections")


def test_the_outline_and_the_citations_lead_on(page: Any) -> None:
    page.goto("/doc?collection=windrose&id=how-to%2Fcalibrate+the+vane.md")
    page.click(".outline a:text('If storing fails')")
    line = page.evaluate("location.hash")
    heading = page.locator(line)
    assert "If storing fails" in heading.inner_text()
    assert 0 < heading.bounding_box()["y"] < 300
    page.click(".citations:has(summary:text('Cited by')) a >> nth=0")
    page.wait_for_selector(".passage")
    assert "calibrate" in page.locator(".passage").inner_text().lower()
    assert page.locator(page.evaluate("location.hash")).count() == 1


def test_no_document_runs_a_script(page: Any) -> None:
    hostile = "/doc?collection=odd&id=a+%22b%22+%26+%3Cc%3E.md"
    for path in (
        "/?q=zebra",
        hostile,
        f"{hostile}&view=source",
        "/graph",
        "/discoveries",
        "/collection?name=odd",
    ):
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
    press(page, "Enter")
    assert chosen(page) == vane
    assert page.locator(".about h2").inner_text() == "Calibrate the vane"
    said = page.locator(".about q").all_inner_texts()
    assert any("vane" in text for text in said)  # the citing sentences
    x, y = screen_place(page, vane)
    assert 0 < x < 1280
    assert 0 < y < 800

    page.click(".zoom button[value='0']")
    press(page, "Escape")
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


def test_on_a_small_screen_the_graphs_panels_are_folded(page: Any) -> None:
    page.set_viewport_size({"width": 375, "height": 700})
    page.goto("/graph")
    assert not page.locator(".legend label").first.is_visible()
    assert not page.locator(".about").is_visible()
    page.fill(".graph input[type=search]", "calibrate the vane")
    press(page, "Enter")
    assert page.locator(".about h2").inner_text() == "Calibrate the vane"
    page.click(".legend summary")
    assert page.locator(".legend label").first.is_visible()


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
    press(page, "Enter")
    assert chosen(page).endswith("/page-1234.md")
