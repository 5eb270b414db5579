"""Pages at http addresses: from an address to searched, changed and synced again."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sources.web_server import Site, serving
from support import call

from kb.errors import SourceError
from kb.formats.convert.page import convert
from kb.formats.parse import accepts
from kb.ingest.report import SyncReport
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.sources import captured
from kb.sources.captured import document_path
from kb.tools.session import Session

PAGE = """<html><head><title>{0} - The Site</title></head><body>
<nav><a href="/">Home of everything</a></nav>
<main><h1>{0}</h1><p>The {0} is a mineral with a lustre of its own, found in many valleys,
where it lies between other stones that nobody has asked about so far.</p>
<h2>Uses</h2><p>It is ground. See <a href="../about.html">the other page</a> and the table.</p>
<table><tr><th>hardness</th></tr><tr><td>seven</td></tr></table></main>
<footer>Imprint and cookies</footer></body></html>"""


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


def add(kb: Session, source: str) -> SyncReport:
    registration = register(kb.database, source, settings={"allow_private": True})
    return sync_collection(kb.database, registration)


def sync(kb: Session) -> SyncReport:
    with kb.database.read() as connection:
        (row,) = kb.names.collections(connection)
    return sync_collection(kb.database, row)


def found(kb: Session, query: str) -> dict[str, Any]:
    row: dict[str, Any] = call(kb, "documents_search", query=query)["results"][0]
    return row


def paths(kb: Session) -> list[str]:
    (row,) = call(kb, "documents_list_collections")["collections"]
    listed = call(kb, "documents_list_documents", collection=row["collection"])["documents"]
    return [row["id"] for row in listed]


def test_a_page_is_its_article_with_address_and_date(kb: Session, site: Site) -> None:
    site.put("/stones/quartz", PAGE.format("Quartz"))
    assert add(kb, f"{site.url}/stones/quartz#uses").added == 1
    row = found(kb, "hardness of quartz")
    assert (row["collection"], row["documentId"]) == ("quartz", "stones/quartz.html")
    assert (row["url"], row["documentTitle"]) == (f"{site.url}/stones/quartz", "Quartz")
    document = call(kb, "documents_get_document", collection="quartz", document=row["documentId"])
    assert f"[the other page]({site.url}/about.html)" in document["content"]
    assert not [word for word in ("Home of", "Imprint") if word in document["content"]]
    with kb.database.read() as connection:
        stored = connection.rows("document", collection_id=1, path="stones/quartz.html")[0]
    about = json.loads(stored["metadata"])["archive"]
    assert (about["source"], about["urls"], len(about["date"])) == (
        "url-content",
        [f"{site.url}/stones/quartz"],
        10,
    )
    site.asked.clear()
    assert (sync(kb).unchanged, site.asked) == (1, [("/stones/quartz", 304)])
    site.put("/stones/quartz", PAGE.format("Felspar"))
    assert (sync(kb).updated, found(kb, "felspar")["documentTitle"]) == (1, "Felspar")
    del site.pages["/stones/quartz"]
    with pytest.raises(SourceError, match=r"no such page \(404\)"):
        sync(kb)
    assert found(kb, "felspar")["documentTitle"] == "Felspar"


@pytest.mark.parametrize("packed", [False, True])
def test_a_sitemap_is_its_pages(kb: Session, site: Site, packed: bool) -> None:
    places = ["/a", "/b/", "/closed/x", "/gone", "/a", "/picture.png"]
    listed = "".join(f"<url><loc>{site.url}{place}</loc></url>" for place in places)
    listed += "<url><loc>https://elsewhere.example/x</loc></url><url><loc>nonsense</loc></url>"
    space = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    inner = f'<?xml version="1.0"?><urlset {space}>{listed}</urlset>'.encode()
    name = "/inner.xml.gz" if packed else "/inner.xml"
    data = gzip.compress(inner) if packed else inner
    site.put(name, data, "application/gzip" if packed else "application/xml")
    outer = f"<sitemapindex {space}><sitemap><loc>{site.url}{name}</loc></sitemap></sitemapindex>"
    site.put("/sitemap.xml", outer, "application/xml")
    site.put("/robots.txt", "User-agent: *\nDisallow: /closed/\n", "text/plain")
    site.put("/a", PAGE.format("Agate"))
    site.put("/b/", PAGE.format("Beryl"))
    site.put("/closed/x", PAGE.format("Closed"))
    site.put("/picture.png", b"\x89PNG", "image/png")
    report = add(kb, f"{site.url}/sitemap.xml")
    assert paths(kb) == ["a.html", "b/index.html"]
    assert sorted(one["path"] for one in report.errors) == ["gone.html", "picture.png.html"]
    told = " ".join(one["message"] for one in report.notices)
    assert "1 page of other hosts" in told
    assert "1 page that robots.txt closes" in told
    assert "/closed/x" not in dict(site.asked)
    site.asked.clear()
    site.put("/a", PAGE.format("Amber"))
    report = sync(kb)
    assert (report.updated, report.unchanged, dict(site.asked)["/b/"]) == (1, 1, 304)


def test_a_list_for_language_models_is_its_pages(kb: Session, site: Site) -> None:
    listed = "# Stones\n\n- [A](a.md): agate\n- [B](/b.md)\n- [C](https://[::1/c)\n"
    site.put("/docs/llms.txt", listed, "text/plain")
    site.put("/docs/a.md", "# Agate\n\nThe agate.\n", "text/plain")
    site.put("/b.md", "# Beryl\n\nThe beryl.\n", "text/markdown")
    assert add(kb, f"{site.url}/docs/llms.txt").errors == []
    assert paths(kb) == ["b.md", "docs/a.md", "docs/llms.txt"]


def test_a_site_that_cannot_say_what_is_open_is_left_alone(kb: Session, site: Site) -> None:
    def fails(handler: Any) -> None:
        handler.send_response(500)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    site.pages["/robots.txt"] = fails
    site.put("/llms.txt", "[a](/a.md)", "text/plain")
    report = add(kb, f"{site.url}/llms.txt")
    assert (report.is_stored, "robots.txt closes" in str(report.notices)) == (False, True)


def test_pages_are_bounded(kb: Session, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "MOST_PAGES", 3)
    links = "".join(f"[x](/{number}.md)" for number in range(9))
    site.put("/llms.txt", links, "text/plain")
    for number in range(9):
        site.put(f"/{number}.md", "# Page\n", "text/markdown")
    report = add(kb, f"{site.url}/llms.txt")
    assert (report.added, "first 3 pages" in str(report.notices)) == (3, True)


def test_addresses_that_are_looked_at_are_bounded(
    kb: Session, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured, "MOST_LISTED", 3)
    links = "[x](https://elsewhere.example/1)[x](/2.md)[x](/3.md)"
    site.put("/llms.txt", links, "text/plain")
    for number in (2, 3):
        site.put(f"/{number}.md", "# Page\n", "text/markdown")
    report = add(kb, f"{site.url}/llms.txt")
    assert paths(kb) == ["2.md", "llms.txt"]
    told = " ".join(one["message"] for one in report.notices)
    assert "only the first 3 addresses are looked at" in told
    assert "1 page of other hosts" in told


def test_a_malformed_address_in_an_index_of_sitemaps_costs_itself(kb: Session, site: Site) -> None:
    inner = f"<urlset><url><loc>{site.url}/a</loc></url></urlset>"
    listed = "".join(
        f"<sitemap><loc>{place}</loc></sitemap>"
        for place in ("http://[::1/x.xml", f"{site.url}/a b.xml", f"{site.url}/inner.xml")
    )
    site.put("/sitemap.xml", f"<sitemapindex>{listed}</sitemapindex>", "application/xml")
    site.put("/inner.xml", inner, "application/xml")
    site.put("/a", PAGE.format("Agate"))
    report = add(kb, f"{site.url}/sitemap.xml")
    assert paths(kb) == ["a.html"]
    assert "2 pages whose addresses are malformed" in str(report.notices)


def test_a_sitemap_with_entities_is_none(kb: Session, site: Site) -> None:
    bomb = '<!DOCTYPE urlset [<!ENTITY a "aaaa">]><urlset><url><loc>&a;</loc></url></urlset>'
    site.put("/sitemap.xml", bomb, "application/xml")
    with pytest.raises(SourceError, match="neither a page"):
        add(kb, f"{site.url}/sitemap.xml")


def test_another_document_is_taken_by_its_type(kb: Session, site: Site) -> None:
    source = Path(__file__).parents[2] / "fixtures" / "formats"
    pdf = next(source.rglob("*.pdf")).read_bytes()
    site.put("/download?id=7", pdf, "application/pdf")
    assert add(kb, f"{site.url}/download?id=7").added == 1
    (path,) = paths(kb)
    assert path.startswith("download-id=7-")
    assert path.endswith(".pdf")


@pytest.mark.parametrize(
    ("url", "media_type", "path"),
    [
        ("https://x/", "text/html", "index.html"),
        ("https://x/a/", "text/html", "a/index.html"),
        ("https://x/a.php", "text/html", "a.php.html"),
        ("https://x/A.HTM", "text/html", "A.HTM"),
        ("https://x/readme.md", "text/plain", "readme.md"),
        ("https://x/readme", "text/plain", "readme.txt"),
        ("https://x/a%2f..%2f..%2fetc/passwd", "text/plain", "a/etc/passwd.txt"),
        ("https://x/a%5C..%5Cb", "text/plain", "a-..-b.txt"),
        ("https://x/c:/b", "text/plain", "c-/b.txt"),
        ("https://x/a.png", "image/png", ""),
        ("https://x/a", "", ""),
    ],
)
def test_a_document_is_called_by_its_address(url: str, media_type: str, path: str) -> None:
    assert document_path(url, media_type, accepts) == path


def test_pages_go_into_the_archive_of_pages_too(
    kb: Session, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "captured"
    archive.mkdir()
    monkeypatch.setenv("URL_CONTENT_ARCHIVE_PATH", str(archive))
    site.put("/quartz", PAGE.format("Quartz"))
    add(kb, f"{site.url}/quartz")
    place = archive / hashlib.md5(f"{site.url}/quartz".encode()).hexdigest()
    assert json.loads((place / "metadata.json").read_text())["url"] == f"{site.url}/quartz"
    assert (place / "content.md").read_text().startswith("# Quartz")
    rows = call(kb, "searchLocalArchives", query="quartz")["results"]
    document = next(one["document"] for one in rows if one["document"]["source"] == "url-content")
    assert document["url"] == f"{site.url}/quartz"


def test_an_article_is_found_where_nothing_marks_it() -> None:
    parts = "".join(
        f"<h2>Part {number}</h2><p>{f'Granite {number} of the valley, its grain. ' * 4}</p>"
        f"<table><tr><th>a</th></tr><tr><td>cell {number}</td></tr></table>"
        for number in range(6)
    )
    others = "".join(f'<div><a href="/p{n}">Another story number {n}</a></div>' for n in range(30))
    page = (
        f"<html><head><title>Granite - The Site</title></head><body><div>Subscribe now</div>"
        f"<div class=w><div class=c1><div><h1>Granite</h1></div><div>{parts}</div></div>"
        f"<div class=c2><h3>Popular</h3>{others}</div></div><div>Copyright</div></body></html>"
    )
    converted = convert(page.encode(), "https://example.com/x")
    assert converted.title == "Granite"
    assert [f"## Part {n}" in converted.text for n in (0, 5)] == [True, True]
    assert "cell 5" in converted.text
    assert not [word for word in ("Subscribe", "Popular", "Copyright") if word in converted.text]


def test_sections_of_short_items_belong_to_their_chapter() -> None:
    def section(title: str, text: str) -> str:
        return f"<div class=section><h2 id=s>{title}</h2>{text}</div>"

    prose = "".join(f"<p>{f'Of quarry {n}, its granite and its grain. ' * 4}</p>" for n in range(4))
    items = f"<ul>{'<li>One saw, wet</li>' * 60}</ul>"
    contents = "".join(f'<li><a href="a.html#s{n}">Part {n}</a></li>' for n in range(9))
    sections = section("Tools", items) + section("Splitting", prose) + section("Polishing", items)
    chapter = f"<div class=chapter><h1>Granite</h1><ul>{contents}</ul>{sections}</div>"
    comments = f'<div class="page-comments"><h2>Answers</h2>{"<p>Never seen.</p>" * 40}</div>'
    page = f"<html><title>Granite</title><body><div>{chapter}</div>{comments}</body></html>"
    text = convert(page.encode(), "https://example.com/a.html").text
    headings = [line.split(" {")[0] for line in text.split("\n") if line.startswith("#")]
    assert headings == ["# Granite", "## Tools", "## Splitting", "## Polishing"]
