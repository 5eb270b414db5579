"""The page that describes the house is true."""

import re
import tomllib

from support import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
BESIDE = {"__init__.py", "__main__.py", "py.typed", "queries", "migrations", "assets"}


def rooms_of_the_page() -> list[str]:
    table = PAGE.split("## Rooms")[1].split("## The write path")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [name.rstrip("/") for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_the_page_names_every_room_and_no_other() -> None:
    entries = {path.name for path in (ROOT / "kb").iterdir() if path.name != "__pycache__"}
    assert set(rooms_of_the_page()) == entries - BESIDE


def test_the_page_lists_the_floors_as_the_contract_has_them() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    floors = contracts["importlinter"]["contracts"][0]["layers"]
    assert [name.removesuffix(".py") for name in rooms_of_the_page()] == floors


def test_every_place_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`((?:[\w-]+/)*(?:[\w-]+\.(?:py|sql|toml|md)|[\w-]+/))`", PAGE))
    assert len(named) > 40
    names = {path.name for path in (ROOT / "kb").rglob("*") if path.suffix in (".py", ".sql")}

    def is_there(place: str) -> bool:
        roots = (ROOT, ROOT / "kb")
        return place in names or any((root / place).exists() for root in roots)

    missing = {place for place in named if not is_there(place)}
    assert missing == {"kb/tools/FAMILY.py"}


def test_what_comments_name_is_there() -> None:
    """A module, a function or a page that a docstring sends its reader to has not moved on."""
    files = [*(ROOT / "kb").rglob("*.py"), *(ROOT / "kb").rglob("*.sql"), ROOT / "schema.sql"]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    named = [
        (file.relative_to(ROOT), place)
        for file, text in texts.items()
        for place in re.findall(r"`(kb(?:\.\w+)+)`|((?:kb|docs|scripts)/[\w./-]+\w)", text)
    ]
    assert len(named) > 40
    gone = {
        (str(file), place)
        for file, pair in named
        for place in filter(None, pair)
        if not (_is_place(place) if "/" in place else _is_code(place))
    }
    assert not gone


def _is_place(path: str) -> bool:
    example = {"kb/config.json", "kb/kb.db", "docs/config.json", "docs/a.md"}
    return path in example or (ROOT / path).exists()


def _is_code(dotted: str) -> bool:
    *module, name = dotted.split(".")
    if name == "json":  # a file of aliases
        return True
    if (ROOT.joinpath(*module, f"{name}.py")).exists() or ROOT.joinpath(*module, name).is_dir():
        return True
    file = ROOT.joinpath(*module).with_suffix(".py")
    return (
        file.exists()
        and re.search(
            rf"^(?:async )?(?:def|class) {name}\b|^{name}\b", file.read_text(encoding="utf-8"), re.M
        )
        is not None
    )


def test_the_listing_is_short() -> None:
    entries = [path for path in (ROOT / "kb").iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 24


def test_no_module_is_longer_than_400_lines() -> None:
    lines = {
        str(file.relative_to(ROOT)): file.read_text(encoding="utf-8").count("\n")
        for file in (ROOT / "kb").rglob("*.py")
    }
    assert not {file: count for file, count in lines.items() if count > 400}
