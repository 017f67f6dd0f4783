"""Who excludes whom: the claims against a plain comparison of all pairs, and no wake that is missed."""

from __future__ import annotations

import itertools
from collections.abc import Hashable

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch.contention import NO_CONTENDERS, Contention, contend, evidence
from dispatch.graph import SliceNode
from dispatch.slice import Slice, TouchSet
from dispatch.views import ReasonCode
from tests.effort import examples

PATHS = ("src/a.py", "src/*.py", "src/**", "docs/[a-m]*", "docs/m?", "**/mod.rs", "lib", "lib/x/mod.rs")
HOTSPOTS = ("schema", "router", "i18n")


def node(name: str, paths: tuple[str, ...] = (), hotspots: tuple[str, ...] = ()) -> SliceNode:
    return SliceNode(Slice(name, touch=TouchSet(paths, hotspots)), 1, 1)


def plainly(one: SliceNode, other: SliceNode) -> bool:
    return one.slice.touch.overlaps(other.slice.touch) or other in one.contends


@attrs.define
class Claims:
    """Claims with a note of what was woken since it was last looked at."""

    woken: list[Hashable] = attrs.Factory(list)
    claims: Contention = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.claims = Contention(self.woken.append)


touches = st.tuples(
    st.lists(st.sampled_from(PATHS), max_size=3, unique=True).map(tuple),
    st.lists(st.sampled_from(HOTSPOTS), max_size=2, unique=True).map(tuple),
)
crowds = st.lists(touches, min_size=2, max_size=7)
pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=3)
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=25)


@given(crowds, pairs, steps)
@settings(max_examples=examples(200), deadline=None)
def test_the_claims_agree_with_a_comparison_of_all_pairs(
    crowd: list[tuple[tuple[str, ...], tuple[str, ...]]], declared: list[tuple[int, int]], steps: list[tuple[bool, int]]
) -> None:
    """And whoever waits for something is told when it is free: nobody is parked for ever."""
    held, nodes = Claims(), [node(f"s{i}", *touch) for i, touch in enumerate(crowd)]
    claims, claiming = held.claims, list[SliceNode]()
    parked: dict[SliceNode, Hashable] = {}
    for one, other in declared:
        if one % len(nodes) != other % len(nodes):
            claims.declare(nodes[one % len(nodes)], nodes[other % len(nodes)])
    for claims_it, i in steps:
        one = nodes[i % len(nodes)]
        if claims_it:
            claims.claim(one)
            claiming.append(one) if one not in claiming else None
        else:
            claims.unclaim(one)
            claiming.remove(one) if one in claiming else None
        for waiting, resource in list(parked.items()):
            if resource in held.woken:
                del parked[waiting]
        held.woken.clear()
        for each in nodes:
            plain = [other for other in claiming if other is not each and plainly(each, other)]
            assert claims.excluders(each) == plain
            assert (each in claims) == (each in claiming)
            blocker = claims.blocker(each)
            assert (blocker is None) == (not plain)
            assert blocker is not None or each not in parked, "free, and nobody said so"
            if blocker is not None:
                parked.setdefault(each, blocker)


@given(touches, touches, st.booleans())
def test_evidence_is_there_exactly_if_the_two_contend_and_from_both_sides(
    one: tuple[tuple[str, ...], tuple[str, ...]], other: tuple[tuple[str, ...], tuple[str, ...]], declared: bool
) -> None:
    a, b = node("a", *one), node("b", *other)
    if declared:
        Claims().claims.declare(a, b)
    mine, theirs = list(evidence(a, b)), list(evidence(b, a))
    assert contend(a, b) == contend(b, a) == bool(mine) == bool(theirs) == plainly(a, b)
    assert len(mine) == len(theirs)
    assert {reason.slice_id for reason in mine} <= {"b"}
    for reason in mine:
        assert reason.code is ReasonCode.CONTENDS
        if reason.witness:
            path = TouchSet((reason.witness,))
            assert path.overlaps(a.slice.touch)
            assert path.overlaps(TouchSet((reason.pattern,)))


def test_claiming_twice_is_claiming_once() -> None:
    held = Claims()
    one, other = node("a", hotspots=("h",)), node("b", hotspots=("h",))
    held.claims.declare(one, other)
    held.claims.claim(one)
    held.claims.claim(one)
    assert other.excluders == 1
    held.claims.unclaim(one)
    held.claims.unclaim(one)
    assert other.excluders == 0
    assert held.claims.blocker(other) is None
    assert held.woken == ["h", other]


def test_a_claim_of_the_moment_counts_for_what_is_declared_later() -> None:
    held = Claims()
    one, other = node("a"), node("b")
    held.claims.claim(one)
    held.claims.declare(other, one)
    held.claims.declare(one, other)
    assert (one.excluders, other.excluders) == (0, 1)
    assert held.claims.blocker(other) is other


def test_nobody_excludes_itself() -> None:
    held, one = Claims(), node("a", ("src/*", "src/a"), ("h",))
    held.claims.claim(one)
    assert held.claims.blocker(one) is None
    assert held.claims.excluders(one) == []


def test_what_contends_with_nobody_shares_one_empty_table() -> None:
    one, other = node("a"), node("b")
    assert one.contends is other.contends is NO_CONTENDERS
    Claims().claims.declare(one, other)
    assert NO_CONTENDERS == {}


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations([("src/**",), ("src/a.py", "lib")], 2)))
def test_a_pattern_and_a_path_under_it(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    held, claimer, waiter = Claims(), node("a", one), node("b", other)
    held.claims.claim(claimer)
    blocker = held.claims.blocker(waiter)
    assert blocker in claimer.patterns
    held.claims.unclaim(claimer)
    assert blocker in held.woken
