"""Imports point one way, and each dependency has one owner."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "kb"
OWNERS = {
    "apsw": {"database"},
    "markdown_it": {"links", "parse"},
    "docutils": {"restructured_text"},
    "fastembed": {"embed"},
    "onnxruntime": {"multilingual"},
    "py3langid": {"models"},
    "mcp": {"server", "stdio"},
    "mcp_types": {"server", "stdio"},
    "rapidfuzz": {"fuzzy"},
    "rich": {"render"},
    "tree_sitter": {"imports.syntax"},
    "watchfiles": {"watch"},
    "argparse": {
        "cli",
        "render",
        "commands.browse",
        "commands.care",
        "commands.cite",
        "commands.collect",
        "commands.context",
        "commands.evaluate",
    },
}
# A module may import its own layer's neighbours to the left, never anything to the right.
LAYERS = (
    {
        "errors",
        "budget",
        "suggest",
        "statements",
        "terms",
        "results",
        "sentences",
        "limits",
        "context_results",
        "external_results",
    },
    {"database", "config", "patterns", "files", "decode", "ignore", "paths", "ripgrep"},
    {"imports.project", "imports.syntax", "imports.packages", "imports.typescript_config"},
    {f"imports.{language}" for language in ("c", "go", "java", "javascript", "python")},
    {"imports.ruby", "imports.rust", "code", "grep"},
    {
        "sources",
        "archive_results",
        "archives",
        "front_matter",
        "restructured_text",
        "links",
        "parse",
        "targets",
        "pieces",
        "chunk",
        "embed",
        "weights",
        "multilingual",
        "models",
        "query",
        "vectors",
        "ranking",
        "rerank",
        "calls",
        "sessions",
        "call_statistics",
        "sections",
        "git_branch",
        "project",
        "watch",
        "discovery_text",
        "reading",
    },
    {"tokens", "fuzzy"},
    {"candidates"},
    {"borders"},
    {"highlight", "operators"},
    {"citations", "similar", "store", "search", "index_search", "graph", "graph_formats"},
    {"knowledge_base"},
    {"passages", "embedding", "indexes", "archive_search"},
    {"sync", "archive_sync"},
    {"activation", "discoveries", "follow", "project_files", "manifests"},
    {"overview"},
    {"resources"},
    {"evaluate"},
    {"registry", "background"},
    {"tools.archive", "tools.context", "tools.parameters"},
    {"tools.documents", "tools.external", "tools.index"},
    {"stdio", "render"},
    {"server"},
    {
        "commands.collect",
        "commands.browse",
        "commands.cite",
        "commands.care",
        "commands.context",
        "commands.evaluate",
    },
    {"cli"},
)


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE).with_suffix("").parts)


def imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


FILES = [file for file in sorted(PACKAGE.rglob("*.py")) if not file.name.startswith("__")]


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_dependency_has_one_owner(file: Path) -> None:
    used = {name.split(".")[0] for name in imports(file)}
    for dependency, owners in OWNERS.items():
        assert dependency not in used or module_name(file) in owners


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_imports_point_one_way(file: Path) -> None:
    layer_of = {module: number for number, layer in enumerate(LAYERS) for module in layer}
    own = module_name(file)
    assert own in layer_of, f"give {own} a place in LAYERS"
    for name in imports(file):
        imported = name.removeprefix("kb.")
        if name.startswith("kb.") and imported in layer_of:
            assert layer_of[imported] <= layer_of[own], f"{own} imports {imported}"


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_only_the_command_line_prints(file: Path) -> None:
    if module_name(file).split(".")[0] in {"cli", "commands", "render"}:
        return
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]
