"""Kafka's consumer group in trouble, short: the trials of `benchmarks.members`, one after the other."""

from __future__ import annotations

import pytest

from benchmarks.members.__main__ import lines
from benchmarks.members.stage import stage
from benchmarks.members.trials import Report, churn, deadly, lost_answers

WORKERS = 2


def check(report: Report) -> None:
    assert report.problems == [], "\n".join(lines(report))


@pytest.mark.timeout(300)
def test_turns_are_done_once_whatever_befalls_those_who_put_and_take_them() -> None:
    """The records' acknowledgements are lost, turns kill their worker, members come and go."""
    with stage(0) as on:
        check(lost_answers(on, 3, WORKERS))
        check(deadly(on, 1, 3))
        check(churn(on, 5.0, 1, calm_s=6.0, watched_s=3.0))
