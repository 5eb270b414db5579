"""Names with signs (`--all`, `foreign_server`) are found as they were typed."""

from __future__ import annotations

import pytest
from support import Filler, call

LONG = "Nothing here tells of it. " * 30


def first(kb: object, query: str) -> str:
    rows = call(kb, "documents_search", query=query)["results"]  # type: ignore[arg-type]
    return str(rows[0]["documentId"])


@pytest.mark.parametrize("embed", [True, False])
def test_an_option_is_found_where_its_word_is_everywhere(fill: Filler, embed: bool) -> None:
    pages: dict[str, str | bytes] = {
        f"{n}.md": f"# All of page {n}\n\nAll of all is all that page {n} has.\n" for n in range(90)
    }
    pages["options.md"] = f"# Options\n\n{LONG}With `--all` hidden entries are shown.\n"
    assert first(fill(pages, embed=embed), "--all") == "options.md"


@pytest.mark.parametrize("embed", [True, False])
@pytest.mark.parametrize(
    ("query", "longer"),
    [
        ("foreign_server", "foreign_server_name"),
        ("foreign_server", "my_foreign_server"),
        ("--since", "--since-start"),
        ("app.state", "app.state_of"),
    ],
)
def test_as_a_part_of_a_longer_name_it_is_another_name(
    fill: Filler, query: str, longer: str, embed: bool
) -> None:
    kb = fill(
        {
            "longer.md": f"# The {longer}\n\nThe `{longer}` and the `{longer}` again.\n",
            "right.md": f"# Others\n\n{LONG}One is `{query}`.\n\n{LONG}\n",
            "other.md": "# Bread\n\nKnead it.\n",
        },
        embed=embed,
    )
    assert first(kb, query) == "right.md"


def test_signs_at_the_ends_are_no_part_of_a_name(fill: Filler) -> None:
    kb = fill(
        {
            "call.md": f"# Calls\n\n{LONG}Write `use_cache=False)` there.\n",
            "words.md": "# Caches\n\nUse cache: false, or use cache false.\n",
        }
    )
    assert first(kb, "use_cache=False") == "call.md"


PATHS: dict[str, str | bytes] = {
    "guide/body.md": f"# Request bodies\n\n{LONG}\n\n## More\n\n{LONG}\n",
    "guide/style.css": "p { color: red } /* the look of it */",
    "notes.md": "# Notes\n\n- `guide/body.md` was changed.\n- `guide/body.md` was changed again.\n",
    "more.md": "# More\n\nSee body.md and guide/body.md, and guide/style.css.\n",
}


@pytest.mark.parametrize("query", ["guide/body.md", "body.md", "guide/body", " Body.md "])
@pytest.mark.parametrize("embed", [True, False])
def test_the_document_of_a_path_stands_before_those_that_mention_it(
    fill: Filler, query: str, embed: bool
) -> None:
    kb = fill(PATHS, embed=embed)
    rows = call(kb, "documents_search", query=query)["results"]
    assert (rows[0]["documentId"], rows[0]["chunkIndex"]) == ("guide/body.md", 1)
    assert rows[0]["relevanceScore"] >= 0.7
    assert {"notes.md", "more.md"} < {row["documentId"] for row in rows}
    outside = call(kb, "documents_search", query=f"{query.strip()} -changed")["results"]
    assert outside[0]["documentId"] != "notes.md"


def test_a_path_in_a_question_is_a_word_among_others(fill: Filler) -> None:
    assert first(fill(PATHS), "what was changed in guide/body.md") == "notes.md"


def test_the_beginning_of_the_page_that_is_titled_so_stands_first(fill: Filler) -> None:
    parts = "".join(f"## Part {n}\n\nThe uuid is told, part {n}. {LONG}\n\n" for n in range(9))
    kb = fill(
        {
            "uuid.md": f"# UUID functions\n\nThis module makes identifiers. {LONG}\n\n{parts}"
            "## Author\n\nPeter.\n",
            "bread.md": "# Bread\n\nKnead it.\n",
        },
        embed=False,
    )
    rows = call(kb, "documents_search", query="uuid")["results"]
    assert rows[0]["chunkIndex"] == 1


@pytest.mark.parametrize("embed", [True, False])
def test_of_translations_the_one_in_the_script_of_a_bare_name_stands_first(
    fill: Filler, embed: bool
) -> None:
    kb = fill(
        {
            "a/cors.md": "# CORS（跨域资源共享）\n\nCORS 指浏览器前端。CORS CORS。\n",
            "z/cors.md": "# CORS (sharing)\n\nCORS is for frontends. CORS CORS.\n",
            "bread.md": "# Bread\n\nKnead it.\n",
        },
        embed=embed,
    )
    assert first(kb, "CORS") == "z/cors.md"
    assert first(kb, "跨域资源共享 CORS") == "a/cors.md"
