"""The crash campaign, short: a real `run` is killed again and again and judged from outside (docs/verification.md)."""

from __future__ import annotations

import signal

import pytest

from benchmarks.crash.campaign import Demand, campaign
from benchmarks.crash.fates import FAULTS, Fate, Means
from benchmarks.crash.report import report_lines
from benchmarks.crash.round import Script
from benchmarks.crash.trial import TRIALS, Trial
from tests.effort import examples

ROUNDS = examples(2)
SEED = 7
TRIED = ("orphans", "verify", "unknown-done")  # the others are tried by the long form

#: Most of them meet agents at work, on any machine: the long form draws its own.
KILLS = (
    Fate(Means.STORE, place="sqlite.before-migration-commit", passage=1),
    Fate(Means.INSTANT, 0.05),
    Fate(Means.MERGE, place="dispatch: merge", passage=1, moment="after"),
    Fate(Means.AGENT, place="spawn", passage=2),
    Fate(Means.SUSPENDED, 0.05, moment="beside", way="told"),
    Fate(Means.STORE, 0.1, "sqlite.inside-write", 4),
    Fate(Means.INSTANT, 0.2),
    Fate(Means.RIVAL, 0.05),
    Fate(Means.ASKED, 0.05, signals=(signal.SIGTERM,)),
)
#: One of each fault, each ended by a kill; and a kill where a claim is on its way, and where a batch is.
TROUBLES = (
    Fate(Means.STORE, place="postgres.before-claim-commit", passage=1),
    Fate(Means.RESTART, 0.1, lasts_s=0.1, awaits=True),
    Fate(Means.SUSPENDED, 0.1, moment="alone", way="expired"),
    Fate(Means.UNANSWERED, 0.0, "COMMIT", 1, "after", awaits=True),
    Fate(Means.STORE, 0.1, "postgres.inside-write", 4),
    Fate(Means.PARTED, 0.1, moment="beside", way="told"),
    Fate(Means.RESET, 0.05),
    Fate(Means.SILENT, 0.05, lasts_s=0.6, within=True),
    Fate(Means.INSTANT, 0.05),
)


@pytest.mark.timeout(600)
def test_whatever_it_is_killed_by_it_goes_on_and_keeps_its_promises() -> None:
    result = campaign("sqlite", Demand(rounds=ROUNDS), SEED, jobs=2, script=Script(KILLS, len(KILLS)))
    assert result.well, "\n".join(report_lines(result))
    tally = result.tally  # a campaign that kills only idle processes proves nothing
    assert tally.kills.total() >= ROUNDS * len(KILLS) / 2
    assert tally.landed.total() >= tally.kills.total() / 3
    assert tally.kills[Means.MERGE] + tally.kills[Means.STORE] + tally.kills[Means.GIT] >= 2
    assert tally.restarts >= tally.kills.total()
    assert sum(count for what, count in tally.commands.items() if what.endswith("done")) >= 1
    assert result.merges >= 10 * ROUNDS


@pytest.mark.timeout(600)
def test_whatever_comes_between_it_and_its_server_it_goes_on_and_keeps_its_promises() -> None:
    result = campaign("postgresql", Demand(rounds=1), SEED, script=Script(TROUBLES, len(TROUBLES)))
    assert result.well, "\n".join(report_lines(result))
    met = [means for means in FAULTS if result.tally.struck[means]]
    assert len(met) >= len(FAULTS) - 1, "a run may have come to its end before one of them"
    assert result.tally.refused >= 1
    assert result.merges >= 10


def test_a_campaign_that_is_broken_off_begins_no_round_and_counts_for_nothing() -> None:
    result = campaign("sqlite", Demand(rounds=ROUNDS), SEED, broken_off=lambda: True)
    assert result.rounds == 0
    assert "VOID: it was broken off" in report_lines(result)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "trial", [trial for trial in TRIALS if trial.sabotage in TRIED], ids=lambda each: each.sabotage
)
def test_a_product_with_one_defence_taken_out_does_not_pass(trial: Trial) -> None:
    assert trial.seen()
