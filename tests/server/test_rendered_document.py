"""Markdown as the page renders it: what it means, where its lines stand, and nothing that acts."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from http_process import HttpServer

from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.server.page.markdown import TooComplexError, highlight, render_markdown
from kb.server.page.render import shown_document
from kb.store.database import Database
from kb.tools.session import open_session

PIXEL = b"pixels, for all that is looked at"
PICTURES = {"img/p.png": "/picture?p"}


def render(text: str, first: int = 1, passage: tuple[int, int] = (0, 0)) -> str:
    links = {"friend.md": "/doc?friend", "Page": "/doc?page"}
    return render_markdown(
        text.split("\n"),
        first,
        passage,
        lambda url: links.get(url, url if url.startswith("https:") else None),
        PICTURES.get,
    )


def text_of(markup: str) -> str:
    """Its text without the numbers of lines, on one line."""
    shown = re.sub(r'<a class="number".*?</a>|<[^>]+>', "", markup)
    return " ".join(shown.split())


@pytest.mark.parametrize(
    ("text", "tone", "title"),
    [
        ("> [!WARNING]\n> Keep *clear*.", "warning", "Warning"),
        ("> [!note]\n> Keep *clear*.", "note", "Note"),
        ("> [!tip]- Of Obsidian\n> Keep *clear*.", "tip", "Of Obsidian"),
        ("> [!unheard-of] Titled\n> Keep *clear*.", "note", "Titled"),
        ('!!! danger "Of MkDocs"\n    Keep *clear*.', "danger", "Of MkDocs"),
        ("??? info\n    Keep *clear*.", "note", "Info"),
        (":::caution Of Docusaurus\n\nKeep *clear*.\n\n:::", "warning", "Of Docusaurus"),
        (":::tip[In brackets]\nKeep *clear*.\n:::", "tip", "In brackets"),
        ("::: {note}\nKeep *clear*.\n:::", "note", "Note"),
    ],
)
def test_callouts_of_all_kinds_are_one_kind_of_box(text: str, tone: str, title: str) -> None:
    markup = render(text)
    assert f'<div class="callout {tone}">' in markup
    assert text_of(markup) == f"{title} Keep clear."
    assert "<em>clear</em>" in markup
    assert markup.count(title) == 1


def test_a_quote_stays_a_quote() -> None:
    assert "<blockquote>" in render("> [reference]\n> and text")


def test_tables_tasks_notes_terms_and_strikes_are_rendered() -> None:
    markup = render(
        "| a | b |\n|---|---|\n| 1 | ~~2~~ |\n\n- [x] done\n- [ ] open\n\n"
        "Term\n: Meaning\n\nText[^1].\n\n[^1]: The note."
    )
    assert re.search(r'<tr id="L3">\s*<td>.*?1</td>\s*<td><s>2</s></td>', markup)
    assert text_of(markup).startswith("a b 1 2 ☑ done ☐ open Term Meaning Text[1]. The note.")
    assert '<a href="#fn1" id="fnref1">' in markup
    assert '<li id="fn1">' in markup
    assert "<dt" in markup


def test_math_stays_text_and_money_is_none() -> None:
    markup = render("Of $a_1 + b_1$ for $5 and $10.\n\n$$\n\\sum_i x_i\n$$")
    assert '<span class="math">a_1 + b_1</span> for $5 and $10.' in markup
    assert '<div class="math">\n\\sum_i x_i\n</div>' in markup


def test_code_is_coloured_line_by_line() -> None:
    markup = render('```python\ndef f():\n    """two\n    lines"""\n```', first=11)
    assert re.findall(r'class="line" id="L(\d+)"', markup) == ["12", "13", "14"]
    assert '<span class="k">def</span>' in markup
    assert markup.count('class="s"') == 2
    assert '<span class="k">' not in render("```\ndef f(): pass\n```")
    assert "unheard" in text_of(render("```unheard-of\nunheard\n```"))


def test_every_block_has_its_line_and_the_passage_is_marked() -> None:
    text = "# Top\n\nOne\ntwo.\n\n- a\n- b\n  - c\n\n```\nx\ny\n```\n"
    markup = render(text, first=101, passage=(104, 106))
    assert re.findall(r'id="L(\d+)"', markup) == [
        "101",
        "103",
        "104",
        "106",
        "107",
        "108",
        "111",
        "112",
    ]
    marked = re.findall(r'<(?:p|div|span) class="(?:line )?passage" id="L(\d+)"', markup)
    assert marked == ["103", "106"]
    assert 'href="#L108"' in markup
    markup = render(text, passage=(12, 12))
    assert re.findall(r'passage" id="L(\d+)"', markup) == ["12"]


def test_links_and_pictures_lead_where_they_may() -> None:
    markup = render(
        "[a](friend.md) [b](gone.md) <https://example.com/x> [[Page|wiki]] [[Gone]] "
        "![p](img/p.png) ![none](no.png) ![[img/p.png]] ![far](https://example.com/i.png) "
        '<img src="img/p.png" alt="raw"> <img alt="gone" src="../../x.png">'
    )
    assert re.findall(r'<a href="([^"]+)"', markup) == [
        "/doc?friend",
        "https://example.com/x",
        "/doc?page",
    ]
    assert re.findall(r'<img src="([^"]+)"', markup) == ["/picture?p"] * 3
    assert text_of(markup) == "a b https://example.com/x wiki Gone none far gone"


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<svg onload=alert(1)><style>@import 'x'</style></svg>",
        "[a](javascript:alert(1)) <javascript:alert(1)> [[javascript:alert(1)]]",
        "[a](  jAvAsCrIpT:alert(1)) [b](data:text/html,x) [c](vbscript:x)",
        '<a href="javascript:alert(1)" style="position:fixed" target=_top>x</a>',
        '<form action="/forget" method=post><button formaction=/forget>x</button><input></form>',
        '<iframe src="/"></iframe><object data=x></object><embed src=x><base href="//evil">',
        '<div id="results" class="skip ask" data-key="d" tabindex=5 accesskey=x>x</div>',
        "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
        '```"><script>alert(1)</script>\nx\n```',
        "> [!<script>] </p><script>alert(1)</script>\n> x",
        ':::note"><img src=x onerror=alert(1)>\nx\n:::',
        '![<b onclick=x>](img/p.png"onerror=alert(1))',
        "<!-- <script>alert(1)</script> -->",
        "<nav><header><main>x",
    ],
)
def test_nothing_of_a_text_acts(text: str) -> None:
    markup = render(text)
    tags = re.findall(r"<\s*/?\s*([a-zA-Z]+)", markup)
    assert set(tags) <= {
        *"a p div span code pre ul li br table b img tbody tr td blockquote".split()
    }
    attributes = re.findall(r'<[^>]*?\s([a-z-]+)="[^"]*"', markup)
    assert not [name for name in attributes if name.startswith(("on", "style", "target", "data"))]
    assert re.findall(r'href="([^"]*)"', re.sub(r'<a class="number".*?</a>', "", markup)) == []
    assert set(re.findall(r'(?<![\w-])id="([^"]*)"', markup)) <= {f"L{n}" for n in range(1, 4)}
    assert set(re.findall(r'class="([^"]*)"', markup)) <= {
        "number",
        "line",
        "callout note",
        "title",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *("[" * 90_000, "*a " * 30_000, "![[" * 30_000, "`" * 40_000 + "a", "> " * 40_000),
        *("[a](" * 20_000, "<a><b>" * 16_000, "<b><p>" * 16_000, "| a " * 20_000, "$a$" * 30_000),
        *("|a|\n|-|\n" * 12_000, ":::a\n" * 18_000, "!!! a\n" * 15_000, "- " * 45_000),
        *("[^a]: x\n" * 12_000, "[^1]" * 20_000, "a\n: b\n" * 14_000, "www.a." * 15_000),
        *("~~" * 45_000 + "a", "\\" * 90_000, "<" * 90_000, "&" * 90_000, "a_" * 45_000),
        *("```python\n" + '"\\' * 9_000 + "\n```\n", "```c\n" + " \n" * 9_000 + "```\n"),
    ],
    ids=lambda text: text[:10],
)
def test_no_text_takes_long(text: str) -> None:
    began = time.thread_time()
    with contextlib.suppress(TooComplexError):
        render(text)
    assert time.thread_time() - began < 6  # some 3 s; what has no end takes minutes


def test_a_program_is_coloured_up_to_a_size() -> None:
    assert highlight("x = 1\n", "py")[0][-1] == ("n", "1")
    assert [[text for _, text in line] for line in highlight("a\n\nb\n", "py")] == [
        ["a"],
        [],
        ["b"],
    ]
    assert highlight("x = 1\n" * 9_000, "py")[0] == [("", "x = 1")]
    assert highlight("x = 1", "csharp") == [[("", "x = 1")]]


@pytest.fixture(scope="module")
def server(windrose_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """Documents with pictures inside and outside of their folder."""
    folder = tmp_path_factory.mktemp("rendered")
    file = Path(shutil.copy(windrose_file, folder / "kb.db"))
    docs = folder / "docs"
    (docs / "sub").mkdir(parents=True)
    (docs / "img").mkdir()
    (folder / "outside.png").write_bytes(PIXEL)
    for name in ("img/a b.png", ".secret.png", "big.svg"):
        (docs / name).write_bytes(PIXEL)
    (docs / "img" / "link.png").symlink_to(folder / "outside.png")
    (docs / "notes.txt").write_text("Plain text.\n")
    (docs / "program.py").write_text('def f():\n    return "x"\n')
    (docs / "sub" / "page.md").write_text(
        "# Page\n\n![ok](../img/a%20b.png) ![up](../../outside.png) ![link](../img/link.png)\n"
        "![none](none.png) ![text](../notes.txt) [far](#below) [b](b.md#part-two)\n"
        "\n## Below\n\nEnd.\n"
    )
    (docs / "sub" / "b.md").write_text("# B\n\nText.\n\n## Part two\n\nMore.\n")
    with open_session(Database(file), project=folder) as session:
        registration = register(session.database, str(docs), include=["**/*"])
        sync_collection(session.database, registration)
    with HttpServer(file) as running:
        yield running


def document(server: HttpServer, id_: str, **fields: str) -> str:
    query = urlencode({"collection": "docs", "id": id_, **fields})
    status, _, text = server.request("GET", f"/doc?{query}")
    assert status == 200, text
    return text


def test_pictures_of_the_source_are_shown_and_no_others(server: HttpServer) -> None:
    text = document(server, "sub/page.md")
    addresses = re.findall(r'<img src="([^"]+)"', text)
    assert addresses == ["/picture?collection=docs&amp;path=img%2Fa+b.png"]
    status, headers, body = server.request("GET", addresses[0].replace("&amp;", "&"))
    assert (status, headers["content-type"]) == (200, "image/png")
    assert "pixels" in body
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert headers["x-content-type-options"] == "nosniff"
    wrong = ("../outside.png", "img/link.png", "notes.txt", "sub/page.md", "/etc/x.png", "none.png")
    for path in (*wrong, "img/%2e%2e/%2e%2e/outside.png", "img\\..\\..\\outside.png", ""):
        status, _, body = server.request(
            "GET", f"/picture?{urlencode({'collection': 'docs', 'path': path})}"
        )
        assert status in (400, 404), path
        assert "pixels" not in body


def test_a_section_of_a_link_is_looked_up_when_it_is_followed(server: HttpServer) -> None:
    text = document(server, "sub/page.md")
    for fragment, line in (("below", 6), ("part-two", 5)):
        address = re.findall(rf'href="(/doc[^"]*section={fragment})"', text)[0]
        status, headers, _ = server.request("GET", address.replace("&amp;", "&"))
        assert status == 303
        assert headers["location"].endswith(f"from={line}&to={line}#L{line}")
    status, headers, _ = server.request("GET", "/doc?collection=docs&id=sub/b.md&section=nowhere")
    assert (status, headers["location"]) == (303, "/doc?collection=docs&id=sub%2Fb.md")


def test_what_takes_long_is_shown_as_lines(
    windrose_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(id_: str) -> dict[str, Any]:
        with open_session(Database(windrose_copy)) as session:
            return shown_document(session, "windrose", id_, 0, 0, as_source=False)

    assert not shown("how-to/calibrate the vane.md")["lines"]
    monkeypatch.setattr("kb.server.page.markdown.SECONDS", 0.0)
    slow = shown("how-to/calibrate the vane.md")
    assert "takes too long to be rendered" in slow["notice"]
    assert len(slow["lines"]) == slow["total"]
    assert not slow["rendered"]


def test_what_is_no_markdown_is_shown_as_lines(server: HttpServer) -> None:
    assert 'class="lines"' in document(server, "notes.txt")
    program = document(server, "program.py")
    assert '<span class="k">def</span>' in program
    assert 'id="L2" class="line code"' in program
    source = document(server, "sub/b.md", view="source")
    assert "## Part two" in source
    assert ">Rendered</a>" in source
