from __future__ import annotations

import itertools

import pytest

from dispatch import forecast as forecasting
from dispatch.forecast import Exclusion, Why, exclusions, forecast
from dispatch.intent import Urgency
from dispatch.slice import Slice, TouchSet
from listsched import PlanError


def touching(slice_id: str, *paths: str, hotspots: tuple[str, ...] = (), **fields: object) -> Slice:
    return Slice(slice_id, touch=TouchSet(paths, hotspots), **fields)  # type: ignore[arg-type]


def test_a_forecast_orders_by_rank_and_keeps_the_cap() -> None:
    slices = [Slice("a"), Slice("b", depends_on=("a",)), Slice("c"), Slice("d", required_by=("b",))]
    on_paper = forecast(slices, 2)
    assert dict(on_paper.schedule.intervals) == {"a": (0, 1), "d": (0, 1), "b": (1, 2), "c": (1, 2)}
    assert (on_paper.critical_path, on_paper.path_length) == (("a", "b"), 2)
    assert on_paper.lower_bound == 2
    on_paper.schedule.check()


def test_what_slices_are_expected_to_take_decides_rank_and_length() -> None:
    on_paper = forecast([Slice("short"), Slice("long")], 1, expected={"short": 1, "long": 5})
    assert dict(on_paper.schedule.intervals) == {"long": (0, 5), "short": (5, 6)}


def test_urgency_decides_between_equal_ranks_and_not_against_rank() -> None:
    slices = [Slice("a"), Slice("b"), Slice("c"), Slice("d", depends_on=("c",))]
    on_paper = forecast(slices, 1, urgency={"b": Urgency.LOW, "d": Urgency.URGENT})
    assert list(on_paper.schedule.intervals) == ["c", "d", "b", "a"]


def test_edges_out_of_the_set_count_as_fulfilled() -> None:
    on_paper = forecast([Slice("b", depends_on=("gone",), required_by=("too",), contends=("far",))], 1)
    assert dict(on_paper.schedule.intervals) == {"b": (0, 1)}


def test_a_cycle_is_refused() -> None:
    with pytest.raises(PlanError, match="circle"):
        forecast([Slice("a", depends_on=("b",)), Slice("b", depends_on=("a",))], 1)


def test_contenders_never_run_at_once_on_paper() -> None:
    slices = [touching("a", "src/**"), touching("b", "src/x"), touching("c", hotspots=("h",)), Slice("d")]
    slices += [touching("e", hotspots=("h",)), Slice("f", contends=("d",))]
    schedule = forecast(slices, None).schedule
    schedule.check()
    for one, other in (("a", "b"), ("c", "e"), ("d", "f")):
        (start, finish), (begin, end) = schedule.intervals[one], schedule.intervals[other]
        assert finish <= begin or end <= start


def test_exclusions_are_told_as_groups() -> None:
    slices = [
        touching("a", "src/a", hotspots=("db",)),
        touching("b", "./src//a/", hotspots=("db",)),
        touching("c", "src/*", "docs"),
        touching("d", "docs/x", hotspots=("lonely",)),
        touching("e", "other", contends=("a", "nobody")),
        Slice("f", contends=("e",)),
    ]
    assert exclusions(slices) == (
        (
            Exclusion(Why.HOTSPOT, ("db",), ("a", "b")),
            Exclusion(Why.PATTERN, ("src/a",), ("a", "b")),
            Exclusion(Why.OVERLAP, ("src/a", "src/*"), ("a", "b", "c"), "src/a"),
            Exclusion(Why.OVERLAP, ("docs", "docs/x"), ("c", "d"), "docs/x"),
            Exclusion(Why.DECLARED, (), ("a", "e")),
            Exclusion(Why.DECLARED, (), ("e", "f")),
        ),
        False,
    )


def test_one_slice_with_overlapping_patterns_excludes_nobody() -> None:
    assert exclusions([touching("a", "src", "src/x"), touching("b", "docs")]) == ((), False)


def test_groups_say_exactly_which_pairs_contend() -> None:
    patterns = ("a/**", "a/b", "a/?", "**/c", "d/c", "d", "e/[a-c]", "e/b/**", "f")
    slices = [touching(f"s{n}", *pair) for n, pair in enumerate(itertools.combinations(patterns, 2))]
    found, partial = exclusions(slices)
    told = {pair for group in found for pair in itertools.combinations(group.members, 2)}
    pairs = itertools.combinations(slices, 2)
    assert told == {(one.id, other.id) for one, other in pairs if one.touch.overlaps(other.touch)}
    assert not partial


def test_ten_thousand_on_one_hotspot_and_pattern_are_two_groups() -> None:
    found, _ = exclusions([touching(f"s{n}", "src/**", hotspots=("db",)) for n in range(10_000)])
    assert [len(group.members) for group in found] == [10_000, 10_000]


def test_too_many_overlaps_are_cut_off_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "OVERLAPS_LIMIT", 10)
    on_paper = forecast([touching(f"s{n}", f"**/{n}*") for n in range(10)], 2)
    assert on_paper.partial
    assert len(on_paper.exclusions) <= 10
