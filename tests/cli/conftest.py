"""A project with documents, and commands that run in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import Outcome, Run

from kb.cli.main import main


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with some documents, as the working directory."""
    folder = tmp_path / "project"
    (folder / "docs" / "guide").mkdir(parents=True)
    (folder / ".git").mkdir()
    write = {
        "wind.md": "# Wind\n\nquartz line\n\n## Gusts\n\nblow\n",
        "guide/rain.md": "# Rain\n\nmarble gauge\n",
        "guide/sub dir.md": "---\ntitle: A space\n---\nquartz again\n",
        "guide/caf\u00e9 漢字.md": "# Café\n\n日本語の全文検索テスト\n",
    }
    for path, text in write.items():
        (folder / "docs" / path).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(project: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command in this process."""

    def run_command(*arguments: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        code = ended.value.code
        assert isinstance(code, int)
        return Outcome(code, *capsys.readouterr())

    return run_command


@pytest.fixture
def filled(run: Run) -> Run:
    """The same, with the documents in the file (not embedded: no model is loaded)."""
    assert run("add", "docs", "--no-embed", "--quiet") == (0, "", "")
    return run


@pytest.fixture
def embedded(run: Run, windrose_copy: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same on the embedded fixture corpus."""
    monkeypatch.setenv("KB_DB", str(windrose_copy))
    return run
