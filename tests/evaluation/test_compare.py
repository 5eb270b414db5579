"""`scripts/compare` tells a difference from chance."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support import ROOT

SCRIPT = ROOT / "scripts" / "compare"


def written(file: Path, values: list[float]) -> Path:
    queries = {str(number): {"nDCG@10": value} for number, value in enumerate(values)}
    file.write_text(json.dumps({"measures": [{"mode": "hybrid", "queries": queries}]}))
    return file


def row(folder: Path, before: list[float], after: list[float]) -> list[str]:
    files = [written(folder / "a.json", before), written(folder / "b.json", after)]
    command = [sys.executable, str(SCRIPT), *map(str, files)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [cell.strip() for cell in out.splitlines()[2].strip("|").split("|")]


def test_p_is_that_of_all_signs(tmp_path: Path) -> None:
    differences = [0.3, 0.1, -0.05, 0.2, 0.15, -0.1, 0.25, 0.0]
    cells = row(tmp_path, [0.5] * 8, [0.5 + one for one in differences])
    assert cells[:5] == ["nDCG@10", "0.5000", "0.6062", "5", "2"]
    sums = [abs(np.dot(signs, differences[:7])) for signs in product((-1, 1), repeat=7)]
    exact = np.mean([one >= sum(differences) - 1e-9 for one in sums])
    assert float(cells[5]) == pytest.approx(exact, abs=0.01)


def test_the_same_twice_is_no_difference_and_one_way_always_is_one(tmp_path: Path) -> None:
    assert row(tmp_path, [0.1, 0.9], [0.1, 0.9])[3:] == ["0", "0", "1.000"]
    assert float(row(tmp_path, [0.5] * 30, [0.6] * 30)[5]) < 0.001


def test_other_questions_are_refused(tmp_path: Path) -> None:
    files = [written(tmp_path / "a.json", [0.1]), written(tmp_path / "b.json", [0.1, 0.2])]
    command = [sys.executable, str(SCRIPT), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "not about the same questions" in done.stderr
