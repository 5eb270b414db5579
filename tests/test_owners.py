"""Each dependency has one owner. That imports point downwards is import-linter's to say."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "kb"
OWNERS = {
    "apsw": {
        "store.copies",
        "store.connection",
        "store.database",
        "store.opening",
        "store.schema",
        "store.write_ahead_log",
    },
    "markdown_it": {
        "formats.links",
        "formats.markdown",
        "server.page.markdown",
    },
    "mdit_py_plugins": {"server.page.markdown"},
    "nh3": {"server.page.markdown"},
    "pygments": {"server.page.markdown"},
    "html_to_markdown": {"formats.convert.markup"},
    "liteparse": {"formats.convert.pdf_tables"},
    "lxml": {"formats.convert.sheets", "formats.convert.word"},
    "mammoth": {"formats.convert.word"},
    "nbformat": {"formats.convert.notebook"},
    "officemath2latex": {"formats.convert.packed"},
    "orgparse": {"formats.org"},
    "oxmsg": {"formats.convert.completeness", "formats.convert.mail"},
    "pptx": {"formats.convert.slides"},
    "pypdfium2": {
        f"formats.convert.{name}"
        for name in ("completeness", "ocr", "pdf", "pdf_grid", "pdf_lines", "pdf_tables")
    },
    "python_calamine": {"formats.convert.sheets"},
    "selectolax": {
        *(
            "formats.convert.definition_list",
            "formats.convert.content",
            "formats.convert.markup",
        ),
        *("formats.convert.page", "formats.convert.word"),
    },
    "charset_normalizer": {"text.decode"},
    "distributed": {"ingest.engine"},
    "docutils": {"formats.restructured_text"},
    "httpcore2": {"sources.transport", "sources.web"},
    "httpx2": {"models.address", "sources.transport", "sources.web"},
    "filelock": {
        "store.replication.follow",
        "store.replication.replicate",
        "sources.git",
    },
    "fastembed": {"models.named"},
    "onnxruntime": {"models.encoder"},
    "py3langid": {"models.choose"},
    "argcomplete": {"cli.commands"},
    "jinja2": {"server.page.render"},
    "mcp": {
        "server.access",
        "server.endpoint",
        "server.features",
        "server.mcp",
        "server.run",
        "server.wire",
        "assistants.launch",
    },
    "mcp_types": {
        "server.endpoint",
        "server.features",
        "server.mcp",
        "server.run",
        "server.wire",
    },
    "rapidfuzz": {"search.typos", "text.nearest"},
    "rapidocr": {"formats.convert.ocr"},
    "redact_secret": {"text.secrets"},
    "rich": {"cli.render", "cli.terminal"},
    "starlette": {
        "server.access",
        "server.endpoint",
        "server.http",
        "server.page.render",
        "server.page.views",
        "server.wire",
    },
    "tesserocr": {"formats.convert.ocr"},
    "tree_sitter": {"formats.source_code"},
    "uvicorn": {"server.http"},
    "striprtf": {"formats.convert.rtf"},
    "xlrd": {"formats.convert.sheets"},
    "watchfiles": {"disk.watch"},
}


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE).with_suffix("").parts)


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


FILES = [file for file in sorted(PACKAGE.rglob("*.py")) if not file.name.startswith("__")]


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_only_the_owners_of_a_dependency_use_it(file: Path) -> None:
    used = {name.split(".")[0] for name in imports(file)}
    for dependency, owners in OWNERS.items():
        assert (dependency in used) == (module_name(file) in owners), dependency


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_only_the_command_line_prints(file: Path) -> None:
    if module_name(file).split(".")[0] == "cli":
        return
    calls = [node for node in ast.walk(tree(file)) if isinstance(node, ast.Call)]
    assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]


@cache
def defined_names(file: Path) -> set[str]:
    """What a module defines, with what it takes from outside of kb."""
    found: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("kb"):
            found.update(alias.name for alias in node.names)
    return found


def python_scripts() -> list[Path]:
    """Of the repository's tools and tests: mypy reads only the package."""
    found = [file for file in sorted((ROOT / "scripts").rglob("*")) if file.is_file()]
    return [
        *(file for file in found if file.suffix == ".py" or is_python(file)),
        *sorted(
            file for file in (ROOT / "tests").rglob("*.py") if "node_modules" not in file.parts
        ),
    ]


def is_python(file: Path) -> bool:
    with file.open("rb") as script:
        first = script.readline()
    return not file.suffix and first.startswith(b"#!") and b"python" in first


@pytest.mark.parametrize(
    "file", [*FILES, *python_scripts()], ids=lambda f: str(f.relative_to(ROOT))
)
def test_a_name_is_imported_from_where_it_is_defined(file: Path) -> None:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kb":
            place = ROOT.joinpath(*str(node.module).split("."))
            module = place.with_suffix(".py")
            if module.is_file():
                known = defined_names(module)
            else:
                known = {entry.stem for entry in place.iterdir() if entry.name != "__pycache__"}
                known |= defined_names(place / "__init__.py")
            assert {alias.name for alias in node.names} <= known, node.module
