"""What takes long to count is not counted all the time."""

from __future__ import annotations

import pytest

from harness.fleet.counting import Counts
from harness.fleet.errors import FleetUnavailableError
from harness.fleet.ports import Tally
from tests.unit.fleet_desk import Authority


class Slow(Authority):
    """Takes `takes_s` for a tally, by a clock of its own."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.time_s, self.takes_s, self.asked = 100.0, 2.0, 0

    def tally(self) -> Tally:
        self.asked += 1
        self.time_s += self.takes_s
        return super().tally()


@pytest.fixture
def slow() -> Slow:
    return Slow()


def test_a_long_count_is_good_for_ten_times_as_long(slow: Slow) -> None:
    counts = Counts(slow, lambda: slow.time_s)
    first = counts.tally()  # from 100 to 102
    slow.time_s = 119.9
    assert counts.tally() is first
    slow.time_s = 120.0
    assert counts.tally() is not first
    assert slow.asked == 2


def test_a_short_one_is_made_each_time(slow: Slow) -> None:
    slow.takes_s = 0.04
    counts = Counts(slow, lambda: slow.time_s)
    for _ in range(3):
        counts.tally()
    assert slow.asked == 3


def test_what_failed_is_no_count(slow: Slow) -> None:
    counts = Counts(slow, lambda: slow.time_s)
    slow.is_away = True
    with pytest.raises(FleetUnavailableError):
        counts.tally()
    slow.is_away = False
    assert counts.tally().at == 0.0
