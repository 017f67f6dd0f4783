"""The fencing campaign, short: real workers are killed, suspended and cut off, and judged from outside."""

from __future__ import annotations

import pytest

from benchmarks.fencing.__main__ import lines
from benchmarks.fencing.campaign import is_seen, play
from benchmarks.fencing.grounds import KINDS
from benchmarks.fencing.sabotage import SABOTAGES
from tests.effort import examples

SEED = 1


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_befalls_workers_each_turn_ends_once_and_nothing_stale_is_done(kind: str) -> None:
    turns = examples(40)
    result = play(kind, turns, SEED)
    assert result.verdict.violations == (), "\n".join(lines(result))
    assert sum(result.states.values()) == turns
    assert result.states["succeeded"] >= 0.8 * turns
    assert result.faults.total() >= 1 and result.attempts > result.states["succeeded"] * 0.9


@pytest.mark.timeout(400)
@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_workers_with_one_defence_taken_out_do_not_pass(sabotage: str) -> None:
    assert any(is_seen(sabotage, 30, seed) for seed in (1, 2, 3))
