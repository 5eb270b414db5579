"""The navigation of a documentation site as the outline of the file that lists it.

MkDocs keeps it in mkdocs.yml, Docusaurus in sidebars.js. Every entry is a heading at the depth at
which readers see it, with a link to its page. Neither file is run, nor are tags of YAML obeyed.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence

import yaml

from kb.formats.outline import Body, Heading, Link, line_blocks, one_line
from kb.formats.source_code import Node, TooComplexError, deadline, parse_source, text

_GRAMMARS = {
    "sidebars.js": "javascript",
    "sidebars.json": "javascript",
    "sidebars.ts": "typescript",
}
NAVIGATION_FILES = frozenset({"mkdocs.yml", "mkdocs.yaml", *_GRAMMARS})
MOST_LEVELS = 6
DOCUMENTS = "docs"  # where MkDocs looks unless docs_dir says otherwise

# A line (from 1), the depth (from 1), the title ("" for none) and the page ("" for none).
Entry = tuple[int, int, str, str]


def read(source: str, lines: Sequence[str], path: str) -> Body:
    """Read a navigation file by its name; any other is plain text."""
    name = posixpath.basename(path)
    values: dict[str, str] = {}
    try:
        if name in _GRAMMARS:
            entries = list(_sidebars(source, name))
        else:
            entries, values = _mkdocs(source)
    except (yaml.YAMLError, TooComplexError, RecursionError, ValueError) as error:
        deep = isinstance(error, RecursionError)
        reason = "it is nested too deeply" if deep else str(error).split("\n", 1)[0]
        return Body((), line_blocks(lines), "", {}, (f"no navigation could be read: {reason}",))
    headings: list[Heading] = []
    links = []
    for line, depth, title, page in entries:
        if title and (not headings or headings[-1].start_line < line):
            headings.append(Heading(min(depth + 1, MOST_LEVELS), one_line(title), line, line))
        if page:
            kind = "doc" if name in _GRAMMARS else "inline"
            links.append(Link(page, kind, line, " ".join(lines[line - 1].split())))
    return Body(headings, line_blocks(lines, headings), "", dict(values), (), tuple(links))


# MkDocs

# What ends a line in YAML and in no other text.
_NO_LINE_ENDS = dict.fromkeys(map(ord, "\r\x85\u2028\u2029"), " ")


def _mkdocs(source: str) -> tuple[list[Entry], dict[str, str]]:
    root = yaml.compose(source.translate(_NO_LINE_ENDS), yaml.SafeLoader)
    top = {
        key.value: value
        for key, value in (root.value if isinstance(root, yaml.MappingNode) else ())
        if isinstance(key, yaml.ScalarNode)
    }
    names = {"site_name": "title", "site_description": "description", "site_url": "url"}
    values = {
        key: top[name].value
        for name, key in names.items()
        if isinstance(top.get(name), yaml.ScalarNode)
    }
    folder = top.get("docs_dir")
    base = folder.value if isinstance(folder, yaml.ScalarNode) else DOCUMENTS
    return list(_nav(top.get("nav"), base, 1)), values


def _nav(node: yaml.Node | None, base: str, depth: int) -> Iterator[Entry]:
    if isinstance(node, yaml.ScalarNode) and node.value:
        yield node.start_mark.line + 1, depth, "", _page(node.value, base)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _nav(item, base, depth)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            title = key.value if isinstance(key, yaml.ScalarNode) else ""
            line = key.start_mark.line + 1
            if isinstance(value, yaml.ScalarNode):
                yield line, depth, title, _page(value.value, base) if value.value else ""
            else:
                yield line, depth, title, ""
                yield from _nav(value, base, depth + 1)


def _page(place: str, base: str) -> str:
    return place if "://" in place or place.startswith("/") else posixpath.join(base, place)


# Docusaurus


def _sidebars(source: str, name: str) -> Iterator[Entry]:
    # JSON alone is no program, but an expression in brackets is; the lines stay.
    text_of_file = f"({source})" if name.endswith(".json") else source
    tree = parse_source(_GRAMMARS[name], text_of_file.encode(), deadline())
    for node in _outermost_objects(tree.root_node):
        for sidebar, items in _pairs(node):
            if items.type in ("array", "object"):
                yield items.start_point.row + 1, 1, sidebar, ""
                yield from _items(items, 2)


def _outermost_objects(node: Node) -> Iterator[Node]:
    for child in node.named_children:
        if child.type == "object":
            yield child
        elif child.type not in ("string", "comment", "import_statement", "array"):
            yield from _outermost_objects(child)


def _items(node: Node, depth: int) -> Iterator[Entry]:
    """The entries of an array, or of the short form `{"Category": [...]}`."""
    if node.type == "string":
        yield node.start_point.row + 1, depth, "", f"/{_string(node)}"
    elif node.type == "array":
        for child in node.named_children:
            yield from _items(child, depth)
    elif node.type == "object":
        pairs = dict(_pairs(node))
        if "type" not in pairs:
            for title, items in pairs.items():
                yield items.start_point.row + 1, depth, title, ""
                yield from _items(items, depth + 1)
            return
        label, page = pairs.get("label"), pairs.get("id") or pairs.get("href")
        shown = label if label is not None and label.type == "string" else page
        line = (shown or node).start_point.row + 1
        place = _string(page) if page is not None else ""
        is_place = place and "://" not in place
        yield line, depth, _string(label) if label else "", f"/{place}" if is_place else place
        if "link" in pairs and "id" in (link := dict(_pairs(pairs["link"]))):
            yield link["id"].start_point.row + 1, depth, "", f"/{_string(link['id'])}"
        if "items" in pairs:
            yield from _items(pairs["items"], depth + 1)


def _pairs(node: Node) -> Iterator[tuple[str, Node]]:
    for child in node.named_children:
        if child.type == "pair":
            key, value = child.child_by_field_name("key"), child.child_by_field_name("value")
            if key is not None and value is not None:
                yield (_string(key) if key.type == "string" else text(key)), value


def _string(node: Node) -> str:
    raw = text(node)[1:-1]
    if "\\" not in raw:
        return raw
    try:
        return str(json.loads(f'"{raw}"'))
    except ValueError:
        return raw
