"""How heavy slices are: what is learned, by hand; when; and that a restart learns the same."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dispatch.commands import MarkMerged
from dispatch.store import Contents
from dispatch.weights import LearnedWeights, Tally, UnitWeights
from harness import SessionPhase
from tests.effort import examples
from tests.unit.machine_rig import URL, Rig, work

KINDS = ("build", "docs", "review")
durations = st.floats(0.001, 1e6)
measurements = st.lists(st.tuples(st.sampled_from(KINDS), durations), max_size=40)


def learned(*measured: tuple[str, float]) -> LearnedWeights:
    weights = LearnedWeights()
    for kind, seconds in measured:
        weights.measured(kind, seconds)
    return weights


def test_nothing_is_known_at_first() -> None:
    weights = LearnedWeights()
    assert (weights.base(), weights.learned("build"), weights.learned("")) == (1, 0, 0)


def test_unit_weights_learn_nothing() -> None:
    weights = UnitWeights()
    assert not weights.measured("build", 1000)
    assert (weights.base(), weights.learned("build")) == (1, 0)


def test_one_kind_alone_differs_from_nothing() -> None:
    weights = learned(("build", 10), ("build", 20))
    assert (weights.base(), weights.learned("build"), weights.learned("docs")) == (15, 0, 0)


def test_two_kinds_that_clearly_differ() -> None:
    """All: mean 38.5. build: 10, 20: d = -23.5, s^2 = 50, v = 25. docs: 60, 64: d = 23.5, s^2 = 8, v = 4."""
    weights = learned(("build", 10), ("build", 20), ("docs", 60), ("docs", 64))
    assert weights.base() == 38.5
    assert weights.learned("build") == pytest.approx(-23.5 * (1 - 25 / 23.5**2))
    assert weights.learned("docs") == pytest.approx(23.5 * (1 - 4 / 23.5**2))


def test_a_kind_with_one_value_is_as_uncertain_as_all_are() -> None:
    """All: 10, 12, 20, 14: mean 14, s^2 = 56 / 3. docs: 20: d = 6. build: d = -2, s^2 = 4, v = 4 / 3."""
    weights = learned(("build", 10), ("build", 12), ("docs", 20), ("build", 14))
    assert weights.learned("docs") == pytest.approx(6 * (1 - 56 / 3 / 36))
    assert weights.learned("build") == pytest.approx(-2 * (1 - 4 / 3 / 4))


def test_a_difference_within_the_noise_counts_for_nothing() -> None:
    """build: 1, 19: d = -1 of a mean of 11, with v = 81. docs: 2, 22."""
    weights = learned(("build", 1), ("docs", 2), ("build", 19), ("docs", 22))
    assert weights.base() == 11
    assert (weights.learned("build"), weights.learned("docs")) == (0, 0)


def test_more_of_the_same_makes_surer() -> None:
    """The difference stays, its variance falls: the term comes nearer to it."""
    few = learned(*[("build", 10), ("build", 14), ("docs", 16), ("docs", 20)] * 1)
    many = learned(*[("build", 10), ("build", 14), ("docs", 16), ("docs", 20)] * 8)
    assert (few.base(), many.base()) == pytest.approx((15, 15))
    assert 0 < few.learned("docs") < many.learned("docs") < 3


def test_measurements_take_effect_at_powers_of_two() -> None:
    weights = LearnedWeights()
    effective = [n for n in range(1, 70) if weights.measured("build", n)]
    assert effective == [1, 2, 4, 8, 16, 32, 64]
    assert weights.base() == 65 / 2


@given(measurements, st.floats(0.01, 100))
def test_no_constant_is_chosen_by_hand(measured: list[tuple[str, float]], factor: float) -> None:
    """In whatever unit time is measured, the weights are the same times."""
    weights = learned(*measured)
    scaled = learned(*[(kind, seconds * factor) for kind, seconds in measured])
    if measured:
        assert scaled.base() == pytest.approx(weights.base() * factor)
    for kind in KINDS:
        tolerance = 1e-6 * factor * weights.base()
        assert scaled.learned(kind) == pytest.approx(weights.learned(kind) * factor, rel=1e-6, abs=tolerance)


@given(measurements)
def test_a_term_is_never_more_than_the_difference_and_no_weight_is_negative(measured: list[tuple[str, float]]) -> None:
    weights = learned(*measured)
    counted = measured[: 2 ** (len(measured).bit_length() - 1)] if measured else []
    for kind in KINDS:
        own = [seconds for name, seconds in counted if name == kind]
        if not own:
            assert weights.learned(kind) == 0
            continue
        difference = sum(own) / len(own) - sum(seconds for _, seconds in counted) / len(counted)
        assert weights.learned(kind) * difference >= 0 or abs(difference) < 1e-6 * weights.base()
        assert abs(weights.learned(kind)) <= abs(difference) + 1e-6 * weights.base()
        assert weights.base() + weights.learned(kind) > -1e-6 * weights.base()


@given(st.lists(durations, min_size=1))
def test_a_tally_is_what_textbooks_say(values: list[float]) -> None:
    tally = Tally()
    for value in values:
        tally.add(value)
    mean = sum(values) / len(values)
    assert tally.mean == pytest.approx(mean)
    if len(values) == 1:
        assert tally.variance is None
    else:
        variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        assert tally.variance == pytest.approx(variance, rel=1e-6, abs=1e-9 * mean**2)


# --- in the graph -------------------------------------------------------------------------------------------------


class Watched(LearnedWeights):
    """Notes when a graph asks how heavy its slices are."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def base(self) -> float:
        self.asked += 1
        return super().base()


