"""The campaign of envelopes, short: strays of all kinds among good turns, real workers, judged from outside."""

from __future__ import annotations

import pytest

from benchmarks.envelopes.__main__ import lines
from benchmarks.envelopes.campaign import KINDS, is_seen, play
from benchmarks.envelopes.mix import STRAYS
from benchmarks.envelopes.sabotage import SABOTAGES
from tests.effort import examples

SEED = 1


@pytest.mark.timeout(400)
@pytest.mark.parametrize("fleet", KINDS)
def test_each_stray_ends_where_the_contract_says_and_keeps_nothing_waiting(fleet: str) -> None:
    count = examples(300)
    result = play(fleet, count, SEED)
    assert result.verdict.violations == (), "\n".join(lines(result))
    assert result.planted.keys() == STRAYS.keys() and result.planted.total() == count
    assert result.poisons >= 30 and result.verdict.delays_s
    assert result.runs >= result.good == count // 10


@pytest.mark.timeout(400)
@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_workers_with_one_defence_taken_out_do_not_pass(sabotage: str) -> None:
    assert is_seen(sabotage, 120, SEED)
