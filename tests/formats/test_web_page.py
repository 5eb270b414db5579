"""What of a web page is kept, what is left out and said to be, and where its links lead."""

from __future__ import annotations

import pytest
from support import Filler

from kb.formats.chunk import chunk
from kb.formats.convert.address import saved_address
from kb.formats.convert.completeness import SOURCES, words
from kb.formats.convert.page import convert
from kb.formats.parse import parse_converted
from kb.models.tokens import load_tokenizer
from kb.store.citation_graph import citation_graph, links_and_states

PROSE = "A rope that bears a load is checked before each watch, by day and by night. " * 6


def text_of(body: str, head: str = "") -> str:
    page = f"<!doctype html><html><head>{head}</head><body>{body}</body></html>"
    return convert(page.encode(), "page.html").text


def left_out(body: str) -> dict[str, int]:
    return convert(f"<body>{body}</body>".encode(), "page.html").left_out


@pytest.mark.parametrize("unit", ["<div>", "<ul><li>", "<blockquote>", "<table><tr><td>", "<b>"])
@pytest.mark.parametrize("depth", [300, 400, 3_000])
def test_text_is_kept_at_any_depth(unit: str, depth: int) -> None:
    page = f"<h1>Ropes</h1>{unit * depth}Deepest knot</div><p>Behind it".encode()
    converted = convert(page, "page.html")
    passages = chunk(converted.text, parse_converted(converted, "page.html"), load_tokenizer())
    text = " ".join(converted.text[one.start_character : one.end_character] for one in passages)
    assert ("Deepest knot" in text, "Behind it" in text) == (True, True)


def test_attributes_cost_the_same_each_however_many_they_are() -> None:
    # Lexbor compares each with all others: 40,000 took 5 s, a million would take an hour.
    attributes = " ".join(f'data-{number}="a > b"' for number in range(1_000_000))
    text = text_of(f'<p class="note" {attributes}>Bend</p><p title="unclosed>Hitch</p>')
    assert text == "Bend\n"


SAVED = f"""
<div id="cookie-banner"><h2>Your privacy</h2><p>We use cookies and the like to serve you
better.</p><button>Accept all</button></div>
<div class="top-menu"><ul><li><a href="/">Home</a></li><li><a href="/shop">Shop</a></li></ul></div>
<ul class="lang-switcher"><li><a href="/de">Deutsch</a><li><a href="/fr">Français</a></ul>
<div id="wrap"><h1>Ropes</h1><p>{PROSE}</p><aside><p>Tarred hemp, says the bosun, is no
better.</p></aside><div class="share-bar"><a href="/t">Tweet</a></div></div>
<div class="page-footer">Imprint of the chandlery</div>
"""


def test_an_article_is_left_of_a_saved_page_and_what_went_is_counted_by_its_reason() -> None:
    text = text_of(SAVED)
    assert text.startswith("# Ropes\n")
    assert text.rstrip().endswith("no\nbetter.")
    assert list(left_out(SAVED)) == [
        "cookie notice",
        "navigation",
        "language list",
        "sharing links",
        "page header and footer",
    ]
    assert left_out(SAVED)["cookie notice"] == 14


@pytest.mark.parametrize(
    "around",
    [
        "<div><a href=/>Home</a> <a href=/a>Knots</a> <a href=/b>Shop</a></div>",
        "<p>This site uses cookies. <a href=/c>More</a></p>",
        "<div>Wir verwenden Cookies, um die Seite zu verbessern.<button>OK</button></div>",
        "<nav>Menu <ul><li><a href=/>Home</a></ul></nav>",
        "<header><a href=/>The Chandlery</a></header>",
        "<div role=banner>The Chandlery</div>",
        "<a class=skip-link href=#main>Skip to content</a>",
        "<form action=/s><input name=q><button>Search</button></form>",
        '<div style="display:none">Loading</div>',
    ],
)
def test_what_surrounds_an_article_goes_without_a_name_too(around: str) -> None:
    page = f"{around}<div><h1>Ropes</h1><p>{PROSE}</p></div>"
    assert text_of(page) == f"# Ropes\n\n{PROSE.strip()}\n"
    assert sum(left_out(page).values()) > 0


