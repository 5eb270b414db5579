"""What is near to the best passages counts as near to the query."""

import numpy as np
import pytest

from kb.models.embedder import BUNDLED_CALIBRATION, Calibration, quantize
from kb.search.evidence import fed_back
from kb.search.ranking import Evidence

DICE = np.random.default_rng(7)
DIMENSIONS = 64


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


QUERY = unit(DICE.standard_normal(DIMENSIONS))
STORED = quantize(
    np.stack([unit(QUERY + 0.3 * DICE.standard_normal(DIMENSIONS)) for _ in range(8)])
)
NEAR = [unit(vector.astype(np.float64)) for vector in STORED]
VECTORS = [vector.tobytes() for vector in STORED]


def candidates(words: dict[int, float]) -> list[Evidence]:
    return [
        Evidence(number, number, words.get(number, 0.0), 0.0, cosine=float(QUERY @ vector))
        for number, vector in enumerate(NEAR)
    ]


def test_nearness_is_that_to_the_query_and_the_three_best() -> None:
    known = candidates({5: 0.9, 1: 0.8, 6: 0.7})
    asked = unit(QUERY + 0.2 * (NEAR[5] + NEAR[1] + NEAR[6]) / 3)
    found = fed_back(known, VECTORS, 1.0, BUNDLED_CALIBRATION.standard)
    assert [one.cosine for one in found] == pytest.approx([float(asked @ near) for near in NEAR])
    assert [one._replace(cosine=None) for one in found] == [
        one._replace(cosine=None) for one in known
    ]


def test_another_model_counts_by_cosines_of_the_packaged_one() -> None:
    other = Calibration(BUNDLED_CALIBRATION.slope * 2, BUNDLED_CALIBRATION.intercept)
    known = [one._replace(cosine=other.standard(one.cosine or 0.0)) for one in candidates({5: 0.9})]
    once = fed_back(known, VECTORS, 1.0, other.standard)
    assert once != fed_back(known, VECTORS, 1.0, BUNDLED_CALIBRATION.standard)
    assert once[5].cosine is not None
    assert once[5].cosine > (known[5].cosine or 0.0)


def test_a_passage_alone_is_hardly_evidence_for_itself() -> None:
    alone = Evidence(0, 0, 0.0, 0.0, cosine=0.1)
    (found,) = fed_back([alone], VECTORS, 1.0, BUNDLED_CALIBRATION.standard)
    assert 0.1 < (found.cosine or 0.0) < 0.17


def test_what_has_no_meaning_stays_as_it_is() -> None:
    known = candidates({5: 0.9})
    waiting = Evidence(99, 99, 0.5, 0.5)
    standard = BUNDLED_CALIBRATION.standard
    assert fed_back(known, VECTORS, 0.0, standard) == known
    assert fed_back([waiting], [b""], 1.0, standard) == [waiting]
    found = fed_back([waiting, *known], [b"", *VECTORS], 1.0, standard)
    assert found[0] == waiting
    assert found[1:] == fed_back(known, VECTORS, 1.0, standard)
