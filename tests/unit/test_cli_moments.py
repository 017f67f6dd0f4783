"""Moments as they are typed."""

from __future__ import annotations

import datetime as dt

import pytest
import typer

from dispatch.cli.moments import moment_of, reached

NOW = 1_000_000_000.0
DAY = dt.datetime(2026, 11, 30, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-30", DAY),
        (" 2026-11-30 ", DAY),
        ("2026-11-30T17:10", DAY + 17 * 3600 + 600),
        ("2026-11-30 17:10:05.5", DAY + 17 * 3600 + 605.5),
        ("2026-11-30T17:10Z", DAY + 17 * 3600 + 600),
        ("2026-11-30T17:10+02:00", DAY + 15 * 3600 + 600),
        ("90s", NOW - 90),
        ("30m", NOW - 1800),
        ("1.5h", NOW - 5400),
        ("3d", NOW - 3 * 86_400),
    ],
)
def test_a_moment_is_read(text: str, moment: float) -> None:
    assert moment_of(text, NOW, "--since") == moment


@pytest.mark.parametrize("text", ["", "yesterday", "17:10", "2h ago", "-2h", "2026-13-01", "h", "1e9d9", "٣d\x1b[0m"])
def test_what_is_no_moment_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no moment: write 2026-11-30"):
        moment_of(text, NOW, "--since")


def test_what_is_longer_than_any_number_of_an_entry_is_no_moment() -> None:
    with pytest.raises(typer.BadParameter, match="is no moment"):
        reached("9" * 5000, NOW, "--at")


def test_a_number_is_an_entry_and_everything_else_a_time() -> None:
    assert [reached("12", NOW, "--at")(seq, 0.0) for seq in (11, 12, 13)] == [False, False, True]
    assert [reached("10s", NOW, "--at")(1, at) for at in (NOW - 11, NOW - 10, NOW - 9)] == [False, False, True]