@pytest.mark.parametrize(
    "part",
    [
        '<section id="cookies"><h2>Cookies</h2><p>Each is signed. We use cookies here.</p>',
        '<div id="share"><h2>Share</h2><p>Splits a price.</p></div>',
        '<div class="language-sh"><pre>ls</pre></div>',
        f'<form id="aspnet">{PROSE}</form>',
        f'<div class="sidebar"><p>{PROSE}</p></div>',
        f'<div style="display:none" class="tab">{PROSE}</div>',
        f"<nav><p>{PROSE}{PROSE}</p></nav>",
        "<article><header>By Ada, in May</header><p>Text.</p><footer>Ada keeps ropes</footer>",
        "<h2><button>Unfolds</button></h2><p>Text.</p>",
        '<p>See <a href="a">A</a>, <a href="b">B</a> and <a href="c">C</a> there.</p>',
        "<details><summary>More</summary><p>Inner</p></details>",
        "<dl><dt>Bend</dt><dd>Joins two ropes</dd></dl>",
        "<p>Drawn: <svg><text>Label</text></svg></p>",
    ],
)
def test_content_is_kept_whatever_it_is_called(part: str) -> None:
    page = f"<nav><a href=/>Home</a></nav><main><h1>Ropes</h1><p>{PROSE}</p>{part}</main>"
    assert left_out(page) == {"navigation": 1}
    assert set(words(SOURCES["page"](part.encode()))) <= set(words(text_of(page)))


def test_a_page_that_lists_others_keeps_its_list() -> None:
    links = "".join(f'<li><a href="ch{n}.html#s">Chapter {n} on ropes</a>' for n in range(30))
    assert text_of(f'<h1>Manual</h1><div class="toc"><ul>{links}</ul></div>').count("Chapter") == 30


def test_contents_of_the_page_itself_go() -> None:
    links = "".join(f'<li><a href="#s{n}">Part {n}</a>' for n in range(9))
    page = f'<h1>Ropes</h1><div class="toc"><ul>{links}</ul></div><p>{PROSE}</p>'
    assert left_out(page) == {"table of contents": 18}


@pytest.mark.parametrize(
    ("heading", "line"),
    [
        ('<h2 id="k">Knots<a class="headerlink" href="#k">¶</a></h2>', "## Knots {#k}"),
        ('<h2 id="knots">Knots <a href="#knots">#</a></h2>', "## Knots"),
        ('<h2>C# <a href="#c"><svg><path/></svg></a></h2>', "## C#"),
        ("<h2>Knots 🔗</h2>", "## Knots"),
        ("<h2>Knots {#tied}</h2>", "## Knots {#tied}"),
        ('<h2 id="tied">Knots {: #knots .x}</h2>', "## Knots {#tied}"),
        ('<h2>Knots [<a href="/w?action=edit">edit</a>]</h2>', "## Knots"),
        (
            '<h2><span id="Nœuds">Nœuds</span> <span>[<a href="/w?veaction=edit">modifier</a> | '
            '<a href="/w?action=edit">modifier le code</a>]</span></h2>',
            "## Nœuds",
        ),
        ('<h2><a href="#k">Knots</a> [RFC 1]</h2>', "## Knots \\[RFC 1\\]"),
    ],
)
def test_a_heading_is_its_own_words(heading: str, line: str) -> None:
    converted = convert(f"<h1>Ropes</h1>{heading}<p>{PROSE}</p>".encode(), "a.html")
    assert converted.text.split("\n")[2] == line
    shown = parse_converted(converted, "a.html").sections[1].heading
    assert not [mark for mark in ("¶", "{", "edit", "modifier", "🔗") if mark in shown]


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("<math><mfrac><mi>a</mi><mi>b</mi></mfrac></math>", "a/b"),
        ('<math alttext="\\frac{a}{b}"><mi>a</mi></math>', "$\\frac{a}{b}$"),
        (
            '<span class="katex"><span class="katex-mathml"><math><semantics><mi>x</mi><annotation '
            'encoding="application/x-tex">x_1 &lt; y</annotation></semantics></math></span>'
            '<span class="katex-html" aria-hidden="true">x1</span></span>',
            "$x_1 < y$",
        ),
        (
            '<span class="mwe-math-element"><span style="display: none;"><math alttext='
            '"{\\displaystyle x^{2}}"><mi>x</mi></math></span><img alt="x^2"></span>',
            "$x^{2}$",
        ),
        ('<script type="math/tex; mode=display">\\sum_i x_i</script>', "$$\\sum_i x_i$$"),
    ],
)
def test_a_formula_is_written_once_as_latex_if_the_page_has_it(formula: str, text: str) -> None:
    assert text_of(f"<h1>Load</h1><p>It is {formula} here. {PROSE}") == (
        f"# Load\n\nIt is {text} here. {PROSE.strip()}\n"
    )


