"""What docs/deploy shows: the files are well-formed, and their commands are ones of ours."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import ROOT

from kb.cli.commands import parse

DEPLOY = ROOT / "docs" / "deploy"
UNIT = DEPLOY / "kb.service"


def unit() -> configparser.ConfigParser:
    """The unit; of a key that stands twice the last one counts, as most do here."""
    found = configparser.ConfigParser(strict=False, interpolation=None, delimiters="=")
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(UNIT.read_text(encoding="utf-8"))
    return found


def compose() -> dict[str, object]:
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def commands() -> list[list[str]]:
    started = shlex.split(unit()["Service"]["ExecStart"])
    texts = [started[1:], compose()["services"]["kb"]["command"][1:]]  # type: ignore[index]
    for file in ("kb.service", "compose.yaml"):
        for line in (DEPLOY / file).read_text(encoding="utf-8").splitlines():
            if line.startswith("#") and " kb --db " in line.replace("/opt/kb/bin/kb", " kb"):
                words = shlex.split(line.removeprefix("#"))
                texts.append(words[words.index("--db") :])
    return texts


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_the_command_lines_are_taken(command: list[str]) -> None:
    options = parse(command)
    assert options.command in ("serve.serve", "care.token")
    if options.command == "serve.serve":
        assert options.http
        assert options.db_folder
        assert options.token_file
        assert options.access_log == "-"


def test_the_container_may_do_as_little_as_it_needs() -> None:
    service = compose()["services"]["kb"]  # type: ignore[index]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert set(service["secrets"]) == set(compose()["secrets"])  # type: ignore[call-overload]
    assert "USER kb" in service["build"]["dockerfile_inline"]


def test_the_unit_may_do_as_little_as_it_needs() -> None:
    service = unit()["Service"]
    assert service["User"] != "root"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    here = Path(sys.executable).with_name("kb")  # a program that is missing would be told too
    copied = tmp_path / "kb.service"
    copied.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/kb/bin/kb", str(here)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copied)], capture_output=True, text=True
    )
    assert "kb.service" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
