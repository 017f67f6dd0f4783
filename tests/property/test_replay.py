"""Any life of a graph comes out the same when it is played again: restarts, outages, and what is refused included."""

from __future__ import annotations

import contextlib

import attrs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from dispatch.commands import (
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
    RequestFailed,
    Resume,
    Retry,
    Revise,
    Route,
)
from dispatch.errors import DispatchError
from dispatch.intent import Intent, Urgency
from dispatch.journal import Journal
from dispatch.machine import Machine
from dispatch.slice import Slice, TouchSet
from dispatch.store import MemoryStore
from dispatch.weights import LearnedWeights
from harness import Recipe, SessionPhase, SessionState
from tests.effort import examples
from tests.replaying import assert_replays

pytestmark = pytest.mark.timeout(600)  # a difference takes its time to be shrunk

POOL = [f"s{n}" for n in range(8)]
IDS = st.sampled_from(POOL)
SOME = st.lists(IDS, max_size=2).map(tuple)
TOUCH = st.builds(
    TouchSet,
    st.lists(st.sampled_from(["src/a", "src/*", "docs/**"]), max_size=1).map(tuple),
    st.lists(st.just("schema"), max_size=1).map(tuple),
)
RECIPE = st.builds(Recipe, kind=st.sampled_from(["", "slow", "quick"]), max_attempts=st.integers(1, 2))
SLICE = st.builds(Slice, IDS, recipe=RECIPE, depends_on=SOME, required_by=SOME, contends=SOME, touch=TOUCH)
LONE = st.builds(Slice, IDS, recipe=RECIPE, touch=TOUCH, hold=st.sampled_from(["", "", "later"]))
SESSION = st.builds("{}@{}".format, IDS, st.sampled_from([1, 1, 1, 2, 2, 3]))
URGENCY = st.sampled_from([Urgency.URGENT, Urgency.URGENT, Urgency.HIGH, Urgency.LOW])
INTENT = st.builds(
    Intent,
    st.sampled_from("xyz"),
    st.just("do it"),
    IDS | st.just(""),
    URGENCY,
    supersedes=st.sampled_from(["", "", "x"]),
    terms=st.lists(st.sampled_from(["src", "schema"]), max_size=1).map(tuple),
)
REPORT = st.builds(
    SessionState,
    SESSION,
    st.sampled_from([*SessionPhase, SessionPhase.MERGED, SessionPhase.CLOSED]),
    st.integers(0, 2),
    pull_request_url=st.sampled_from(["", "", "https://example.invalid/1"]),
    checkpoint=st.sampled_from(["", "so far"]),
)


def batch(least: int) -> st.SearchStrategy[Enqueue]:
    """Of slices that name no other."""
    touched = st.dictionaries(IDS, st.tuples(RECIPE, TOUCH), min_size=least, max_size=6)
    return touched.map(lambda parts: Enqueue(tuple(Slice(i, recipe=r, touch=t) for i, (r, t) in parts.items())))


COMMAND: st.SearchStrategy[Command] = st.one_of(
    batch(1),
    st.builds(Enqueue, st.lists(SLICE, min_size=1, max_size=3).map(tuple)),
    *[st.builds(Observe, REPORT)] * 8,
    st.builds(DeclareIntent, INTENT, st.booleans()),
    st.builds(Route, INTENT, st.just("please"), st.none() | LONE, st.none() | st.builds(Proof, st.just(""))),
    st.builds(MarkMerged, IDS),
    st.builds(Cancel, IDS),
    st.builds(Retry, IDS),
    st.builds(Hold, IDS),
    st.builds(Release, IDS),
    st.builds(Revise, LONE),
    st.builds(Pause),
    *[st.builds(Resume)] * 2,
    *[st.just(Remeasure())] * 2,
    st.builds(RequestFailed, SESSION, st.just("nobody there")),
)


@attrs.frozen
class Step:
    """`later` seconds after the one before. `restart`: before it another owner takes the graph up, with the sessions in
    `alive`."""

    command: Command
    later: float
    cap: int
    suspended: bool
    restart: bool
    alive: tuple[str, ...]


STEP = st.builds(
    Step,
    COMMAND,
    st.sampled_from([0.0, 0.25, 7.0]),
    st.sampled_from([0, 1, 2, 3, 3]),
    st.sampled_from([False] * 4 + [True]),
    st.sampled_from([False] * 9 + [True]),
    st.lists(SESSION, max_size=3).map(tuple),
)


class Life:
    """A machine whose rows go into a store. While it is suspended nothing is written, as in an outage."""

    def __init__(self) -> None:
        self.store, self.now = MemoryStore(), 1_000_000.0
        self.machine = self.start(())

    def start(self, alive: tuple[str, ...]) -> Machine:
        epoch, contents = self.store.claim("default", take_over=True).epoch, self.store.load()
        machine = Machine("default", "g", LearnedWeights(), Journal(epoch, contents.logged.last))
        machine.restore(contents, alive, self.now)
        return machine

    def play(self, step: Step) -> None:
        self.now += step.later
        if step.restart:
            self.machine = self.start(step.alive)
        self.machine.suspended = step.suspended
        with contextlib.suppress(DispatchError):
            self.machine.handle(step.command, self.now, step.cap)
        if not step.suspended:
            self.store.write(self.machine.changes())
            self.machine.written()


@settings(max_examples=examples(80), deadline=None)
@given(batch(4), st.lists(STEP, min_size=25, max_size=50))
def test_any_life_comes_out_the_same(first: Enqueue, steps: list[Step]) -> None:
    life = Life()
    life.play(Step(first, 0.0, 2, False, False, ()))
    for step in steps:
        life.play(step)
    life.store.write(life.machine.changes())
    life.store.release()
    verdict = assert_replays(life.store)
    event(f"decisions: {verdict.decisions // 5 * 5} and more")
