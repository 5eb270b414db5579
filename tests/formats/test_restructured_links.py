"""Links of reStructuredText, with what Sphinx adds to it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from support import Filler

from kb.formats.parse import parse
from kb.store.citation_graph import links_and_states
from kb.tools.session import Session

PAGE = """\
.. _top:

Title of |product|
==================

See `the guide <guide.rst>`_, `two`_, plain_, `site <https://example.org/a>`__, |logo|_
and https://example.org/bare. Not ``plain_`` nor `two`\\ s.
:doc:`install/linux`, :doc:`Start </start>`, :ref:`calm`, :ref:`Wind <strong winds>`,
:py:func:`x`, :ref:`python:intro`, :ref:`search`.

Code::

    plain_ and :ref:`calm`

    `more <no.rst>`_

After it, anonymous__ and `again anonymous`__ and alias_.

.. code-block:: rst

   :doc:`no`

.. note:: Read :doc:`noted`.

   And `inside <inside.rst>`_.

.. a comment with plain_
   and :doc:`no`

- item::

    plain_

  text of the item plain_

>>> plain_

.. toctree::
   :maxdepth: 2
   :caption: Contents

   guide
   Titled <install/linux>
   parts/*
   self

.. include:: shared.rst
.. include:: <isonum.txt>

* .. _cell label:

  A cell.

.. |product| replace:: the *Gauge*
.. _two: two.rst
.. _plain: plain.rst#part
.. _logo: https://example.org/logo
.. _alias: plain_
__ first.rst
.. __: second.rst
"""
LINKS = [
    ("inline", 6, "guide.rst"),
    ("reference", 6, "two.rst"),
    ("reference", 6, "plain.rst#part"),
    ("inline", 6, "https://example.org/a"),
    ("reference", 6, "https://example.org/logo"),
    ("autolink", 7, "https://example.org/bare"),
    ("doc", 8, "install/linux"),
    ("doc", 8, "/start"),
    ("ref", 8, "calm"),
    ("ref", 8, "strong winds"),
    ("ref", 9, "python:intro"),
    ("reference", 17, "first.rst"),
    ("reference", 17, "second.rst"),
    ("reference", 17, "plain.rst#part"),
    ("doc", 23, "noted"),
    ("inline", 25, "inside.rst"),
    ("reference", 34, "plain.rst#part"),
    ("toctree", 42, "guide"),
    ("toctree", 43, "install/linux"),
    ("include", 47, "shared.rst"),
]


def test_links_are_found_with_their_lines() -> None:
    parsed = parse(PAGE, "index.rst")
    assert [(one.kind, one.line, one.url) for one in parsed.links] == LINKS
    assert parsed.links[0].context.startswith("See `the guide <guide.rst>`_")


def test_labels_and_substitutions_are_known() -> None:
    parsed = parse(PAGE, "index.rst")
    assert parsed.labels == ("top", "cell label")
    assert parsed.title == "Title of the Gauge"


def test_a_target_goes_on_up_to_a_blank_line() -> None:
    parsed = parse(
        "one_ and two_.\n\n.. _one:\n   https://example.org/\n   one\n"
        ".. _two: https://example.org/two\n\n   A quote with `no target <three.rst>`_.\n\n"
        ".. _label:\n\nTitle\n=====\n",
        "a.rst",
    )
    assert [(one.line, one.url) for one in parsed.links] == [
        (1, "https://example.org/one"),
        (1, "https://example.org/two"),
        (8, "three.rst"),
    ]
    assert parsed.labels == ("label",)


def test_an_anonymous_target_inside_the_page_takes_its_turn() -> None:
    parsed = parse("`here`__ and `there`__\n\n.. __:\n\nText.\n\n__ there.rst\n", "a.rst")
    assert [one.url for one in parsed.links] == ["there.rst"]


@pytest.fixture
def sphinx(fill: Filler) -> Session:
    return fill(
        {
            "source/index.rst": "Home\n====\n\n.. toctree::\n\n   guide/wind\n   calm\n\n"
            ":doc:`/guide/wind` and :ref:`strong winds` and :ref:`nowhere`\n",
            "source/guide/wind.rst": ".. _Strong Winds:\n\nWind\n====\n\nSee :doc:`../calm`.\n",
            "source/calm.rst": "Calm\n====\n\n`wind <guide/wind.rst>`_\n",
        },
        embed=False,
    )


def test_a_sphinx_project_links_its_pages(sphinx: Session) -> None:
    with sphinx.database.read() as connection:
        rows = connection.apsw.execute(
            "SELECT source.path, citations.target_url, target.path FROM citations"
            " JOIN documents AS source ON source.document_id = source_document_id"
            " LEFT JOIN documents AS target ON target.document_id = target_document_id"
            " ORDER BY source.path, line, citation_id"
        ).fetchall()
        broken = links_and_states(connection)[0]
    assert rows == [
        ("source/calm.rst", "guide/wind.rst", "source/guide/wind.rst"),
        ("source/guide/wind.rst", "../calm", "source/calm.rst"),
        ("source/index.rst", "guide/wind", "source/guide/wind.rst"),
        ("source/index.rst", "calm", "source/calm.rst"),
        ("source/index.rst", "/guide/wind", "source/guide/wind.rst"),
        ("source/index.rst", "strong winds", "source/guide/wind.rst"),
        ("source/index.rst", "nowhere", None),
    ]
    assert [(one.document, one.target, one.line) for one in broken] == [
        ("source/index.rst", "nowhere", 9)
    ]


@given(text=st.text(alphabet=st.sampled_from("a_`|<>:.*-=\n\t [](){}#/"), max_size=200))
def test_any_text_is_read(text: str) -> None:
    parsed = parse(text, "a.rst")
    lines = text.count("\n") + 1
    assert all(1 <= link.line <= lines for link in parsed.links)
