"""Moments as they are typed: a date, a date with a time, how long ago, or the number of an entry of the log."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable

import typer

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_ENTRY = re.compile(r"\d{1,19}")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
FORMS = "2026-11-30, 2026-11-30T17:10 (UTC, unless it says otherwise), or 90s, 30m, 2h, 3d for so long ago"


def moment_of(text: str, now: float, option: str) -> float:
    """Unix seconds. Raises `typer.BadParameter` for what is no moment."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now - float(ago[1]) * _SECONDS[ago[2]]
    try:
        found = dt.datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp()
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r:.80} is no moment: write {FORMS}", param_hint=f"'{option}'") from None


def reached(text: str, now: float, option: str) -> Callable[[int, float], bool]:
    """Whether an entry, by its number and time, comes after the moment or entry that `text` names."""
    if _ENTRY.fullmatch(text.strip()):
        number = int(text)
        return lambda seq, _: seq > number
    until = moment_of(text, now, option)
    return lambda _, at: at > until
