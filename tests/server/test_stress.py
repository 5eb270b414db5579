"""A small share of what `scripts/stress` does; docs/reliability.md has the recorded runs."""

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
from support import ROOT, skip_without_git


def test_whatever_a_client_sends_is_answered_and_nothing_ends_the_server(tmp_path: Path) -> None:
    loader = SourceFileLoader("stress_protocol", str(ROOT / "scripts" / "stress" / "protocol"))
    spec = spec_from_loader("stress_protocol", loader)
    assert spec is not None
    script = module_from_spec(spec)
    loader.exec_module(script)
    stress = script.stressed(300, 7, tmp_path)
    # How long an answer takes is measured where the machine is quiet.
    failures = [one for one in stress.failures if not one.startswith("hangs")]
    assert failures == []
    assert stress.counts["", "tracebacks"] == 0
    assert sum(number for (_, what), number in stress.counts.items() if what == "inputs") == 300


@pytest.mark.parametrize(
    ("script", "bounds"),
    [
        ("fuzz", ["--inputs", "400"]),
        ("commands", ["--inputs", "200"]),
        ("damage", ["--files", "8"]),
        ("kills", ["--kills", "4"]),
        ("copies", ["--writes", "12"]),
        ("clients", ["--clients", "2", "--calls", "25"]),
        ("opens", ["--rounds", "1", "--processes", "3"]),
        ("calls", ["--calls", "120"]),
        ("growth", ["--pages", "8", "--rounds", "3"]),
        (
            "http",
            "--clients 6 --files 2 --pause 300 --revoke 700 --seconds 5".split(),
        ),
        ("sources", ["--cases", "10"]),
        ("replication", ["--writes", "40", "--rounds", "1", "--only", "folder", "--turns", "2"]),
        ("workers", ["--rounds", "1", "--documents", "12"]),
    ],
)
def test_a_share_of_the_stress_passes(script: str, bounds: list[str]) -> None:
    if script == "sources":
        skip_without_git()
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "stress" / script, "--seed", "3", *bounds],
        capture_output=True,
        text=True,
        timeout=300,
    )
    # How long things take is measured where the machine is quiet.
    failures = [line for line in run.stderr.splitlines() if line.startswith("FAILED")]
    assert [line for line in failures if "grew by" not in line and " s: " not in line] == []
    assert "| --- |" in run.stdout or "|---|" in run.stdout, run.stderr[-2000:]
