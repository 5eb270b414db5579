"""What a shell completes, asked by a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kb.cli.commands import SHELLS

# The shell's own function is called as bash does when somebody presses the key.
ASK = """
eval "$(kb completion bash)"
for COMP_LINE in "$@"; do
    COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMPREPLY=()
    read -ra COMP_WORDS <<<"$COMP_LINE"
    [[ $COMP_LINE == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _python_argcomplete "${COMP_WORDS[0]}" "" ""
    echo "${COMPREPLY[*]}"
done
"""


def environment() -> dict[str, str]:
    programs = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": os.pathsep.join([programs, os.environ["PATH"]])}


def completions(folder: Path, *lines: str) -> list[list[str]]:
    """What bash offers for each line."""
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", *lines],
        cwd=folder,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stderr == ""
    return [line.split() for line in done.stdout.splitlines()]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two collections."""
    for name in ("guide", "glossary"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}-wind.md").write_text("# Wind\n")
    (tmp_path / "guide" / "rain.md").write_text("# Rain\n")
    for name in ("guide", "glossary"):
        subprocess.run(
            ["kb", "add", name, "--no-embed"],
            cwd=tmp_path,
            env=environment(),
            check=True,
            capture_output=True,
        )
    return tmp_path


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
def test_bash_completes_commands_options_and_what_the_file_holds(project: Path) -> None:
    commands, options, collections, documents, one, client, tool, other = completions(
        project,
        "kb st",
        "kb status --ca",
        "kb search wind -c g",
        "kb get g",
        "kbfile outline -c guide ra",
        "kb install claude-d",
        "kb tool documents_list_c",
        "kb --db /nowhere/kb.db get g",
    )
    assert commands == ["status"]
    assert options == ["--calls"]
    assert collections == ["glossary", "guide"]
    assert documents == ["glossary-wind.md", "guide-wind.md"]
    assert one == ["rain.md"]
    assert client == ["claude-desktop"]
    assert tool == ["documents_list_collections"]
    assert other == []


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish on this machine")
def test_fish_completes_from_a_file_and_not_for_another_program(project: Path) -> None:
    home = {**environment(), "HOME": str(project), "XDG_CONFIG_HOME": str(project / "config")}
    script = """
        mkdir -p $XDG_CONFIG_HOME/fish/completions
        kb completion fish > $XDG_CONFIG_HOME/fish/completions/kb.fish
        fish -c "complete -C 'kb st'; complete -C 'kb te'; complete -C 'kb install claude-d'"
    """
    done = subprocess.run(
        ["bash", "-c", script], cwd=project, env=home, capture_output=True, encoding="utf-8"
    )
    # Not `template`, which the kb has that fish knows of.
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [
        *("status", "claude-desktop")
    ]
    assert done.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_function_for_both_names(shell: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["kb", "completion", shell],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert "kb" in done.stdout
    assert "kbfile" in done.stdout
    if (program := shutil.which(shell)) is not None:
        check = [program, "--no-execute"] if shell == "fish" else [program, "-n"]
        subprocess.run(check, input=done.stdout, encoding="utf-8", check=True)
