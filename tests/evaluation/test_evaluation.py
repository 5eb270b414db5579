"""The measures of retrieval quality."""

import random
import subprocess
import sys
from pathlib import Path

import ir_measures
import pytest
from support import ROOT

from kb.evaluation.judged import MEASURES, Judged, Run, measure, measures_of


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="ir-measures uses ast.Num, which Python 3.14 has not"
)
@pytest.mark.filterwarnings("ignore:ast.Num is deprecated:DeprecationWarning")  # from 3.12 on
def test_measures_agree_with_ir_measures() -> None:
    chance = random.Random(7)
    judgements: dict[str, dict[str, int]] = {}
    ranked: dict[str, list[str]] = {}
    for number in range(200):
        documents = [f"d{i}" for i in range(150)]
        chance.shuffle(documents)
        key = f"q{number}"
        ranked[key] = documents[: chance.choice((1, 5, 20, 120))]
        chance.shuffle(documents)
        judgements[key] = {
            name: chance.choice((0, 1, 1, 2, 3)) for name in documents[: chance.randint(1, 30)]
        }
    scored = {
        key: {name: float(len(names) - rank) for rank, name in enumerate(names)}
        for key, names in ranked.items()
    }
    known = [ir_measures.parse_measure(name) for name in MEASURES]
    for metric in ir_measures.iter_calc(known, judgements, scored):
        own = measures_of(ranked[metric.query_id], judgements[metric.query_id])
        assert own[str(metric.measure)] == pytest.approx(metric.value), metric
    run = Run(documents=ranked)
    means = measure(Judged(dict.fromkeys(judgements, ""), judgements), run)
    wanted = ir_measures.calc_aggregate(known, judgements, scored)
    assert {name: means[name] for name in MEASURES} == pytest.approx(
        {str(name): value for name, value in wanted.items()}
    )


def test_evaluation_runs_without_the_library_that_it_is_checked_with(
    windrose_copy: Path, tmp_path: Path
) -> None:
    (tmp_path / "ir_measures.py").write_text("raise ImportError('not in a plain installation')\n")
    questions = ROOT / "fixtures" / "windrose-questions.jsonl"
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kb.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, "--db", str(windrose_copy), "eval", str(questions)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split("\t")[0]) == (0, "keyword"), done.stderr
