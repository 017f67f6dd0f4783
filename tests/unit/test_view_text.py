from __future__ import annotations

import pytest
from rich.cells import cell_len

from dispatch.text import listed
from dispatch.view.text import clean, count, cut, elapsed, fit, folded, hold_words, line, moment


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0.0s"),
        (0, "0.0s"),
        (3.14, "3.1s"),
        (9.949, "9.9s"),
        (9.95, "10s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (185, "3m05s"),
        (3599.7, "1h00m"),
        (7620, "2h07m"),
        (86_400, "1d00h"),
        (273_600, "3d04h"),
    ],
)
def test_elapsed(seconds: float, words: str) -> None:
    assert elapsed(seconds) == words


@pytest.mark.parametrize(
    ("text", "cells", "shown"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 4, "abc…"),
        ("abcdef", 1, "…"),
        ("abcdef", 0, ""),
        ("", 2, "  "),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日 …"),
        ("日本語", 7, "日本語 "),
    ],
)
def test_fit_fills_or_cuts_to_exactly_so_many_cells(text: str, cells: int, shown: str) -> None:
    assert fit(text, cells) == shown
    assert cell_len(shown) == cells


def test_cut_leaves_what_fits_alone() -> None:
    assert (cut("abc", 3), cut("abcd", 3)) == ("abc", "ab…")


def test_clean_takes_the_power_over_the_terminal_from_a_text() -> None:
    shown = clean("\x1b[31mred\x1b[0m\a\x9b2J\u202egnp\nnext")
    assert shown.isprintable()
    assert "red" in shown
    assert "\x1b" not in shown


def test_a_line_is_cut_and_its_markup_is_text() -> None:
    assert line("[bold]a[/bold]", ("bc", "red"), cells=40).plain == "[bold]a[/bold]bc"
    assert line("abcdef", cells=4).plain == "abc…"
    assert line("日本語", cells=5).cell_len <= 5
    assert line("abc", cells=0).plain == ""


@pytest.mark.parametrize(
    ("parts", "cells", "rows"),
    [
        (("one two",), 20, ["id: one two"]),
        (("one", "two"), 20, ["id: one  two"]),
        (("one two three four",), 11, ["id: one two", "  three", "  four"]),
        (("longer than that",), 8, ["id: ", "  longer", "  than", "  that"]),
        (("unbreakable x",), 8, ["id: ", "  unbrea", "  kable", "  x"]),
        (("日本語",), 6, ["id: ", "  日本", "  語"]),
        (("",), 8, ["id: "]),
        ((), 2, ["i…"]),
    ],
)
def test_what_is_folded_is_all_there_and_no_wider(parts: tuple[str, ...], cells: int, rows: list[str]) -> None:
    told = list(folded(["id: "], *parts, indent=2, cells=cells))
    assert [text.plain for text in told] == rows
    assert all(text.cell_len <= cells for text in told)


def test_counts_and_lists() -> None:
    assert [count(1, "slice"), count(1234, "slice"), count(0, "entry", "entries")] == [
        "1 slice",
        "1,234 slices",
        "0 entries",
    ]
    assert listed(("a", "b", "c"), 3) == "a, b, c"
    assert listed(("a", "b", "c", "d"), 2) == "a, b and 2 more"


def test_moments_are_utc_and_none_is_empty() -> None:
    assert (moment(0.0), moment(1_000_000.0)) == ("", "1970-01-12T13:46:40Z")


def test_a_hold_without_a_reason_is_said_once() -> None:
    assert [hold_words(reason) for reason in ("held", "not now")] == ["held", "held: not now"]
