"""The plain model gives exactly what the given cases expect: only then may it judge anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.stateful.model import Model

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def test_the_cases_are_here() -> None:
    assert len(CASES) == 27


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_model_agrees(path: Path) -> None:
    case = json.loads(path.read_text())
    model = Model(case["cores"])
    for number, step in enumerate(case["steps"], 1):
        answer = model.answer(step)
        assert {**model.observe(), **answer} == step["expect"], f"step {number}: {step}"
