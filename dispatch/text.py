"""Text from outside: what every store can hold and every terminal can show."""

from __future__ import annotations

from collections.abc import Sequence

from harness.text import storable


def check_text(text: object, *, printable: bool = False) -> str:
    """The text, if every store can hold it (no NUL, no lone surrogate). Raises `ValueError` with the problem."""
    if type(text) is str and text.isascii() and text.isprintable():
        return text  # nearly every text: one look instead of four
    if not isinstance(text, str):
        raise ValueError(f"must be text, not {type(text).__name__}")  # noqa: TRY004 - one kind of refusal for callers
    if "\0" in text:
        raise ValueError("holds a NUL character")
    if not text.isascii() and text != storable(text, len(text)):
        raise ValueError("holds a lone surrogate, which is no character")
    if printable and not text.isprintable():
        raise ValueError(f"holds a character that can't be printed: {text!r:.80}")
    return text


def listed(names: Sequence[str], most: int) -> str:
    """The first `most` of the names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
