"""When a keyframe is due, what may go, and how the setting is read."""

from __future__ import annotations

import math

import pytest

from dispatch.retention import DAYS, VARIABLE, Retention, RetentionError
from dispatch.store.port import Logged

DAY = 86_400.0
NOW = 1_000 * DAY


@pytest.mark.parametrize(
    ("days", "entries", "newest", "last", "wanted"),
    [
        (8, 10**6, (0, NOW - DAY + 1), 5, False),
        (8, 10**6, (0, NOW - DAY), 5, True),
        (8, 10**6, (5, NOW - 9 * DAY), 5, False),  # nothing has happened since
        (8, 80_000, (0, NOW), 9_999, False),
        (8, 80_000, (0, NOW), 10_000, True),
        (8, 80, (0, NOW), 999, False),  # never more often than every thousand entries
        (8, 80, (0, NOW), 1_000, True),
        (0, 10**6, (0, NOW - 3_599), 5, False),  # nor every hour
        (0, 10**6, (0, NOW - 3_600), 5, True),
        (math.inf, 10**6, (0, 0.0), 5, False),
        (8, 10**6, (0, NOW + DAY), 5, False),  # the clock was set back
    ],
)
def test_keyframes_are_eight_to_the_span(
    days: float, entries: int, newest: tuple[int, float], last: int, wanted: bool
) -> None:
    assert Retention(days, entries).wants_keyframe(newest, last, NOW) is wanted


@pytest.mark.parametrize(
    ("days", "entries", "frames", "outlived"),
    [
        (8, 10**6, (), 0),
        (8, 10**6, ((0, NOW - 7 * DAY),), 0),
        (8, 10**6, ((3, NOW - 8 * DAY),), 3),
        (8, 10**6, ((3, NOW - 10 * DAY), (5, NOW - 9 * DAY), (7, NOW - 7 * DAY)), 5),
        (8, 90, ((3, NOW), (10, NOW), (11, NOW)), 10),  # of 100 entries the last 90 are kept
        (0, 10**6, ((3, NOW - 3_599),), 0),
        (0, 10**6, ((3, NOW - 3_600),), 3),
        (math.inf, 10**6, ((3, 0.0),), 0),
    ],
)
def test_what_comes_before_a_keyframe_that_is_old_enough_may_go(
    days: float, entries: int, frames: tuple[tuple[int, float], ...], outlived: int
) -> None:
    assert Retention(days, entries).outlived(Logged(100, frames), NOW) == outlived


@pytest.mark.parametrize(
    ("given", "environment", "days"),
    [(None, "", DAYS), (None, "7", 7), (None, "0.5", 0.5), (None, "inf", math.inf), (2, "7", 2), (0, "7", 0)],
)
def test_the_setting_is_the_callers_or_the_environments(
    monkeypatch: pytest.MonkeyPatch, given: float | None, environment: str, days: float
) -> None:
    monkeypatch.setenv(VARIABLE, environment)
    assert Retention.of(given).days == days


@pytest.mark.parametrize(
    ("given", "environment", "words"),
    [
        (None, "a month", "DISPATCH_HISTORY_DAYS is 'a month'"),
        (None, "-1", "DISPATCH_HISTORY_DAYS is '-1'"),
        (None, "nan", "DISPATCH_HISTORY_DAYS is 'nan'"),
        (-1.0, "7", "history_days is '-1.0'"),
    ],
)
def test_a_setting_that_cannot_be_read_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: float | None, environment: str, words: str
) -> None:
    monkeypatch.setenv(VARIABLE, environment)
    with pytest.raises(RetentionError, match=words):
        Retention.of(given)
