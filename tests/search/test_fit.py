"""`scripts/fit` ranks as the product does, and finds better constants where there are some."""

from __future__ import annotations

import math
import random
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support import ROOT

from kb.search.ranking import WEIGHTS, Evidence, rank, spread_at_top


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("fit", str(ROOT / "scripts" / "fit"))
    spec = spec_from_loader("fit", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules["fit"] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


def candidates(chance: random.Random, count: int) -> list[Evidence]:
    return [
        Evidence(
            chunk_id=number,
            document_id=number // 2,
            words=chance.random(),
            document_words=chance.random() * 1.1,
            held=chance.random(),
            rarity=chance.random(),
            telling=chance.random(),
            cosine=None if chance.random() < 0.2 else chance.uniform(-0.1, 0.9),
            document_cosine=chance.uniform(-0.1, 0.9),
            script=float(chance.random() < 0.5),
            is_titled=chance.random() < 0.1,
            is_literal=chance.random() < 0.2,
            is_typed=chance.random() < 0.1,
            is_title=chance.random() < 0.1,
            is_opening=chance.random() < 0.1,
            is_named=chance.random() < 0.1,
        )
        for number in range(count)
    ]


def asked(script: ModuleType, found: list[Evidence], right: set[int], readable: float) -> Any:
    documents = np.array([one.document_id for one in found])
    relevance = np.array([float(n in right) for n in range(int(documents.max()) + 1)])
    ideal = sum(1 / math.log2(place + 2) for place in range(min(len(right), 10)))
    return script.Asked(script.columns_of(found), documents, relevance, ideal, len(right), readable)


@pytest.mark.parametrize(("count", "readable"), [(60, 1.0), (60, 0.4), (8, 1.0), (60, 0.0)])
def test_the_fitted_function_is_the_one_that_ranks(
    script: ModuleType, count: int, readable: float
) -> None:
    found = candidates(random.Random(count), count)
    one = asked(script, found, {1}, readable)
    ours = [spread_at_top(1 - score) for score in script.scores(one, WEIGHTS)]
    theirs = {ranked.evidence.chunk_id: ranked.score for ranked in rank(found, readable)}
    assert [theirs[e.chunk_id] for e in found] == pytest.approx(ours, abs=1e-4)


def test_constants_that_fit_better_are_found(script: ModuleType) -> None:
    # What answers is what is near in meaning, and words mislead.
    chance = random.Random(3)
    questions = []
    for _ in range(12):
        found = candidates(chance, 40)
        nearest = max(found, key=lambda one: -1.0 if one.cosine is None else one.cosine)
        questions.append(asked(script, found, {nearest.document_id}, 1.0))
    sets = {"near": questions}
    fitted = script.fit(sets, 60, 1)
    assert script.worth(sets, fitted) > script.worth(sets, WEIGHTS)
    assert fitted.slope == WEIGHTS.slope