def test_a_graph_is_weighed_anew_at_powers_of_two_only() -> None:
    weights = Watched()
    rig = Rig(cap=1, weights=weights)
    rig.enqueue(*[work(f"s{i}", kind=KINDS[i % 2]) for i in range(40)])
    weighed = []
    for n in range(1, 40):
        (session,) = rig.running()
        rig.now += n
        before = weights.asked
        rig.report(session, SessionPhase.MERGED)
        if weights.asked != before:
            weighed.append(n)
            assert weights.asked - before <= len(KINDS)
    assert weighed == [1, 2, 4, 8, 16, 32]


def test_the_ranking_follows_what_is_measured() -> None:
    rig = Rig(work("d0", kind="docs"), weights=LearnedWeights())
    rig.enqueue(*[work(f"b{i}", kind="build") for i in range(2)], *[work(f"d{i}", kind="docs") for i in range(1, 4)])
    for session, seconds in (("d0", 10), ("b0", 100), ("b1", 102), ("d1", 12)):
        assert rig.running() == {session}
        rig.now += seconds
        rig.report(session, SessionPhase.MERGED)
    rig.enqueue(work("b2", kind="build"), work("x"))
    graph = rig.machine.graph
    order = [(node.id, graph.critical_path(node)) for node in graph.frontier()]
    assert [name for name, _ in order] == ["b2", "x", "d3"]
    assert [weight for _, weight in order] == pytest.approx([56 + 44.977, 56, 11 + 0.0222], abs=0.01)
    assert graph.weights.learned("build") > 0 > graph.weights.learned("docs")


def test_a_chain_is_as_heavy_as_its_slices_together() -> None:
    rig = Rig(work("a"), weights=LearnedWeights())
    rig.enqueue(work("b"), work("c", depends_on=("b",)), work("d", depends_on=("c",)))
    rig.now += 60
    rig.report("a", SessionPhase.MERGED)
    graph = rig.machine.graph
    assert graph.critical_path(graph.node("b")) == 180


def test_what_a_slice_took_in_all_its_attempts_is_what_is_learned() -> None:
    rig = Rig(work("a"), weights=LearnedWeights())
    for phase in (SessionPhase.CLOSED, SessionPhase.CLOSED, SessionPhase.MERGED):
        rig.now += 20
        rig.report("a", phase)
    assert rig.machine.graph.weights.base() == 60


def test_what_never_ran_is_not_learned_from() -> None:
    rig = Rig(work("a"), work("b"), cap=1, weights=LearnedWeights())
    rig.now += 60
    rig.do(MarkMerged("b"))
    assert rig.machine.graph.weights.base() == 1
    rig.report("a", SessionPhase.CLOSED, pull_request_url=URL)
    rig.now += 60  # in review it did not run
    rig.do(MarkMerged("a"))
    assert rig.machine.graph.weights.base() == 60


def test_after_a_restart_too_no_two_slices_merge_at_the_same_instant() -> None:
    """Nor one before another that merged before it, if the clock was set back: a further restart would confuse them."""
    rig = Rig(work("a"), work("b"), cap=2, weights=LearnedWeights())
    rig.now += 60
    rig.report("a", SessionPhase.MERGED)
    changes = rig.machine.changes()
    again = Rig(cap=2, weights=LearnedWeights())
    again.machine.restore(Contents(changes.graph, changes.slices, changes.attempts), (), rig.now - 30)
    again.now = rig.now - 30
    again.open(2)
    again.report("b", SessionPhase.MERGED)
    assert again.machine.graph.node("b").ended_at > rig.now


@given(
    taken=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 1000)), min_size=1, max_size=20),
    steps=st.lists(st.sampled_from([0.0, 0.0, 0.25, -3.0]), min_size=20, max_size=20),
    order=st.randoms(use_true_random=False),
)
@example(taken=[("build", 9), ("docs", 1)] * 4, steps=[0.0] * 20, order=random.Random(3))
@settings(deadline=None, max_examples=examples(60))
def test_a_restart_gives_the_same_weights(
    taken: list[tuple[str, int]], steps: list[float], order: random.Random
) -> None:
    """Whatever merged at the same instant, and if the clock was set back meanwhile."""
    rig = Rig(cap=len(taken), weights=LearnedWeights())
    names = [f"s{i}" for i in range(len(taken))]
    for (kind, seconds), name in zip(taken, names, strict=True):
        rig.now -= seconds
        rig.enqueue(work(name, kind=kind))
        rig.now += seconds
    order.shuffle(names)
    for name, step in itertools.zip_longest(names, steps[: len(names)]):
        rig.now += step
        rig.report(name, SessionPhase.MERGED)
    changes = rig.machine.changes()
    again = Rig(weights=LearnedWeights())
    rows = tuple(sorted(changes.slices, key=lambda row: row.seq))
    again.machine.restore(Contents(changes.graph, rows, changes.attempts), (), rig.now)
    one, other = rig.machine.graph.weights, again.machine.graph.weights
    assert [one.base(), *map(one.learned, KINDS)] == [other.base(), *map(other.learned, KINDS)]
    assert len({row.ended_at for row in rows}) == len(rows)