def test_tables_that_lay_out_a_page_are_its_blocks_and_others_tables() -> None:
    data = "<table><tr><th>Rope</th><th>Load</th></tr><tr><td>Hemp</td><td>9</td></tr></table>"
    page = (
        f"<table><tr><td><h2>Left</h2><p>One</p></td><td>{data}<pre>x = 1\ny = 2</pre></td></tr>"
        "</table><table class=highlighttable><tr><td class=linenos><pre>1\n2</pre></td><td>"
        "<pre>a\nb</pre></td></tr></table>"
    )
    assert text_of(f"<h1>Ropes</h1>{page}") == (
        "# Ropes\n\n## Left\n\nOne\n\n| Rope | Load |\n| --- | --- |\n| Hemp | 9 |\n\n"
        "```\nx = 1\ny = 2\n```\n\n```\na\nb\n```\n"
    )


def test_sections_that_are_points_of_a_list_are_sections() -> None:
    items = "".join(f"<li><section><h3>{name}</h3><ul><li>a</ul></section>" for name in ("A", "B"))
    assert text_of(f"<h1>Ropes</h1><ul>{items}</ul>") == "# Ropes\n\n### A\n\n- a\n\n### B\n\n- a\n"


def test_links_are_resolved_from_the_address_of_the_page() -> None:
    page = (
        '<p><a href="b.html#x">b</a> <a href="#y">y</a> <a href="https://x.example/a#z">z</a></p>'
    )
    text = convert(page.encode(), "https://x.example/a").text
    assert text == "[b](https://x.example/b.html#x) [y](#y) [z](#z)\n"


CANONICAL = '<link href="https://x.example/wiki/Ropes" rel="canonical">'


@pytest.mark.parametrize(
    ("page", "address"),
    [
        (CANONICAL, "https://x.example/wiki/Ropes"),
        ('<META content="https://x.example/o?a=1&amp;b=2" property=og:url>', "https://x.example/o?a=1&b=2"),
        (f'<meta property="og:url" content="https://x.example/o">{CANONICAL}', "https://x.example/wiki/Ropes"),
        ("<!-- saved from url=(0021)https://x.example/s -->", "https://x.example/s"),
        ("<!--\n Page saved with SingleFile \n url: https://x.example/f \n-->", "https://x.example/f"),
        (f'{CANONICAL}<a href="knots.html">', ""),  # beside it: the page is one of a tree
        (f'{CANONICAL}<a href="/sub/../knots.html#a">', ""),
        ('<!-- saved from url=(1)https://x.example/s --><a href="knots.html">', "https://x.example/s"),
        (f'{CANONICAL}<a href="page.html"><a href="../../knots.html.bak">', "https://x.example/wiki/Ropes"),
        ('<link rel="canonical" href="/wiki/Ropes">', ""),
        ('<link rel="canonical" href="https://[x/">', ""),
        ("<!-- saved from url=(0014)about:internet -->", ""),
    ],
)  # fmt: skip
def test_a_saved_page_tells_its_address(page: str, address: str) -> None:
    files = ("page.html", "knots.html")
    assert saved_address(page.encode(), "page.html", files.__contains__) == address


def test_links_of_a_saved_page_lead_to_the_web_and_links_to_its_address_to_it(
    fill: Filler,
) -> None:
    kb = fill(
        {
            "saved/Ropes of old.html": f"{CANONICAL}<h1>Ropes</h1><p>{PROSE} See "
            '<a href="/wiki/Knots">k</a>, <a href="Hitches">h</a>, <a href="#load">l</a>',
            "note.md": "See [ropes](https://x.example/wiki/Ropes).\n",
            "site/a.html": f'{CANONICAL}<p>{PROSE} <a href="b.html">b</a> <a href="c.html">c</a>',
            "site/b.html": f"<p>{PROSE}",
        },
        embed=False,
    )
    with kb.database.read() as connection:
        assert [one.target for one in links_and_states(connection)[0]] == ["c.html"]
        edges = citation_graph(connection, None).edges
    ropes = "docs/saved/Ropes of old.html"
    assert sorted((edge.source, edge.target) for edge in edges) == [
        ("docs/note.md", ropes),
        (ropes, "https://x.example/wiki/Hitches"),
        (ropes, "https://x.example/wiki/Knots"),
        ("docs/site/a.html", "docs/site/b.html"),
        ("docs/site/a.html", "docs/site/c.html"),
    ]
