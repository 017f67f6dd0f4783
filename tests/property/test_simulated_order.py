"""The simulated schedule is what happens when slices take as long as expected: the same starts, in the same order.

No two slices end at one instant: a duration carries the slice's number in its fraction, a binary digit each, so that
the end of a chain tells who is in it. All sums are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch import DispatchService, Intent, Slice, TouchSet, Urgency
from dispatch.commands import DeclareIntent, Enqueue, Launch, Observe
from dispatch.machine import Machine
from harness import Recipe, SessionPhase, SessionState
from listsched import Plan, simulate, upward_rank
from tests.effort import examples
from tests.integration.service_rig import LIMIT_S, Clock, Host, Places

START = 1024.0
PATHS = ("src/*", "src/a", "lib/**", "lib/x/y", "docs")
HOTSPOTS = ("h", "i")
CALM = (Urgency.LOW, Urgency.NORMAL, Urgency.HIGH)  # what is urgent preempts, which is not for simulating


@attrs.frozen
class Case:
    """Slices with their durations, by name, and how many may run at once."""

    slices: Sequence[Slice]
    durations: dict[str, float]
    intents: Sequence[Intent]
    capacity: int

    def learned(self, kind: str) -> float:
        """As weights: each slice is a kind of its own, and is known."""
        return self.durations[kind]

    def base(self) -> float:
        return 0

    def measured(self, kind: str, seconds: float) -> bool:
        return False

    def schedule(self) -> dict[str, tuple[float, float]]:
        """What the simulator says, as (start, end), in order of start."""
        order = nx.DiGraph()
        order.add_nodes_from(slice_.id for slice_ in self.slices)
        order.add_edges_from((before, slice_.id) for slice_ in self.slices for before in slice_.depends_on)
        conflicts = [
            (one.id, other.id)
            for i, one in enumerate(self.slices)
            for other in self.slices[:i]
            if one.touch.overlaps(other.touch) or other.id in one.contends
        ]
        ranks = upward_rank(order, self.durations)
        urgency = {intent.scope: intent.urgency.value for intent in self.intents}
        priority = {
            slice_.id: (-ranks[slice_.id], -urgency.get(slice_.id, 0), seq) for seq, slice_ in enumerate(self.slices)
        }
        schedule = simulate(Plan.of(order, self.durations, conflicts, self.capacity, priority))
        schedule.check()
        return {name: (START + start, START + end) for name, (start, end) in schedule.intervals.items()}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 9))
    names = [f"s{i}" for i in range(count)]
    durations = {name: draw(st.integers(1, 6)) + 2.0 ** -(i + 1) for i, name in enumerate(names)}
    slices = [
        Slice(
            name,
            recipe=Recipe(kind=name),
            depends_on=tuple(draw(st.sets(st.sampled_from(names[:i]), max_size=2))) if i else (),
            contends=tuple(draw(st.sets(st.sampled_from(names[:i]), max_size=1))) if i else (),
            touch=TouchSet(
                tuple(draw(st.sets(st.sampled_from(PATHS), max_size=1))),
                tuple(draw(st.sets(st.sampled_from(HOTSPOTS), max_size=1))),
            ),
        )
        for i, name in enumerate(names)
    ]
    urgent = draw(st.dictionaries(st.sampled_from(names), st.sampled_from(CALM), max_size=3))
    intents = [Intent(f"for-{name}", "s", name, urgency) for name, urgency in urgent.items()]
    return Case(slices, durations, intents, draw(st.integers(1, 4)))


def play(case: Case, start: Callable[[], list[str]], end: Callable[[str, float], list[str]]) -> dict[str, Any]:
    """Sessions as they start and end, the earliest end first. `start` and `end` tell what starts by it."""
    running: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    now, started = START, start()
    while started or running:
        for name in started:
            running[name] = now + case.durations[name]
            intervals[name] = now, running[name]
        first = min(running, key=running.__getitem__)
        now = running.pop(first)
        started = end(first, now)
    return intervals


@given(cases())
@settings(max_examples=examples(150), deadline=None)
def test_the_machine_starts_what_the_simulator_says_when_it_says_so(case: Case) -> None:
    machine = Machine("default", "g1", case)

    def started() -> list[str]:
        return [effect.assignment.slice_id for effect in machine.take_effects() if isinstance(effect, Launch)]

    def start() -> list[str]:
        machine.handle(Enqueue(tuple(case.slices)), START, 0)
        for intent in case.intents:
            machine.handle(DeclareIntent(intent), START, 0)
        machine.cap = case.capacity
        machine.run_pass()
        return started()

    def end(name: str, now: float) -> list[str]:
        machine.handle(Observe(SessionState(f"{name}@1", SessionPhase.MERGED)), now, case.capacity)
        return started()

    intervals = play(case, start, end)
    assert list(intervals.items()) == list(case.schedule().items())
    rows = {name: node.row() for name, node in machine.graph.nodes.items()}
    assert {name: (row.started_at, row.ended_at) for name, row in rows.items()} == case.schedule()


@given(cases())
@settings(max_examples=examples(25), deadline=None)
def test_the_service_starts_what_the_simulator_says_when_it_says_so(case: Case) -> None:
    host, clock = Host(), Clock()
    clock.now = START
    service = DispatchService(host, None, measures=Places(case.capacity), weights=case, clock=clock)
    known = 0

    def started() -> list[str]:
        nonlocal known
        service.settle(LIMIT_S)
        sessions = host.sessions()[known:]
        known += len(sessions)
        return [session.partition("@")[0] for session in sessions]

    def start() -> list[str]:
        service.pause()
        service.enqueue_many(case.slices)
        for intent in case.intents:
            service.declare_intent(intent)
        service.resume()
        return started()

    def end(name: str, now: float) -> list[str]:
        clock.now = now
        service.observe_session(SessionState(f"{name}@1", SessionPhase.MERGED))
        return started()

    with service:
        intervals = play(case, start, end)
        assert list(intervals.items()) == list(case.schedule().items())
        assert {view.id: (view.started_at, view.ended_at) for view in service.list()} == case.schedule()
