"""A link is resolved, external, not in the tree, or broken: only what is broken is called so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import Filler

from kb.cli.read import to_sarif
from kb.formats.parse import parse
from kb.formats.sites import PageAnchors, Settings
from kb.store.citation_graph import citation_graph, link_states, links_and_states
from kb.store.database import Database
from kb.tools.session import Session, open_session


def states(kb: Session, state: str = "") -> list[tuple[str, str, str]]:
    """Document, link and state of all links but those to the web, or those in one state."""
    with kb.database.read() as connection:
        rows = link_states(connection)
    listed = [(row["path"], row["target_url"], row["state"]) for row in rows]
    return [row for row in listed if "://" not in row[1] and state in ("", row[2])]


def links(kb: Session, state: str) -> list[str]:
    return [url for _, url, _ in states(kb, state)]


def targets(kb: Session) -> dict[str, str | None]:
    with kb.database.read() as connection:
        rows = connection.apsw.execute(
            "SELECT target_url, documents.path FROM citations"
            " LEFT JOIN documents ON document_id = target_document_id"
        )
        return dict(rows)


# Obsidian


def test_a_vault_finds_any_file_by_its_name(fill: Filler) -> None:
    kb = fill(
        {
            "notes/m.md": "![[map.png]] ![[Map.PNG|100]] ![[pin.svg#icon]] [[Plan.canvas]]\n"
            "[[Books.base#Read]] ![[gone.png]] [[Gone.canvas]] [[Attachments/map.png]]\n",
            "Attachments/map.png": b"x",
            "Attachments/icons/pin.svg": b"x",
            "Plan.canvas": "{}",
            "Books.base": "views: []",
        },
        embed=False,
    )
    assert links(kb, "broken") == ["gone.png", "Gone.canvas"]


def test_a_picture_that_comes_or_goes_changes_the_state_with_the_next_sync(
    fill: Filler,
) -> None:
    kb = fill({"a.md": "![[map.png]] <img src='b.png'>"}, embed=False)
    assert links(kb, "broken") == ["map.png", "b.png"]
    kb = fill({"deep/map.png": b"x", "b.png": b"x"}, embed=False)
    assert links(kb, "broken") == []


def test_missing_sections_and_blocks_are_broken(fill: Filler) -> None:
    kb = fill(
        {
            "a.md": "# One\n\n[x](Setup.md#nope) [x](#gone) [[#Gone]] [[Setup#^nope]]\n"
            "[x](Setup.md#install-1) [x](#one) [[#One]] [[Setup#^b1]] [[Setup#Install#Linux 2]]\n"
            "[x](Setup.md#install-2) [x](Setup.md#top) [x](#) [x](Setup.md#Custom) [x](#named)\n"
            '<a name="named"></a> [x](#written) <p id="written">\n'
            "[[Setup#With $x^2$ in it]] [[Setup#No $x^2$]]\n",
            "Setup.md": "# Install\n\n## Linux (2)\n\nA line. ^b1\n\n# Install\n\n## X {#custom}\n"
            "\n## With $x^2$ in it\n",
        },
        embed=False,
    )
    assert links(kb, "broken") == [
        *("Setup.md#nope", "#gone", "#Gone", "Setup#^nope"),
        *("Setup.md#install-2", "Setup#No $x^2$"),
    ]
    with kb.database.read() as connection:
        assert {link.missing for link in links_and_states(connection)[0]} == {"section"}


@pytest.mark.parametrize(
    ("name", "text", "fragments"),
    [
        ("t.md", "# A & B_c\n\n# Où 2.0?\n", "a--b_c où-20"),
        ("t.md", "# Equal\n\n# Equal\n\n# Equal\n", "equal equal-1 equal-2"),
        (
            "t.md",
            "# `code()` [x](t.md)\n\n[](){#at}\n\n(my-label)=\n\n## Z\n",
            "code-x at my-label z",
        ),
        ("t.md", "1. # In a list\n\n<h2>In HTML</h2>\n", "in-a-list in-html"),
        ("t.rst", ".. _My Label:\n\nA Title\n=======\n\n`_inner`\n", "a-title my-label"),
        ("t.adoc", "= T\n\n[[one]]\n== First Part\n\n[#two]\n== B\n\nanchor:x[]\n", "one two x"),
        ("t.adoc", "= T\n\n== First Part\n\n== First Part\n", "_first_part _first_part_2"),
        ("t.org", "* A heading\n:PROPERTIES:\n:CUSTOM_ID: cid\n:END:\n<<tgt>>\n", "cid tgt"),
    ],
)
def test_anchors_follow_the_rules_of_each_generator(
    fill: Filler, name: str, text: str, fragments: str
) -> None:
    linking = " ".join(f"[x]({name}#{part})" for part in fragments.split())
    kb = fill({name: text, "a.md": f"{linking} [x]({name}#nowhere)"}, embed=False)
    assert links(kb, "broken") == [f"{name}#nowhere"]


@pytest.mark.parametrize(
    ("config", "fragments"),
    [
        ("mkdocs.yml", "a-b_c ou-20 equal_1"),
        (".vitepress/config.ts", "a-b-c ou-2-0 equal-1"),
        ("_config.yml", "a--bc o-20"),
        (".gitlab-ci.yml", "a-b_c où-20"),
    ],
)
def test_anchors_of_a_generator_count_only_in_its_site(
    fill: Filler, config: str, fragments: str
) -> None:
    page = "# A & B_c\n\n# Où 2.0?\n\n# Equal\n\n# Equal\n"
    linking = " ".join(f"[x](t.md#{part})" for part in fragments.split())
    kb = fill({"t.md": page, "a.md": linking}, embed=False)
    assert links(kb, "broken")
    kb = fill({config: "docs_dir: .\ninput: kramdown\n", "a.md": f"{linking} again"}, embed=False)
    assert links(kb, "broken") == []


def test_a_page_that_takes_in_others_may_have_more_sections(fill: Filler) -> None:
    kb = fill({"a.md": "[x](b.md#there)", "b.md": '# B\n\n--8<-- "part.txt"\n'}, embed=False)
    assert states(kb) == [("a.md", "b.md#there", "not in the tree")]
    kb = fill({"b.md": "# B\n\n{{< part.inline >}} {{< figure src=x >}}\n"}, embed=False)
    assert states(kb, "not in the tree")
    kb = fill({"b.md": "# B\n\n{{< figure src=x >}} [a]({{< ref a >}})\n"}, embed=False)
    assert links(kb, "broken") == ["b.md#there"]


# Sites


SITES = {
    "docusaurus.config.js": (
        "module.exports = {\n  baseUrl: '/project/', // a comment with {\n"
        "  presets: [['classic', {docs: {path: 'docs', routeBasePath: '/'},\n"
        "    blog: {showReadingTime: true}}]],\n"
        "  plugins: [['@docusaurus/plugin-content-docs',"
        " {id: 'c', path: 'community', routeBasePath: 'people'}]],\n};\n",
        {
            "docs/intro.md": "[n](/settings/net#proxy) [c](/custom) [b](/settings/moved) [m](./two)"
            " [p](/people/team) [a](/tags/rope) [l](/blog/2024/01/02/start) [h](@site/docs/two.md)"
            " [s](/img/x.png) [t](/showcase) [u](/project/custom) [g](settings/net.md) [i](/gone)"
            " [j](./gone) [k](/settings/net#none) [q](@site/docs/gone.md) [r](/img/gone.png)",
            "docs/settings/net.md": "# Net\n\n## Proxy\n",
            "docs/01-two.md": "[up](./settings/net.md) [x](../settings/net)",
            "docs/two.md": "# Two",
            "docs/c.md": "---\nslug: /custom\n---\n# C\n",
            "docs/settings/b.md": "---\nid: moved\n---\n# B\n",
            "blog/2024-01-02-start.md": "# Start",
            "community/team.md": "# Team",
            "static/img/x.png": "x",
            "src/pages/showcase.tsx": "export {}",
        },
        ["/gone", "./gone", "/settings/net#none", "@site/docs/gone.md", "/img/gone.png"],
        ["/tags/rope"],
    ),
    "mkdocs.yml": (
        "site_name: X\ndocs_dir: pages\nplugins:\n  - x: !!python/name:os.system\n",
        {
            "pages/index.md": "[a](/guide/setup/) [b](guide/setup.md) [c](guide/setup/) [d](gone/)",
            "pages/guide/setup.md": "[e](../) [f](../other/) [g](../gone/) [h](/feed.xml)"
            ' <img src="../../img/x.png"> <img src="../../img/gone.png">',
            "pages/guide/other.md": "# Other",
            "pages/img/x.png": "x",
        },
        ["../gone/", "../../img/gone.png", "gone/"],
        ["/feed.xml"],
    ),
    "hugo.toml": (
        "baseURL = 'https://example.org/'\ncontentDir = 'pages'\n",
        {
            "pages/docs/a.md": '[b](../b/) [c]({{< ref "b.md" >}}) [d]({{% relref "/docs/C" %}}) '
            "[e](/docs/) [f](/moved/) [g](/old/) [h](/tags/x/) [i](../gone/) "
            '[j]({{< ref "gone" >}})'
            " [k](/img/x.png) [l](/docs/B/#part) [m](/docs/b/#gone) [n]({{ .Param }})"
            ' [o]({{< ref "b#part" >}}) [p]({{< ref "b#gone" >}}) [q](/sent/on/)'
            ' [r]({{< ref path="b.md" >}})',
            "pages/docs/b.md": "# B\n\n## Part\n",
            "pages/docs/C.md": "---\nurl: /moved/\naliases: [/old/]\n---\n# C\n",
            "static/img/x.png": "x",
            "static/_redirects": "/sent/on/ /docs/b/\n",
        },
        ["../gone/", '{{< ref "gone" >}}', "/docs/b/#gone", '{{< ref "b#gone" >}}'],
        ["/docs/", "/tags/x/", "{{ .Param }}", "/sent/on/"],
    ),
    ".vitepress/config.ts": (
        "export default defineConfig({ base: '/kit/', srcDir: './src' })\n",
        {
            "src/guide/a.md": "[b](./b) [c](/guide/b.html) [d](/kit/guide/b) [e](/logo.svg) "
            "[f](./c) [g](/guide/gone)",
            "src/guide/b.md": "# B",
            "src/public/logo.svg": "x",
        },
        ["./c", "/guide/gone"],
        [],
    ),
    "_config.yml": (
        "title: x\nbaseurl: /site\n",
        {
            "_docs/a.md": "[b](/site/docs/b/) [c]({% link _docs/b.md %}) "
            "[d]({{ site.baseurl }}/docs/b) <a href=\"{{ '/docs/b/' | relative_url }}\">x</a> "
            "[e]({% post_url 2024-01-02-start %}) [f](/site/2024/01/02/start.html) "
            "[g](/site/about/) [h](/site/docs/gone/) [i]({% link _docs/gone.md %}) [j](/docs/b/)",
            "_docs/b.md": "# B",
            "_posts/2024-01-02-start.md": "# Start",
            "about.html": "---\npermalink: /about/\n---\n<p>About our work on the gauge.</p>",
        },
        ["/site/docs/gone/", "{% link _docs/gone.md %}", "/docs/b/"],
        [],
    ),
    "astro.config.mjs": (
        "export default defineConfig({ integrations: [starlight({ title: 'x' })] })\n",
        {
            "src/content/docs/guides/a.mdx": "[b](/guides/b/) [c](/de/guides/b/) [d](/x.png) "
            "[e](/z/)",
            "src/content/docs/guides/B.md": "# B",
            "src/content/docs/de/guides/c.md": "[f](/de/guides/b/) [g](/de/guides/gone/)",
            "public/x.png": "x",
        },
        ["/de/guides/gone/", "/de/guides/b/", "/z/"],
        [],
    ),
}


@pytest.mark.parametrize("config", SITES)
def test_pages_of_a_site_are_found_at_their_addresses(fill: Filler, config: str) -> None:
    text, files, broken, elsewhere = SITES[config]
    kb = fill({config: text, **files}, embed=False)
    assert links(kb, "broken") == broken
    assert links(kb, "not in the tree") == elsewhere


@pytest.mark.parametrize(
    ("config", "broken"),
    [
        ("", ["/a/b/", "./b/", "/a/c", "..", "/gone/"]),
        ("rewrites: {'x/:rest*': ':rest*'}", ["/gone/"]),
    ],
)
def test_a_last_slash_counts_where_the_generator_has_it_so(
    fill: Filler, config: str, broken: list[str]
) -> None:
    kb = fill(
        {
            ".vitepress/config.ts": f"export default {{ {config} }}\n",
            "index.md": "# Home",
            "a/x.md": "# X\n\n[a](/a/b/) [b](./b/) [c](/a/c) [d](..) [e](/gone/)\n"
            "[f](/a/b) [g](./b.md) [h](/a/c/) [i](./c/index) [j](../) [k](/) [l](#x) [m](/a/d/)"
            " [n](/a/d) [o](/a/b.html#b) [p](/a/b?q=/) [q](/a/e/) [r](/a/e/e)\n",
            "a/b.md": "# B",
            "a/c/index.md": "# C",
            "a/d.md": "# D",
            "a/d/index.md": "# D",
            "a/e/e.md": "# E",
            "a/e/index.md": "# E",
        },
        embed=False,
    )
    assert links(kb, "broken") == broken
    kb = fill({"a/b.md": "# B\n\nAgain."}, embed=False)
    assert links(kb, "broken") == broken


# The broken links of each are those that lychee names in what the generator itself builds.
BUILT = {
    "hugo.toml": (
        "baseURL = 'https://example.org/kit/'\n",
        {
            "content/d/a.md": '[a](/kit/d/b/#at) [b](../b/) [c]({{< ref "#part" >}}) '
            "[d](/kit/bundle/pic.png) [e](/kit/named/) [f](/kit/s/slug/) [g](/kit/old/) [h](b.md) "
            '[i]({{% relref "/s/c" %}}) [j](/kit/static.html) [k](/kit/e.html)\n\n## Part\n',
            "content/d/b.md": "# B {#at}\n\n"
            "[a](/d/a/) [b](/kit/d/a.html) [c](a/) [d](../d/a/) [e](/kit/s/c/) [f](/kit/d/d/)\n"
            '[g]({{< ref "#gone" >}}) [h]({{< ref "a.md#gone" >}}) [i](/kit/bundle/gone.png)\n'
            "[j](/kit/d/a/#Part) [k](a) [l](/static.html)",
            "content/d/d.md": "---\nurl: /named/\naliases: [/old/, /e.html]\n---\n",
            "content/s/c.md": "---\nslug: slug\n---\n",
            "content/bundle/index.md": "# Bundle",
            "content/bundle/pic.png": "x",
            "static/static.html": "<p>A page as it is.</p>",
        },
        [
            *("/d/a/", "/kit/d/a.html", "a/", "../d/a/", "/kit/s/c/", "/kit/d/d/"),
            *('{{< ref "#gone" >}}', '{{< ref "a.md#gone" >}}', "/kit/bundle/gone.png"),
            *("/kit/d/a/#Part", "a", "/static.html"),
        ],
    ),
    "_config.yml": (
        "baseurl: /kit\n",
        {
            "README.md": "# Read",
            "index.md": "[a](#home) [b](/kit/#home)\n\n# Home\n",
            "a.md": "[a](/kit/d/b.html) [b]({{ site.baseurl }}/d/b) [c](/kit/named/#part) [d](d/b)"
            " [e]({{ '/named/#part' | relative_url }}) [f]({% link d/c.md %}#part) [g](#2-part)"
            "\n\n## 2. Part\n",
            "d/b.md": "[a](/d/b) [b](/kit/d/c) [c]({{ '/named/#gone' | relative_url }}) [d](/b)\n"
            "[e]({% link d/c.md %}#gone) [f](/kit/named/#Part) [g](/kit/a.html#part)",
            "d/c.md": "---\npermalink: /named/\n---\n## Part",
        },
        [
            *("/d/b", "/kit/d/c", "{{ '/named/#gone' | relative_url }}", "/b"),
            *("{% link d/c.md %}#gone", "/kit/named/#Part", "/kit/a.html#part"),
        ],
    ),
    "astro.config.mjs": (
        "export default defineConfig({ base: '/kit', srcDir: './', integrations: [starlight({\n"
        "  locales: { root: { label: 'English' }, de: { label: 'Deutsch' } } })] })\n",
        {
            "content/docs/Guide v1.2/Page One.md": "[a](/kit/guide-v12/page-one/#_top) "
            "[b](/kit/de/guide-v12/page-one) [c](/kit/named/) [d](../../s/) [e](/kit/x.png)",
            "content/docs/n/two.mdx": "---\nslug: named\n---\n"
            "[a](/guide-v12/page-one/) [b](/kit/Guide%20v1.2/Page%20One/) [c](/kit/n/two/)\n"
            "[d](/s/) [e](/kit/s.html) [f](s/) [g](/kit/de/gone/) [h](/x.png) [i](#Part)\n"
            "\n## Part\n\n<LinkCard title='x' href='/kit/lost/' />\n\n"
            '<Card>\n  <LinkButton href="/kit/s">x</LinkButton>\n</Card>\n',
            "content/docs/index.mdx": "---\nhero:\n  actions:\n    - text: x\n"
            "      link: /kit/no/\n    - link: '/kit/s/'\n---\n<Link\n  to='/kit/none/'>x</Link>",
            "content/docs/s/index.md": "# S",
            "public/x.png": "x",
        },
        [
            *("/kit/no/", "/kit/none/"),
            *("/guide-v12/page-one/", "/kit/Guide%20v1.2/Page%20One/", "/kit/n/two/", "/s/"),
            *("/kit/s.html", "s/", "/kit/de/gone/", "/x.png", "#Part", "/kit/lost/"),
        ],
    ),
}


@pytest.mark.parametrize("config", BUILT)
def test_an_address_leads_where_its_generator_puts_the_page(fill: Filler, config: str) -> None:
    text, files, broken = BUILT[config]
    kb = fill({config: text, **files}, embed=False)
    assert links(kb, "broken") == broken
    kb = fill({next(iter(files)): f"{next(iter(files.values()))}\n"}, embed=False)
    assert links(kb, "broken") == broken


POSTS = {
    "_posts/2024-01-02-My Page.md": "# A",
    "_posts/sub/2024-01-03-deep.md": "# B",
    "recipes/_posts/2024-01-04-oats.md": "# C",
    "_posts/2024-01-05-cat.md": "---\ncategories: [Food, hot]\n---\n# D",
    "_posts/2024-01-06-late.md": "---\nslug: named\ndate: 2023-05-05\n---\n# E",
}


@pytest.mark.parametrize(
    ("files", "resolved", "broken"),
    [
        (
            {"_config.yml": "title: x\n", **POSTS},
            "/2024/01/02/My-Page.html /2024/01/03/deep.html /recipes/2024/01/04/oats "
            "/food/hot/2024/01/05/cat.html /2023/05/05/named.html {{site.baseurl}}/x",
            "/2024/01/02/gone.html /food/2024/01/05/gone.html",
        ),
        (
            {"_config.yml": "permalink: /blog/:categories/:year/:title/\n", **POSTS},
            "/blog/2024/My-Page/ /blog/2024/deep/ /blog/food/hot/2024/cat/ /blog/2023/named/",
            "/blog/2024/named/ /blog/2024/gone/",
        ),
        (
            {
                "hugo.toml": "[permalinks]\nposts = '/:year/:slug/'\n",
                "content/posts/a.md": "---\ndate: 2024-01-02\ntitle: The First\n---\n",
            },
            "/2024/the-first/ /2024/a/",
            "/2023/the-first/ /2024/gone/",
        ),
        (
            {
                "hugo.toml": "baseurl = '/'\n",
                **{f"content/{name}.md": "# A" for name in ("My Page", "A (1)", "c++", "it's")},
                "content/d/_index.md": "# D",
                "content/s.md": "---\nslug: The Slug\n---\n",
            },
            "/my-page/ /a-1/ /c++/ /its/ /the-slug/ /d/index.html /d/?q=1",
            "/My%20Page/ /it's/ /d.html",
        ),
    ],
)
def test_routes_are_made_of_names_dates_and_templates(
    fill: Filler, files: dict[str, str], resolved: str, broken: str
) -> None:
    folder = "content/" if "hugo.toml" in files else ""
    linking = "".join(f"[x]({url})\n" for url in f"{resolved} {broken}".split())
    kb = fill({f"{folder}x.md": linking, **files}, embed=False)
    assert links(kb, "broken") == broken.split()


@pytest.mark.parametrize(
    "files",
    [
        {"hugo.toml": "theme = 'book'\n"},
        {"hugo.toml": "[[module.imports]]\npath = 'example.org/theme'\n"},
        {"hugo.json": '{"title": "x", "theme": ["book"]}'},
        {"config/_default/hugo.toml": "", "config/_default/module.toml": "[[imports]]\n"},
        {"hugo.toml": "", "layouts/_markup/render-link.html": "x"},
    ],
)
def test_a_site_whose_links_others_make_may_link_to_pages_by_path(
    fill: Filler, files: dict[str, str]
) -> None:
    pages = {"content/d/a.md": "[a](../d/b/) [b](b) [c](/gone/)", "content/d/b.md": "# B"}
    kb = fill({**files, **pages}, embed=False)
    assert links(kb, "broken") == ["/gone/"]


def test_an_address_of_a_site_is_a_citation_of_its_page_also_when_that_moves(
    fill: Filler,
) -> None:
    config = {"mkdocs.yml": "site_name: x\n"}
    kb = fill({**config, "docs/a.md": "[b](/guide/b/)", "docs/guide/b.md": "# B"}, embed=False)
    assert targets(kb)["/guide/b/"] == "docs/guide/b.md"
    kb = fill({"docs/guide/b.md": "# B again"}, embed=False)
    assert targets(kb)["/guide/b/"] == "docs/guide/b.md"


def test_a_slug_that_goes_takes_its_links_along(fill: Filler) -> None:
    config = {"docusaurus.config.js": "module.exports = {}"}
    page = "---\nslug: /custom\n---\n# B\n"
    kb = fill({**config, "docs/a.md": "[b](/docs/custom)", "docs/b.md": page}, embed=False)
    assert targets(kb)["/docs/custom"] == "docs/b.md"
    kb = fill({"docs/b.md": "# B\n"}, embed=False)
    assert links(kb, "broken") == ["/docs/custom"]


# Sphinx and MyST


def test_sphinx_knows_other_projects_terms_and_labels_of_code(fill: Filler) -> None:
    kb = fill(
        {
            "conf.py": "intersphinx_mapping = {\n  'setuptools': ('https://s.example', None)\n}\n",
            "index.rst": "Home\n====\n\n:doc:`setuptools:userguide/index` :ref:`setuptools:x`\n"
            ":term:`Wind` :term:`gone` :numref:`fig` :ref:`kb.search.run` :ref:`nowhere`\n"
            ":doc:`/deep/a` :doc:`/deep/gone` :ref:`other:x` `all <genindex.html>`_\n",
            "deep/a.rst": ".. _fig:\n\nA\n=\n\n.. glossary::\n   :sorted:\n\n   wind\n   breeze\n"
            "      Moving air.\n",
        },
        embed=False,
    )
    assert links(kb, "broken") == ["gone", "nowhere", "/deep/gone", "other:x"]
    assert links(kb, "external") == ["setuptools:userguide/index", "setuptools:x"]
    assert links(kb, "not in the tree") == ["kb.search.run", "genindex.html"]


def test_myst_has_the_roles_and_labels_of_sphinx(fill: Filler) -> None:
    kb = fill(
        {
            "index.md": "# Home\n\n{doc}`guide/a` {ref}`strong winds` {ref}`text <gone>` [](lab)\n"
            "[](#lab) [](#none) {term}`Wind` {doc}`missing` [](#drawn) [x](far){.external}\n\n"
            "```{toctree}\n:maxdepth: 1\n\nguide/a\nTitled <guide/b>\nguide/none\n```\n\n"
            "````\n```{toctree}\nno\n```\n````\n",
            "guide/a.md": "(Strong)=\n# A\n\n(lab)=\n## Part\n\n:::{glossary}\nWind\n: Air.\n:::\n",
            "guide/b.md": "```{figure} x.png\n:name: strong winds\n```\n\n"
            ":::{figure-md} drawn\n![x](x.png)\n\nA vane.\n:::\n",
        },
        embed=False,
    )
    assert links(kb, "broken") == ["gone", "#none", "missing", "guide/none"]
    assert targets(kb)["lab"] == "guide/a.md"


# Org


def test_org_finds_headings_ids_targets_and_attachments(fill: Filler) -> None:
    kb = fill(
        {
            "a.org": "* Wind\n:PROPERTIES:\n:ID: top\n:END:\nSee [[id:abc][k]] [[*Calm]] [[#cid]]\n"
            "[[target]] [[file:b.org::*Deep heading]] [[file:b.org::#bid]] [[file:b.org::words]]\n"
            "~x[[1, 2]]~ =[[no]]= [[attachment:map.png]] [[file:~/x.pdf]]\n"
            "* Calm\n:PROPERTIES:\n:CUSTOM_ID: cid\n:END:\n<<target>>\n"
            "[[id:gone]] [[*Gone]] [[#gone]] [[file:b.org::*Gone]] [[attachment:gone.png]]\n",
            "b.org": "* One\n** Deep heading\n:PROPERTIES:\n:ID: abc\n:CUSTOM_ID: bid\n:END:\n",
            "data/ab/c/map.png": b"x",
        },
        embed=False,
    )
    assert links(kb, "broken") == ["gone", "#Gone", "#gone", "b.org#Gone", "gone.png"]
    assert links(kb, "not in the tree") == ["~/x.pdf"]
    assert targets(kb)["abc"] == "b.org"


# What tells the states


def test_exports_and_the_library_carry_the_states(fill: Filler) -> None:
    kb = fill(
        {
            "a.md": "[b](b.md#none) [b](b.md) [p](p.png) [g](gone.md) <https://example.com/x>"
            " [issues](../../issues)",
            "b.md": "# B",
            "p.png": b"x",
        },
        embed=False,
    )
    with kb.database.read() as connection:
        graph = citation_graph(connection, None, with_states=True)
        assert "state" not in json.dumps(citation_graph(connection, None).to_dict())
    assert {edge.target: edge.state for edge in graph.edges} == {
        "docs/b.md": "broken",
        "docs/p.png": "resolved",
        "docs/gone.md": "broken",
        "https://example.com/x": "external",
        "../../issues": "external",
    }
    assert {node.id: node.state for node in graph.nodes}["docs/b.md"] == "resolved"
    assert kb.base.broken_links().states == {
        "resolved": 2,
        "external": 2,
        "not in the tree": 0,
        "broken": 2,
    }


def test_states_come_along_to_another_file(fill: Filler, tmp_path: Path) -> None:
    kb = fill(
        {
            "mkdocs.yml": "site_name: x\n",
            "docs/a.md": "[b](/guide/b/) [p](/img/p.png) [f](/feed.xml) [gone](/gone/)",
            "docs/guide/b.md": "# B",
            "docs/img/p.png": b"x",
        },
        embed=False,
    )
    before = [(url, state) for _, url, state in states(kb)]
    kb.base.split(tmp_path / "other.db", ["docs"])
    with open_session(Database(tmp_path / "other.db"), project=tmp_path) as other:
        assert [(url, state) for _, url, state in states(other)] == before
        assert targets(other)["/guide/b/"] == "docs/guide/b.md"
    assert {state for _, state in before} == {"resolved", "not in the tree", "broken"}


def test_sarif_tells_each_broken_link_with_its_line(fill: Filler) -> None:
    kb = fill({"a b.md": "# A\n\n[x](gone.md) [y](#gone) [z](#a)\n"}, embed=False)
    log = json.loads(to_sarif([(link, link.document) for link in kb.base.broken_links()]))
    (run,) = log["runs"]
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert [result["ruleId"] for result in run["results"]] == ["missing-target", "missing-section"]
    assert {place["artifactLocation"]["uri"] for place in places} == {"a%20b.md"}
    assert {place["region"]["startLine"] for place in places} == {3}


@pytest.mark.parametrize(
    "text",
    ["\\[" * 40_000, "{{" * 40_000, "`a``" * 20_000, "$" * 80_000, "<h1>" * 20_000, "%%" * 40_000],
)
def test_hostile_text_is_looked_through_in_time(text: str) -> None:
    assert parse(text, "a.md").links == ()
    assert not PageAnchors.of(text, (), "markdown").has("gone", "inline")
    Settings("/*" * 40_000 + text)


def test_capitals_of_a_section_count_on_a_site() -> None:
    page = ("# Store\n\n## getState\n\n## Other {#Named}\n", ("Store", "getState", "Other"))
    on_site = PageAnchors.of(*page, "markdown", ["Docusaurus"])
    on_github = PageAnchors.of(*page, "markdown")
    for name, is_there in (("getstate", True), ("getState", False), ("Named", True)):
        assert on_site.has(name, "inline") == is_there
        assert on_github.has(name, "inline")
