"""Kafka's consumer group in trouble, short: `benchmarks.members` for a moment."""

from __future__ import annotations

import pytest

from benchmarks.members.__main__ import lines
from benchmarks.members.stage import stage
from benchmarks.members.trials import Report, churn, deadly, lost_answers

WORKERS = 2


def check(report: Report) -> None:
    assert report.problems == [], "\n".join(lines(report))


@pytest.mark.timeout(300)
def test_kafka_what_is_not_told_to_have_arrived_is_submitted_again_and_done_once() -> None:
    with stage(0) as on:
        check(lost_answers(on, 4, WORKERS))


@pytest.mark.timeout(300)
def test_kafka_turns_that_kill_their_worker_end_and_hold_up_nothing_while_members_come_and_go() -> None:
    with stage(WORKERS) as on:
        check(deadly(on, 1, 3))
        check(churn(on, 8.0, 1, calm_s=8.0, watched_s=4.0))
