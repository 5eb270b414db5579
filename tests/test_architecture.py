"""The page that describes the house is true."""

import ast
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
        for place in re.findall(r"`(kb(?:\.\w+)+)`|(?<!_)((?:kb|docs|scripts)/[\w./-]+\w)", text)
    ]
    assert len(named) > 40
    gone = {
        (str(file), place)
        for file, pair in named
        for place in filter(None, pair)
        if not (_is_place(place) if "/" in place else _is_code(place))
    }
    assert not gone


# Who may open a file in another way than `kb.disk.open_databases`: what it opens is named by kb
# itself, never by a client, a source or a user.
OWN_FILES = {
    "assistants/config_file.py": "an assistant's configuration",
    "cli/care.py": "packaged assets, and metadata in a folder of its own",
    "cli/commands.py": "packaged assets",
    "cli/read.py": "packaged assets; what is written, after `require_no_database`",
    "cli/streams.py": "the standard streams",
    "disk/holders.py": "/proc",
    "disk/open_databases.py": "the place itself",
    "disk/system.py": "for the place itself; folders, down to the file; /proc; a file in memory",
    "disk/write.py": "what is written: under a name of its own, until it is whole",
    "evaluation/questions.py": "what is written, after `require_no_database`",
    "formats/convert/worker.py": "a process of its own",
    "ingest/read_ahead.py": "a process of its own",
    "models/encoder.py": "packaged assets and weights",
    "models/tokens.py": "packaged assets",
    "server/run.py": "the standard streams",
    "server/running.py": "notes of running servers in the user's folder",
    "sources/bundle.py": "a folder of its own; what is written: a bundle has a name of its own",
    "sources/captured.py": "a folder of its own",
    "sources/web.py": "the cache",
    "store/connection.py": "packaged SQL",
    "store/opening.py": "a new file, and the end of a journal, before it is opened",
    "store/mark.py": "notes of files in the user's folder",
    "store/replication/follow.py": "a folder of its own",
    "store/replication/replicate.py": "Litestream's notes",
    "store/schema.py": "packaged SQL",
    "text/assets.py": "packaged assets",
}
OPENERS = {"open", "fdopen", "memmap", "read_bytes", "read_text", "write_bytes", "write_text"}
NOT_FILES = {"webbrowser", "self", "archive", "_clients"}  # what else has a method `open`


def test_files_are_opened_in_one_place() -> None:
    """A descriptor of an open database, opened and closed elsewhere, takes the process's locks."""
    elsewhere = set()
    for file in (ROOT / "kb").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        imported = {
            name.asname or name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kb.")
            for name in node.names
        }
        if any(_opens_a_file(node, imported) for node in ast.walk(tree)):
            elsewhere.add(file.relative_to(ROOT / "kb").as_posix())
    assert elsewhere == set(OWN_FILES)


def _opens_a_file(node: ast.AST, imported: set[str]) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in OPENERS and name not in imported
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
            return name in OPENERS and owner not in NOT_FILES
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=owner), attr=name)):
            return name in OPENERS and owner not in NOT_FILES
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in OPENERS
    return False


# Who may ask which system it is, beside `kb.disk.system`: what lies below it, and what writes for
# all systems.
ASKS_FOR_SYSTEM = {
    "assistants/catalog.py": "where other programs have their settings, also of a made-up machine",
    "disk/system.py": "the place itself",
    "formats/convert/worker.py": "names of what it forbids",
    "models/embedder.py": "how many cores",
    "settings.py": "the user's folders",
    "text/file_names.py": "what separates names",
}
# What some systems lack, and Python there.
LACKING = re.compile(
    r"\bsys\.platform\b|\bos\.(?:name|sep|altsep|uname|fork|killpg|chown|set_blocking|sysconf|getuid"
    r"|O_(?:NOFOLLOW|NONBLOCK|DIRECTORY|CLOEXEC|BINARY)|copy_file_range|supports_dir_fd)\b"
    r"|\bimport (?:fcntl|resource|pwd|grp|termios|msvcrt|winreg)\b|\bAF_UNIX\b"
    r"|\bsignal\.(?:SIGHUP|SIGKILL|SIGBREAK|SIGQUIT|alarm|setitimer|pause)\b"
    r"|\bstart_new_session\b|\bcreationflags\b|\bpreexec_fn\b|\bpthread_getcpuclockid\b"
    r"|(?:hasattr|getattr)\((?:os|signal|socket|time|resource),"
)


def test_one_module_knows_the_system() -> None:
    elsewhere = {
        file.relative_to(ROOT / "kb").as_posix(): lines
        for file in (ROOT / "kb").rglob("*.py")
        if (lines := LACKING.findall(file.read_text(encoding="utf-8")))
    }
    assert elsewhere.keys() == ASKS_FOR_SYSTEM.keys(), elsewhere


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
    if len(module) == 1:  # the package's own, such as kb.open
        file = ROOT / "kb" / "__init__.py"
    return (
        file.exists()
        and re.search(
            rf"^(?:async )?(?:def|class) {name}\b|^{name}\b", file.read_text(encoding="utf-8"), re.M
        )
        is not None
    )


def test_the_listing_is_short() -> None:
    entries = [path for path in (ROOT / "kb").iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 26


def test_no_module_is_longer_than_600_lines() -> None:
    lines = {
        str(file.relative_to(ROOT)): file.read_text(encoding="utf-8").count("\n")
        for file in (ROOT / "kb").rglob("*.py")
    }
    assert not {file: count for file, count in lines.items() if count > 600}
