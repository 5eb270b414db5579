"""A citation graph as JSON, GraphML, DOT, Mermaid, or one HTML page; broken links as SARIF."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from kb.results.citations import BrokenLink, Graph, GraphEdge, GraphNode
from kb.settings import PACKAGE, VERSION
from kb.text.controls import escaped_in_json, visible

LAYOUT = ("dispatch", "quadtree", "timer", "force")  # d3's modules, each needs those before it
DRAWING = ("page", "static", "graph.js")
_MISSING = {"target": "page or file", "section": "section"}
# What XML 1.0 cannot hold.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_json(graph: Graph) -> str:
    parts = {
        key: [{**part.to_dict(), **({"state": part.state} if part.state else {})} for part in list_]
        for key, list_ in (("nodes", graph.nodes), ("edges", graph.edges))
    }
    return escaped_in_json(json.dumps(parts, ensure_ascii=False, indent=2))


def to_graphml(graph: Graph) -> str:
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        '  <key id="label" for="node" attr.name="label" attr.type="string"/>',
        '  <key id="type" for="node" attr.name="type" attr.type="string"/>',
        '  <key id="external" for="node" attr.name="external" attr.type="boolean"/>',
        '  <key id="state" for="all" attr.name="state" attr.type="string"/>',
        '  <key id="confidence" for="edge" attr.name="confidence" attr.type="double"/>',
        '  <graph id="citations" edgedefault="directed">',
    ]
    lines += [
        f'    <node id="{_xml(node.id)}"><data key="label">{_xml(node.label)}</data>'
        f'<data key="type">{node.type}</data>'
        f'<data key="external">{str(node.is_external).lower()}</data>{_state(node)}</node>'
        for node in graph.nodes
    ]
    lines += [
        f'    <edge source="{_xml(edge.source)}" target="{_xml(edge.target)}">'
        f'<data key="confidence">{edge.confidence}</data>{_state(edge)}</edge>'
        for edge in graph.edges
    ]
    return "\n".join([*lines, "  </graph>", "</graphml>"])


def _state(part: GraphNode | GraphEdge) -> str:
    return f'<data key="state">{part.state}</data>' if part.state else ""


def to_dot(graph: Graph) -> str:
    lines = ["digraph citations {", "  rankdir=LR;", "  node [shape=box];"]
    for node in graph.nodes:
        style = ", style=dashed" if node.is_external else ""
        style += ", color=red" if node.state == "broken" else ""
        lines.append(f"  {_dot(node.id)} [label={_dot(node.label)}{style}];")
    for edge in graph.edges:
        weak = f' [label="{edge.confidence:.2f}", style=dashed]' if edge.confidence < 1 else ""
        lines.append(f"  {_dot(edge.source)} -> {_dot(edge.target)}{weak};")
    return "\n".join([*lines, "}"])


def to_mermaid(graph: Graph) -> str:
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["graph LR"]
    for node in graph.nodes:
        left, right = ("([", "])") if node.is_external else ("[", "]")
        lines.append(f'  {names[node.id]}{left}"{_mermaid(node.label)}"{right}')
    for edge in graph.edges:
        arrow = f"-. {edge.confidence:.2f} .->" if edge.confidence < 1 else "-->"
        lines.append(f"  {names[edge.source]} {arrow} {names[edge.target]}")
    return "\n".join(lines)


def to_html(picture: Mapping[str, Any]) -> str:
    """A page that contains a graph's picture and a script that draws it; nothing is loaded."""
    page = _asset("graph.html")
    data = json.dumps(picture, ensure_ascii=False, separators=(",", ":"))
    parts = {
        "style": "".join(_asset("page", "static", name) for name in ("colours.css", "graph.css")),
        "script": "".join(
            [*(_asset("vendor", f"d3-{name}.min.js") for name in LAYOUT), _asset(*DRAWING)]
        ),
        "licence": _asset("vendor", "d3-LICENSE.txt"),
        # No text of a document may end the script element.
        "graph": escaped_in_json(data).replace("<", "\\u003c"),
    }
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], page)


def to_sarif(links: Iterable[tuple[BrokenLink, str]]) -> str:
    """Broken links with their files, for CI systems to annotate lines (SARIF 2.1.0)."""
    results = [
        {
            "ruleId": f"missing-{link.missing}",
            "level": "error",
            "message": {"text": f"{link.target}: no such {_MISSING[link.missing]}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(file)},
                        "region": {"startLine": link.line},
                    }
                }
            ],
        }
        for link, file in links
    ]
    rules = [{"id": f"missing-{missing}"} for missing in _MISSING]
    driver = {"name": "kb", "version": VERSION, "rules": rules}
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return escaped_in_json(json.dumps(log, ensure_ascii=False, indent=2))


def _asset(*names: str) -> str:
    return PACKAGE.joinpath("assets", *names).read_text(encoding="utf-8")


FORMATS: dict[str, Callable[[Graph], str]] = {
    "json": to_json,
    "graphml": to_graphml,
    "dot": to_dot,
    "mermaid": to_mermaid,
}


def _xml(text: str) -> str:
    return escape(_NO_XML.sub("\ufffd", visible(text)))


def _dot(text: str) -> str:
    flat = " ".join(visible(text).split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_NO_XML.sub(chr(0xFFFD), flat)}"'


def _mermaid(text: str) -> str:
    flat = " ".join(visible(text).split())
    return re.sub(r"[#\"<>&`\[\]{}|\\;]", lambda match: f"#{ord(match[0])};", flat)
