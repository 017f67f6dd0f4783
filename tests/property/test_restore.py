"""A restart equals never having stopped, but for what ran: random histories, restored after each step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import attrs
from hypothesis import event, given, settings
from hypothesis import strategies as st

from dispatch.commands import (
    AskToStop,
    Cancel,
    Command,
    DeclareIntent,
    Enqueue,
    Hold,
    MarkMerged,
    Observe,
    Pause,
    Proof,
    Release,
    Remeasure,
    Resume,
    Retry,
    Revise,
    Route,
)
from dispatch.errors import DispatchError
from dispatch.intent import Intent, Urgency
from dispatch.machine import CUT_OFF
from dispatch.slice import OCCUPYING, Slice, SliceState, TouchSet
from dispatch.store import MemoryStore, SliceRow
from dispatch.weights import LearnedWeights
from harness import Recipe, SessionPhase, SessionState
from tests.effort import examples
from tests.unit.machine_rig import URL, Rig, work

KINDS = ("build", "docs")
Draw = Callable[[st.SearchStrategy[Any]], Any]


class History:
    """A machine that lives on, written through to a store, and a draw of what happens to it next."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.store = draw, MemoryStore()
        self.store.claim("default")
        self.rig = Rig(cap=draw(st.integers(1, 3)), weights=LearnedWeights())

    def step(self) -> None:
        self.rig.now += self.draw(st.sampled_from([0.0, 0.5, 60.0, -1.0]))
        command = self.draw(st.sampled_from(STEPS))(self)
        with contextlib.suppress(DispatchError):
            self.rig.do(command)
        self.store.write(self.rig.machine.changes())
        self.rig.machine.written()

    def restored(self, alive: Iterable[str]) -> tuple[Rig, Any]:
        again = Rig(cap=self.rig.cap, weights=LearnedWeights(), graph_id="another")
        again.now = self.rig.now + 3600
        again.machine.restore(self.store.load(), alive, again.now)
        again.machine.graph.check()
        return again, again.machine.take_effects()

    # What may happen.

    def some(self, count: int = 1) -> list[str]:
        known = list(self.rig.machine.graph.nodes)
        return self.draw(st.lists(st.sampled_from(known), max_size=count)) if known else []

    def one(self) -> str:
        return next(iter(self.some(1)), "absent")

    def enqueue(self) -> Command:
        names = self.rig.machine.graph.nodes
        slice_ = work(
            f"s{len(names)}",
            kind=self.draw(st.sampled_from(KINDS)),
            hotspots=self.draw(st.sampled_from([(), (), ("h",), ("i",)])),
            paths=self.draw(st.sampled_from([(), (), ("src/*",), ("src/a",)])),
            depends_on=tuple(self.some(2)),
            required_by=tuple(self.some(1)) if self.draw(st.booleans()) else (),
            contends=tuple(self.some(1)) if self.draw(st.booleans()) else (),
            hold=self.draw(st.sampled_from(["", "", "wait"])),
        )
        return Enqueue((slice_,))

    def revise(self) -> Command:
        known = self.rig.machine.graph.nodes.get(self.one())
        if known is None:
            return Remeasure()
        touch = TouchSet(self.draw(st.sampled_from([(), ("src/*",), ("src/a",)])), ())
        return Revise(attrs.evolve(known.slice, recipe=Recipe(kind=self.draw(st.sampled_from(KINDS))), touch=touch))

    def report(self) -> Command:
        running = list(self.rig.machine.graph.sessions) or ["absent@1"]
        session = self.draw(st.sampled_from(running))
        url = self.draw(st.sampled_from(["", "", URL]))
        return Observe(SessionState(session, self.draw(st.sampled_from(SessionPhase)), 1, "", url, "it broke"))

    def declare(self) -> Command:
        return DeclareIntent(self.intent())

    def route(self) -> Command:
        return Route(self.intent(), "please", Slice(f"s{len(self.rig.machine.graph.nodes)}"), Proof())

    def intent(self) -> Intent:
        name = st.sampled_from(["i", "j", "k"])
        return Intent(
            self.draw(name),
            "s",
            scope=self.one() if self.draw(st.booleans()) else "",
            urgency=self.draw(st.sampled_from([Urgency.URGENT, *Urgency])),
            supersedes=self.draw(st.just("") | name),
            terms=("src", "h"),
        )

    def measure(self) -> Command:
        self.rig.cap = self.draw(st.integers(1, 4))
        return Remeasure()


STEPS: list[Callable[[History], Command]] = [
    *[History.enqueue] * 4,
    *[History.report] * 4,
    *[History.declare] * 2,
    History.route,
    History.revise,
    History.measure,
    lambda history: MarkMerged(history.one()),
    lambda history: Cancel(history.one()),
    lambda history: Retry(history.one()),
    lambda history: Hold(history.one(), "because"),
    lambda history: Release(history.one()),
    lambda history: Pause("lunch"),
    lambda history: Resume(),
]


def derived(rig: Rig) -> dict[str, Any]:
    """Of each slice, what isn't in its row; and what is beside the slices."""
    machine, graph = rig.machine, rig.machine.graph
    graph.refresh()
    return {
        "slices": {
            name: (
                node.weight,
                node.upward if node.live else None,
                node.urgency,
                [entry.intent.id for entry in node.intents],
                sorted(other.id for other in node.contends),
                [other.id for other in node.depends_on],
                node.unmet,
                node in graph.claims and node not in graph.room,
            )
            for name, node in graph.nodes.items()
        },
        "frontier": [node.id for node in graph.frontier()],
        "sessions": sorted(graph.sessions),
        "intents": {
            name: (entry.intent, entry.seq, [node.id for node in entry.attached])
            for name, entry in graph.intents.items()
        },
        "paused": machine.paused,
        "graph_id": machine.graph_id,
        "weights": [graph.weights.base(), *map(graph.weights.learned, KINDS)],
    }


def rows(rig: Rig) -> dict[str, SliceRow]:
    return {name: node.row() for name, node in rig.machine.graph.nodes.items()}


def cut_off(row: SliceRow) -> SliceRow:
    """What becomes of a slice whose session was lost at a restart. When that ended nobody knows."""
    if row.state not in OCCUPYING:
        return row
    return attrs.evolve(
        row,
        state=SliceState.CANCELED if row.canceling else SliceState.QUEUED,
        checkpoint=row.checkpoint or CUT_OFF,
        canceling=False,
        stopping=False,
    )


@given(st.data())
@settings(max_examples=examples(80), deadline=None)
def test_a_restart_equals_never_having_stopped(data: st.DataObject) -> None:
    history = History(data.draw)
    for _ in range(data.draw(st.integers(1, 20))):
        history.step()
        rig = history.rig
        sessions = sorted(rig.machine.graph.sessions)
        to_stop = [node.assignment_id for node in rig.machine.graph.nodes.values() if node.stopping]

        again, effects = history.restored(alive=sessions)
        assert rows(again) == rows(rig)
        assert derived(again) == derived(rig)
        assert effects == [AskToStop(session) for session in to_stop]
        if not rig.machine.graph.room:
            assert again.do(Remeasure()) == [], "the pass before the restart had left nothing to do"

        again, effects = history.restored(alive=())
        assert rows(again) == {name: cut_off(row) for name, row in rows(rig).items()}
        assert effects == []
        assert not again.machine.graph.sessions
        told, expected = derived(again), derived(rig)
        for beside in ("intents", "paused", "graph_id", "weights"):
            assert told[beside] == expected[beside]
        event("sessions lost" if sessions else "nothing ran")
