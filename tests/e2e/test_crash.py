"""The crash campaign, short: a real `run` is killed again and again and judged from outside (docs/verification.md)."""

from __future__ import annotations

import pytest

from benchmarks.crash.campaign import campaign
from benchmarks.crash.fates import Means
from benchmarks.crash.report import report_lines
from benchmarks.crash.round import Script
from benchmarks.crash.trial import TRIALS, Trial
from tests.effort import examples

ROUNDS, KILLS = examples(2), 7  # of each round
SEED = 21
TRIED = ("orphans", "verify")  # the others are tried by the long form


@pytest.mark.timeout(600)
def test_whatever_it_is_killed_by_it_goes_on_and_keeps_its_promises() -> None:
    result = campaign(0, SEED, rounds=ROUNDS, jobs=2, script=Script(most_kills=KILLS))
    assert result.well, "\n".join(report_lines(result))
    tally = result.tally  # a campaign that kills only idle processes proves nothing
    assert tally.kills.total() >= ROUNDS * KILLS / 2
    assert tally.landed.total() >= tally.kills.total() / 3
    assert tally.kills[Means.MERGE] + tally.kills[Means.STORE] + tally.kills[Means.GIT] >= 2
    assert tally.restarts >= tally.kills.total()
    assert sum(count for what, count in tally.commands.items() if what.endswith("done")) >= 1
    assert result.merges >= 10 * ROUNDS


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "trial", [trial for trial in TRIALS if trial.sabotage in TRIED], ids=lambda each: each.sabotage
)
def test_a_product_with_one_defence_taken_out_does_not_pass(trial: Trial) -> None:
    assert trial.seen()
