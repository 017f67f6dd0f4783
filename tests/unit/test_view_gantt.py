from __future__ import annotations

from dispatch.view.gantt import ASCII, Bar, gantt, legend


def drawn(*bars: Bar, width: int = 27, unit: str = "s", most: int = 60) -> list[str]:
    return [text.plain for text in gantt(bars, width, glyphs=ASCII, unit=unit, most=most)]


def test_what_ran_is_drawn_over_what_was_predicted() -> None:
    bars = [
        Bar("ab", ran=((0, 5),), predicted=(0, 4)),
        Bar("c", ran=((6, 10),), lost=((0, 2), (3, 5)), predicted=(8, 12)),
        Bar("never", predicted=(10, 12)),
    ]
    assert drawn(*bars, width=30) == [
        "ab    ########==              ",
        "c     xxxx  xxxx  ====####....",
        "never                     ....",
        "      0           6.0s     12s",
    ]


def test_bars_come_in_the_order_in_which_they_begin() -> None:
    bars = (Bar("late", ran=((5, 6),)), Bar("lost", lost=((0, 1),), ran=((2, 3),)), Bar("planned", predicted=(1, 9)))
    assert [line.split()[0] for line in drawn(*bars)[:-1]] == ["lost", "planned", "late"]


def test_what_was_very_short_is_still_seen() -> None:
    rows = drawn(Bar("a", ran=((0, 0),)), Bar("b", ran=((0, 1000),)), Bar("c", ran=((1000, 1000),)))
    assert [row.count("#") > 0 for row in rows[:3]] == [True, True, True]


def test_no_line_is_wider_than_the_width_and_long_labels_leave_room() -> None:
    bars = (Bar("x" * 200, ran=((0, 3),)), Bar("日本語日本語日本語", ran=((1, 3),)))
    for width in range(20, 130, 7):
        lines = gantt(bars, width, glyphs=ASCII)
        assert lines, width
        assert max(line.cell_len for line in lines) <= width


def test_too_narrow_or_empty_draws_nothing() -> None:
    assert gantt([Bar("abc", ran=((0, 1),))], 10) == []
    assert gantt([], 80) == []


def test_of_many_bars_the_first_are_drawn_and_the_rest_counted() -> None:
    lines = drawn(*(Bar(str(n), ran=((n, n + 1),)) for n in range(100)), most=3)
    assert len(lines) == 5
    assert lines[-1] == "and 97 more"


def test_the_axis_is_in_time_or_in_the_unit_of_the_weights() -> None:
    assert drawn(Bar("a", ran=((0, 90),)))[-1].split() == ["0", "45s", "1m30s"]
    assert drawn(Bar("a", ran=((0, 3),)), unit="")[-1].split() == ["0", "1.5", "3"]
    assert drawn(Bar("a", ran=((0, 0),)))[-1].split() == ["0", "0.0s", "0.0s"]


def test_the_legend_explains_the_marks_that_are_there() -> None:
    assert legend([Bar("a", ran=((0, 1),))], ASCII) == "# runs"
    both = legend([Bar("a", ran=((0, 1),), lost=((0, 1),), predicted=(0, 1))], ASCII)
    assert both == "# ran as predicted   = ran   . predicted   x an attempt that did not merge"
