"""Files that a cloned project brings along cannot hold anything up, whatever is in them.

An expression that tries again and again does so inside the engine, where no other thread gets a
turn and no exception arrives: so each of these runs in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE = 120  # seconds; each takes less than one
MANY = 300_000

OUTLINE = """
import json, sys
from pathlib import Path
from kb.project.overview import read_stack
from kb.project.tree import imports
root = Path(sys.argv[1])
found = [dependency.path for name in ("main.go", "main.ts") for dependency in imports(root, name)]
names = sorted(path.name for path in root.iterdir())
print(json.dumps([found, [row["manifest"] for row in read_stack(root, names)]]))
"""
FILES = {
    "main.go": 'package main\nimport "x/sub"\n',
    "main.ts": 'import a from "~/a"\n',
    "a.ts": "",
    "sub/b.go": "package sub\n",
}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tsconfig.json", "/* " * MANY),
        ("tsconfig.json", '"' + '\\"' * MANY),
        ("tsconfig.json", ',""' * MANY),
        ("tsconfig.json", ", " * MANY),
        ("package.json", '{"a":' * 100_000),
        ("package.json", json.dumps({"workspaces": ["a" * 3_000, "\ud800/*", "a\0b/*"]})),
        ("go.mod", "\n" * MANY),
        ("go.mod", "replace " + "a" * MANY),
        ("go.work", "use ./" + " ." * MANY),
        ("build.gradle", "api" + " " * MANY + "x"),
        ("Gemfile", "\n" * MANY),
        ("pom.xml", "<artifactId>" * 50_000 + " " * MANY),
        ("pyproject.toml", "a = " + "[" * 100_000),
        ("CMakeLists.txt", "project" + " " * MANY),
    ],
    ids=lambda value: value[:12].strip(),
)
def test_no_manifest_or_configuration_holds_a_reader_up(
    name: str, content: str, tmp_path: Path
) -> None:
    for path, text in {**FILES, name: content}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", OUTLINE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, stack = json.loads(done.stdout)
    assert stack == ([name] if name not in ("tsconfig.json", "go.work") else [])


def test_what_they_say_is_still_read(tmp_path: Path) -> None:
    files = {
        **FILES,
        "tsconfig.json": '{ // a\n "compilerOptions": {"paths": {"~/*": ["./*"]}, /* b */},\n}',
        "go.mod": "  module x\n\nreplace y v1 => ./sub\n",
        "Gemfile": '\n\n  gem "rails"\n gem \'puma\', "1"\n',
        "build.gradle": "implementation ( 'a:b:1' )\n  api \"c:d:2\"\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", OUTLINE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    found, stack = json.loads(done.stdout)
    assert found == ["sub/b.go", "a.ts"]
    assert stack == ["Gemfile", "build.gradle", "go.mod"]
