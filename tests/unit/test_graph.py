"""The slice graph: cycles, and that nothing in it grows with the graph where it need not, counted and not timed."""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Callable, Iterator

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch.commands import Cancel, Enqueue, MarkMerged, Observe, Remeasure
from dispatch.contention import Contention
from dispatch.errors import CycleError
from dispatch.graph import SliceNode, check_acyclic, find_cycle
from dispatch.machine import Machine
from dispatch.slice import Slice, SliceState
from dispatch.weights import UnitWeights
from harness import SessionPhase, SessionState
from tests.effort import examples
from tests.unit.machine_rig import Rig, work

LONG = 100_000
WIDE = 20_000
MANY, SOME = 10_000, 2_000


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A collection over some hundred thousand objects takes longer than what is tested here."""
    gc.disable()
    yield
    gc.enable()


def machine() -> Machine:
    return Machine("default", "g1", UnitWeights())


def merge_all(machine: Machine, cap: int, most: int) -> int:
    """Let sessions merge as they come, at most so many; returns how many did."""
    merged, open_ = 0, [effect.assignment_id for effect in machine.take_effects()]
    while open_ and merged < most:
        machine.handle(Observe(SessionState(open_.pop(), SessionPhase.MERGED)), merged, cap)
        open_ += [effect.assignment_id for effect in machine.take_effects()]
        merged += 1
    return merged


# --- length -------------------------------------------------------------------------------------------------------


def forward() -> list[Slice]:
    return [Slice(f"s{i}", depends_on=(f"s{i - 1}",) if i else ()) for i in range(LONG)]


def backward() -> list[Slice]:
    """The last one first, each required by the one before."""
    last = LONG - 1
    return [Slice(f"s{i}", required_by=(f"s{i + 1}",) if i < last else ()) for i in range(last, -1, -1)]


def shuffled() -> list[Slice]:
    slices = forward()
    random.Random(7).shuffle(slices)
    return slices


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("chain", [forward, backward, shuffled])
def test_a_chain_of_a_hundred_thousand_is_an_ordinary_graph(chain: Callable[[], list[Slice]]) -> None:
    graph = (it := machine()).graph
    it.handle(Enqueue(tuple(chain())), 0, 1)
    ranks = [graph.nodes[f"s{i}"].upward for i in (0, 1, LONG // 2, LONG - 1)]
    assert ranks == [LONG, LONG - 1, LONG // 2, 1]
    assert list(graph.sessions) == ["s0@1"]
    assert merge_all(it, 1, 10) == 10
    it.handle(MarkMerged("s50"), 0, 1)
    it.handle(Cancel(f"s{LONG // 2}"), 0, 1)
    graph.refresh()
    assert graph.nodes["s10"].upward == 40  # what follows a merged slice waits for nobody before it
    assert graph.nodes["s51"].upward == LONG // 2 - 51
    assert graph.nodes[f"s{LONG // 2 + 1}"].upward == LONG // 2 - 1
    with pytest.raises(CycleError) as refused:
        it.handle(Enqueue((Slice("x", depends_on=(f"s{LONG - 1}",), required_by=("s20",)),)), 0, 1)
    assert len(refused.value.cycle) == LONG - 20 + 2


def fan_by_depends_on() -> list[Slice]:
    leaves = [Slice(f"l{i}", depends_on=("root",)) for i in range(WIDE)]
    return [Slice("root"), *leaves, Slice("sink", depends_on=tuple(leaf.id for leaf in leaves))]


def fan_by_required_by() -> list[Slice]:
    leaves = [Slice(f"l{i}", required_by=("sink",)) for i in range(WIDE)]
    return [Slice("root", required_by=tuple(leaf.id for leaf in leaves)), *leaves, Slice("sink")]


def fan_by_both() -> list[Slice]:
    """Each edge is declared from both ends."""
    return [*fan_by_required_by()[:-1], fan_by_depends_on()[-1]]


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("fan", [fan_by_depends_on, fan_by_required_by, fan_by_both])
def test_a_fan_of_twenty_thousand_is_connected_by_looking_at_each_edge_a_few_times(
    fan: Callable[[], list[Slice]], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0
    plain = SliceNode.__eq__

    def counting(one: SliceNode, other: object) -> bool:
        nonlocal compared
        compared += 1
        return plain(one, other)

    monkeypatch.setattr(SliceNode, "__eq__", counting)
    monkeypatch.setattr(SliceNode, "__hash__", object.__hash__)
    it = machine()
    it.handle(Enqueue(tuple(fan())), 0, 8)
    assert it.graph.nodes["root"].upward == 3
    assert len(it.graph.nodes["root"].dependents) == len(it.graph.nodes["sink"].depends_on) == WIDE
    assert merge_all(it, 8, WIDE) == WIDE
    assert it.graph.nodes["sink"].unmet == 1
    assert merge_all(it, 8, 9) == 0
    assert compared < 20 * WIDE


# --- cycles -------------------------------------------------------------------------------------------------------


class Counted(list[SliceNode]):
    """Counts what is taken from any of them."""

    taken = 0

    def __iter__(self) -> Iterator[SliceNode]:
        for node in super().__iter__():
            Counted.taken += 1
            yield node


LAYERS, BREADTH = 100, 20


def test_a_dense_graph_is_searched_once_for_a_cycle() -> None:
    """20 to the power of 98 ways lead through it."""
    names = [[f"l{layer}-{i}" for i in range(BREADTH)] for layer in range(LAYERS)]
    slices = [Slice(name) for name in names[0]]
    for before, layer in itertools.pairwise(names):
        slices += [Slice(name, depends_on=tuple(before)) for name in layer]
    it = machine()
    it.handle(Enqueue(tuple(slices)), 0, 1)
    nodes, edges = it.graph.nodes, BREADTH**2 * (LAYERS - 1)
    for node in nodes.values():
        node.dependents = Counted(node.dependents)
    for depends_on, required_by, is_cycle in [
        (names[0][0], names[-1][0], False),
        (names[-1][0], names[0][0], True),
        (names[50][3], names[49][4], True),
        (names[50][3], names[51][4], False),
    ]:
        Counted.taken = 0
        new = {"x": Slice("x", depends_on=(depends_on,), required_by=(required_by,))}
        assert bool(find_cycle(new, nodes)) == is_cycle
        assert Counted.taken <= edges + LAYERS


def test_what_waits_for_nothing_is_not_searched_for_a_cycle() -> None:
    """A chain that grows at its beginning costs no more than one that grows at its end."""
    it = machine()
    it.handle(Enqueue((Slice("s0"),)), 0, 0)
    for i in range(1, 100):
        node = it.graph.nodes[f"s{i - 1}"]
        node.dependents = Counted(node.dependents)
        Counted.taken = 0
        check_acyclic({f"s{i}": Slice(f"s{i}", required_by=(f"s{i - 1}",))}, it.graph.nodes)
        assert Counted.taken == 0
        it.handle(Enqueue((Slice(f"s{i}", required_by=(f"s{i - 1}",)),)), 0, 0)
    it.graph.refresh()
    assert it.graph.nodes["s99"].upward == 100


NAMES = [f"s{i}" for i in range(8)]
some_names = st.lists(st.sampled_from(NAMES), max_size=2)


@given(edges=st.lists(st.tuples(some_names, some_names), min_size=8, max_size=8), old=st.integers(0, 7))
@settings(max_examples=examples(200), deadline=None)
def test_a_cycle_is_found_exactly_if_there_is_one(edges: list[tuple[list[str], list[str]]], old: int) -> None:
    """Against networkx. The first `old` slices are there already, each waiting only for those before it."""
    rig, everything = Rig(cap=0), nx.DiGraph()
    everything.add_nodes_from(NAMES)
    for i, (depends_on, _) in enumerate(edges[:old]):
        wanted = tuple(name for name in depends_on if name < NAMES[i])
        rig.enqueue(Slice(NAMES[i], depends_on=wanted))
        everything.add_edges_from((before, NAMES[i]) for before in wanted)
    batch = []
    for i, (depends_on, required_by) in enumerate(edges[old:], old):
        others = [tuple(name for name in names if name != NAMES[i]) for names in (depends_on, required_by)]
        batch.append(Slice(NAMES[i], depends_on=others[0], required_by=others[1]))
        everything.add_edges_from((before, NAMES[i]) for before in others[0])
        everything.add_edges_from((NAMES[i], after) for after in others[1])
    try:
        rig.enqueue(*batch)
    except CycleError as refused:
        told = refused.cycle
        assert told[0] == told[-1]
        assert all(everything.has_edge(before, after) for after, before in itertools.pairwise(told))
        assert len(rig.machine.graph.nodes) == old
    else:
        assert nx.is_directed_acyclic_graph(everything)


# --- contention ---------------------------------------------------------------------------------------------------


class Counting(Contention):
    """Counts how often it is asked what blocks a slice."""

    __slots__ = ("asked",)

    asked: int

    def blocker(self, node: SliceNode) -> object:
        self.asked += 1
        return super().blocker(node)


def counting_machine() -> tuple[Machine, Counting]:
    it = machine()
    claims = it.graph.claims = Counting(it.graph._wake)
    claims.asked = 0
    return it, claims


CROWDS = {
    "one hotspot": [work(f"s{i}", hotspots=["schema"]) for i in range(MANY)],
    "one glob": [work(f"s{i}", paths=["src/**"]) for i in range(MANY)],
    "files under a glob": [work(f"s{i}", paths=["src/**"] if i % 100 == 99 else [f"src/f{i}.py"]) for i in range(MANY)],
    "a hotspot and a file each": [work(f"s{i}", hotspots=["schema"], paths=[f"src/f{i}.py"]) for i in range(SOME)],
    "two hotspots in turn": [work(f"s{i}", hotspots=["ab"[i % 2]]) for i in range(SOME)],
    "all declared against one": [
        work("s0"),
        *(work(f"s{i}", contends=("s0",), hotspots=[f"h{i % 7}"]) for i in range(1, SOME)),
    ],
}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("crowd", CROWDS)
def test_a_crowd_that_excludes_one_another_costs_a_few_looks_each(crowd: str) -> None:
    it, claims = counting_machine()
    count = len(CROWDS[crowd])
    it.handle(Enqueue(tuple(CROWDS[crowd])), 0, 4)
    assert merge_all(it, 4, count) == count
    assert claims.asked < 6 * count
    it.graph.check()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("crowd", CROWDS)
def test_a_crowd_behind_a_slice_in_review_is_not_looked_at_again(crowd: str) -> None:
    it, claims = counting_machine()
    count = len(CROWDS[crowd])
    first = work("first", hotspots=["schema", "a", "b"], paths=["src/**"])
    it.handle(Enqueue((first,)), 0, 4)
    it.handle(Observe(SessionState("first@1", SessionPhase.CLOSED, pull_request_url="u")), 0, 4)
    it.take_effects()
    it.handle(Enqueue(tuple(CROWDS[crowd])), 0, 4)
    waited, claims.asked = claims.asked, 0
    for _ in range(100):
        it.handle(Remeasure(), 0, 4)
    assert claims.asked == 0
    assert waited <= count + 10
    it.handle(MarkMerged("first"), 0, 4)
    assert merge_all(it, 4, count) == count
    assert claims.asked < 7 * count


def test_states_and_containers_agree_after_every_move() -> None:
    rig = Rig(work("a", hotspots=["h"]), work("b", hotspots=["h"]), work("c", depends_on=("a",), hold="wait"), cap=2)
    graph = rig.machine.graph
    assert ([*graph.waiting], [*graph.held], [*graph.sessions]) == ([graph.node("b")], [], ["a@1"])
    rig.report("a", SessionPhase.MERGED)
    assert ([*graph.waiting], [*graph.held], [*graph.sessions]) == ([], [graph.node("c")], ["b@1"])
    assert graph.node("a").state is SliceState.MERGED


@pytest.mark.parametrize(
    ("cache", "broken"),
    [("staying", 5), ("sessions", {}), ("room", {}), ("held", set()), ("urgent", set())],
)
def test_the_check_finds_a_cache_that_is_wrong(cache: str, broken: object) -> None:
    rig = Rig(work("a"), work("now"), work("h", hold="wait"))
    rig.urgent("now")
    rig.machine.graph.check()
    setattr(rig.machine.graph, cache, broken)
    with pytest.raises(AssertionError):
        rig.machine.graph.check()


@pytest.mark.parametrize(("field", "broken"), [("unmet", 1), ("upward", 9), ("excluders", 1), ("live", False)])
def test_the_check_finds_a_node_that_is_wrong(field: str, broken: object) -> None:
    rig = Rig(work("a"), work("b"))
    setattr(rig.machine.graph.node("b"), field, broken)
    with pytest.raises(AssertionError):
        rig.machine.graph.check()
