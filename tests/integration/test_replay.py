"""A log played again makes the same decisions; one that was tampered with doesn't, and it is said where."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from dispatch import (
    Intent,
    LearnedWeights,
    MemoryStore,
    Recipe,
    Slice,
    Store,
    StoreUnavailableError,
    TouchSet,
    Urgency,
)
from dispatch.commands import (
    Cancel,
    Command,
    DeclareIntent,
    Enqueue,
    Hold,
    ListSlices,
    MarkMerged,
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
from dispatch.history import UnplayableError, check, moment
from dispatch.slice import SliceState
from dispatch.store import Changes, GraphRow, SliceRow
from dispatch.store.port import LogRow
from harness import SessionPhase
from tests.conformance.store_rig import ADAPTERS, World
from tests.integration.service_rig import Host, Owned, TroubledStore, owned, serving
from tests.replaying import Excerpt, assert_replays, excerpt


def work(id_: str, *, kind: str = "", **fields: object) -> Slice:
    return Slice(id_, recipe=Recipe(kind=kind), **fields)  # type: ignore[arg-type]


@contextlib.contextmanager
def living(store: Store, **fields: Any) -> Iterator[Owned]:
    """An owner whose claim ends with it: another one may follow at once."""
    try:
        with owned(store, **fields) as rig:
            yield rig
    finally:
        store.release()


def urgent(slice_id: str) -> DeclareIntent:
    return DeclareIntent(Intent(f"urgent-{slice_id}", "now", slice_id, Urgency.URGENT))


def a_life(rig: Owned) -> None:
    """Some of everything: two places, five slices, a preemption, a merge from outside, a cancel."""
    for slice_ in (work("a", kind="slow"), work("b"), work("c", depends_on=("a",)), work("d"), work("e")):
        rig.ask(Enqueue((slice_,)))
    rig.ask(Revise(attrs.evolve(work("d"), title="more", touch=TouchSet(("src/**",)))))
    rig.clock.now += 5
    rig.report("a@1", SessionPhase.RUNNING, turns=2, pull_request_url="https://example.invalid/1")
    rig.ask(urgent("e"))
    rig.clock.now += 5
    rig.report("b@1", SessionPhase.CANCELED, checkpoint="got as far as this")
    rig.report("a@1", SessionPhase.MERGED)
    rig.ask(MarkMerged("e"))
    rig.ask(Revise(attrs.evolve(work("d"), title="yet more")))
    rig.report("c@1", SessionPhase.CLOSED, detail="no luck")
    rig.ask(Hold("d", "later"))
    rig.ask(Cancel("d"))
    rig.ask(Route(Intent("r", "do", "b"), "please"))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def lived(store: MemoryStore) -> Excerpt:
    with living(store, cores=2) as rig:
        a_life(rig)
    return excerpt(store)


# -- it comes out the same -----------------------------------------------------------------------------------------


def test_a_life_comes_out_the_same_with_its_numbers(store: MemoryStore, lived: Excerpt) -> None:
    verdict = assert_replays(store)
    assert [row.seq for row in lived.log] == list(range(1, len(lived.log) + 1))
    assert verdict.inputs == len(lived.log)
    started = sum(len(json.loads(row.decisions).get("starts", ())) for row in lived.log)
    assert started >= 5
    assert verdict.decisions > started
    assert (verdict.since, verdict.until) == (lived.log[0].at, lived.log[-1].at)
    assert verdict.begins == ""


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_life_comes_out_the_same_of_every_store(adapter: str, tmp_path: Path) -> None:
    opener = ADAPTERS[adapter](World(), tmp_path)
    with living(opener(), cores=2) as rig:
        a_life(rig)
    with living(opener(), cores=3, weights=LearnedWeights()) as rig:
        rig.ask(Enqueue((work("g", title="größer"), work("f", kind="slow"))))
        rig.report("f@1", SessionPhase.CLOSED, checkpoint='Zwischenstand \\ "{1,2}"')
    verdict = assert_replays(opener())
    assert verdict.inputs > 15


def test_the_log_goes_on_through_restarts(store: MemoryStore, lived: Excerpt) -> None:
    with living(store, cores=1) as rig:
        rig.ask(Enqueue((work("f"),)))
    rows = excerpt(store).log
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert [(row.epoch, row.kind) for row in rows[len(lived.log) :]] == [(2, "open"), (2, "enqueue")]
    moved = json.loads(rows[len(lived.log)].decisions)["moved"]
    assert ["b", "queued"] in moved  # it was running, and its session ended with its owner
    assert_replays(store)


def test_learned_weights_come_out_the_same(store: MemoryStore) -> None:
    with living(store, cores=3, weights=LearnedWeights()) as rig:
        rig.ask(Enqueue(tuple(work(f"s{n}", kind=f"k{n % 3}") for n in range(24))))
        for turn in range(40):
            rig.clock.now += 0.1 + turn % 7
            running = [view.assignment_id for view in rig.ask(ListSlices()) if view.assignment_id]
            if running:
                rig.report(running[turn % len(running)])
            rig.ask(Remeasure())
    with living(store, cores=2, weights=LearnedWeights()) as rig:
        rig.ask(Enqueue((work("late", kind="k1"),)))
    assert_replays(store)
    starts = [start for row in excerpt(store).log for start in json.loads(row.decisions).get("starts", ())]
    assert len({upward for _, upward, _, _ in starts}) > 3


def test_an_outage_comes_out_the_same() -> None:
    """While the store is out of reach commands are taken in and nothing is started: the log says so."""
    store = TroubledStore()
    with living(store, cores=1) as rig:
        rig.ask(Enqueue((work("a"), work("b"))))
        store.trouble = StoreUnavailableError("unplugged")
        replies = rig.send(Enqueue((work("c"),)))
        rig.tick()
        replies += rig.send(Hold("b", "no"))
        rig.report("a@1")
        rig.tick()
        store.trouble = None
        rig.tick()
        for reply in replies:
            reply.wait(10)
        assert rig.states()["c"] == "running"
    rows = excerpt(store).log
    assert [row.suspended for row in rows if row.kind in ("hold", "report")] == [True, True]
    assert rows[-1].kind == "pass"
    assert_replays(store)


def test_slices_of_before_their_revision_come_out_as_they_were(store: MemoryStore, lived: Excerpt) -> None:
    titles = []
    for row in lived.log:
        then = moment("default", lived, lambda seq, _, last=row.seq: seq > last)  # type: ignore[misc]
        if "d" in then.machine.graph.nodes:
            titles.append(then.machine.graph.node("d").slice.title)
    assert list(dict.fromkeys(titles)) == ["d", "more", "yet more"]
    assert lived.contents.slices[3].slice.title == "yet more"


def test_a_moment_is_the_graph_of_that_time(store: MemoryStore) -> None:
    with living(store) as rig:
        rig.ask(Enqueue((work("a"), work("b"))))
        rig.clock.now += 10
        rig.report("a@1")
        rig.ask(Pause("enough"))
        began = rig.clock.now - 10
    log = excerpt(store)
    then = moment("default", log, lambda _, at: at > began + 5)
    assert {name: node.state for name, node in then.machine.graph.nodes.items()} == {
        "a": SliceState.RUNNING,
        "b": SliceState.QUEUED,
    }
    assert (then.at, then.epoch, then.since) == (began, 1, began)
    now = moment("default", log, lambda *_: False)
    assert now.machine.paused == "enough"
    with pytest.raises(UnplayableError, match="had not begun"):
        moment("default", log, lambda _, at: at > began - 1)


# -- what makes an entry, and what none ----------------------------------------------------------------------------

NOTHING_NEW: list[Command] = [
    Remeasure(),
    Resume(),
    Release("a"),
    RequestFailed("absent@1", "no"),
    Route(Intent("r", "do"), "please"),
]


@pytest.mark.parametrize("command", NOTHING_NEW, ids=lambda command: type(command).__name__)
def test_what_changes_and_decides_nothing_makes_no_entry(store: MemoryStore, command: Command) -> None:
    with living(store) as rig:
        rig.ask(Enqueue((work("a"),)))
        rig.report("a@1", SessionPhase.RUNNING, turns=1)
        rig.ask(Enqueue((work("b"),)))
        before = len(excerpt(store).log)
        rig.ask(command)
        rig.report("a@1", SessionPhase.RUNNING, turns=1)
        rig.report("absent@1", SessionPhase.MERGED)
        rig.tick(2)
        assert len(excerpt(store).log) == before


def test_a_pass_that_nobody_asked_for_makes_an_entry_if_it_decides(store: MemoryStore) -> None:
    with living(store) as rig:
        rig.ask(Enqueue((work("a"), work("b"))))
        rig.places.cores = 2
        rig.report("a@1", SessionPhase.RUNNING)  # says nothing, but the pass after it sees the second place
    row = excerpt(store).log[-1]
    assert (row.kind, row.input, row.cap) == ("pass", "{}", 2)
    assert json.loads(row.decisions) == {"starts": [["b@1", 1.0, 0, 2]]}
    assert_replays(store)


def test_room_that_is_made_without_asking_anybody_is_a_decision(store: MemoryStore) -> None:
    with living(store, cores=2) as rig:
        rig.ask(Enqueue((work("a", touch=TouchSet(hotspots=("x",))), work("b"), work("now"), work("two"))))
        rig.ask(urgent("now"))
        rig.ask(urgent("two"))
        rig.report("a@1", SessionPhase.CANCELED)
        rig.report("b@1", SessionPhase.CANCELED)
    rooms = [json.loads(row.decisions).get("room") for row in excerpt(store).log]
    assert [room for room in rooms if room is not None] == [["now"], ["now", "two"], ["two"], []]
    assert_replays(store)


def test_a_preemption_says_for_whom(lived: Excerpt) -> None:
    (row,) = [row for row in lived.log if "preempts" in row.decisions]
    assert json.loads(row.decisions)["preempts"] == [["b@1", "e"]]
    assert json.loads(row.decisions)["room"] == ["e"]


def test_what_was_decided_of_a_message_is_kept(store: MemoryStore) -> None:
    with living(store) as rig:
        rig.ask(Enqueue((work("a"),)))
        rig.ask(Route(Intent("r", "do", "a"), "please"))
        rig.ask(Route(Intent("n", "do", "b"), "", work("b"), Proof()))
        rig.report("a@1")
        rig.ask(Route(Intent("m", "do", "a"), "again"))
    routed = [json.loads(row.decisions) for row in excerpt(store).log if row.kind == "route"]
    assert [(decided["routed"], decided["to"]) for decided in routed] == [
        ("steer", "a"),
        ("new", "b"),
        ("already_done", "a"),
    ]
    assert routed[0]["sends"] == ["a@1"]
    assert_replays(store)


def test_many_slices_are_one_short_entry(store: MemoryStore) -> None:
    with living(store) as rig:
        rig.ask(Enqueue(tuple(Slice(f"s{n}", recipe=Recipe(prompt="x" * 1000)) for n in range(1000))))
    row = excerpt(store).log[-1]
    assert row.kind == "enqueue"
    assert len(row.input) + len(row.decisions) < 200
    assert_replays(store)


def test_a_cap_beyond_all_bounds_is_kept_as_one_that_every_database_holds(store: MemoryStore) -> None:
    with living(store, cores=1e30) as rig:
        rig.ask(Enqueue((work("a"),)))
    assert_replays(store)


# -- where a log can't begin with its graph ------------------------------------------------------------------------


def old_graph(store: MemoryStore) -> None:
    """What a version that kept no log has left."""
    store.claim("default")
    rows = (SliceRow(work("a"), 1, SliceState.RUNNING, attempt=1), SliceRow(work("b"), 2, SliceState.QUEUED))
    store.write(Changes(GraphRow("g", "for the night"), rows))
    store.release()


def test_what_was_there_before_there_was_a_log_is_its_beginning(store: MemoryStore) -> None:
    old_graph(store)
    with serving(store=store) as service:
        service.resume()
        service.settle()
    verdict = assert_replays(store)
    assert "older version" in verdict.begins
    log = excerpt(store)
    assert log.contents.logged.keyframes[0][0] == 0
    assert [row.kind for row in log.log] == ["open", "resume"]
    assert json.loads(log.log[0].decisions)["moved"] == [["a", "queued"]]
    with serving(store=store):
        pass
    assert len(excerpt(store).frames) == 1


def test_a_graph_without_a_log_is_refused_in_words(store: MemoryStore) -> None:
    old_graph(store)
    with pytest.raises(UnplayableError, match="no log is kept of graph 'default'"):
        check("default", excerpt(store))


class Odd(LearnedWeights):
    """Somebody's own."""


def test_weights_of_another_program_have_to_be_given(store: MemoryStore) -> None:
    with living(store, weights=Odd()) as rig:
        rig.ask(Enqueue((work("a"),)))
        rig.report("a@1")
    log = excerpt(store)
    with pytest.raises(UnplayableError, match="'Odd'"):
        check("default", log)
    assert check("default", log, lambda _: Odd()).difference is None


# -- what was tampered with ----------------------------------------------------------------------------------------


def doctored(log: Excerpt, seq: int, change: Callable[[LogRow], LogRow | None]) -> Excerpt:
    rows = (row if row.seq != seq else change(row) for row in log.log)
    return attrs.evolve(log, log=tuple(row for row in rows if row is not None))


def otherwise_decided(row: LogRow) -> LogRow:
    decided = json.loads(row.decisions)
    decided["starts"] = [["x@1", 1.0, 0, 1], *decided.get("starts", ())]
    return attrs.evolve(row, decisions=json.dumps(decided))


@pytest.fixture
def seqs(lived: Excerpt) -> Iterator[range]:
    yield range(1, len(lived.log))  # without the last: what is missing at the end shows in the graph alone


def test_a_decision_that_was_changed_is_found(lived: Excerpt, seqs: range) -> None:
    for seq in seqs:
        found = check("default", doctored(lived, seq, otherwise_decided)).difference
        assert found is not None
        assert found.seq == seq
        assert "x@1" in found.stored
        assert "x@1" not in found.came_out


def test_an_entry_that_is_missing_is_found(lived: Excerpt, seqs: range) -> None:
    for seq in seqs:
        found = check("default", doctored(lived, seq, lambda _: None)).difference
        assert found is not None
        assert (found.seq, found.text) == (seq, f"entry {seq} of the log can't be found")


def test_entries_that_are_missing_at_the_end_show_in_the_graph(lived: Excerpt) -> None:
    found = check("default", attrs.evolve(lived, log=lived.log[:-3])).difference
    assert found is not None
    assert found.seq == 0
    assert found.text == "slice d is stored otherwise than it comes out"
    assert "canceled" in found.stored.lower()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input": '{"first":1,"count":0}'}, "not the input"),
        ({"input": "["}, "can't be read"),
        ({"input": '{"first":1,"count":99}'}, "can't be read"),
        ({"kind": "sing"}, "can't be read"),
        ({"kind": "cancel", "input": '{"slice":"nobody"}'}, "refused"),
        ({"kind": "pass", "input": "{}", "cap": 0}, "changes nothing"),
        ({"at": 7.0}, "slice c is stored otherwise"),
        ({"cap": 3}, ""),  # what waits for another slice waits whatever the cap: no decision was another one
    ],
)
def test_an_input_that_was_changed_is_found(lived: Excerpt, change: dict[str, object], words: str) -> None:
    seq = next(row.seq for row in lived.log if row.kind == "enqueue") + 2  # of c, which waits for a
    found = check("default", doctored(lived, seq, lambda row: attrs.evolve(row, **change))).difference
    assert bool(found) == bool(words)
    assert found is None or re.search(words, found.text)


def test_a_cap_that_was_changed_is_found_where_it_mattered(lived: Excerpt) -> None:
    seq = next(row.seq for row in lived.log if row.kind == "enqueue") + 3  # of d, which waits for a place
    found = check("default", doctored(lived, seq, lambda row: attrs.evolve(row, cap=7))).difference
    assert found is not None
    assert (found.seq, found.stored) == (seq, "{}")
    assert "d@1" in found.came_out


def test_a_row_that_was_changed_is_found(lived: Excerpt) -> None:
    rows = (attrs.evolve(lived.contents.slices[0], turns=99), *lived.contents.slices[1:])
    found = check("default", attrs.evolve(lived, contents=attrs.evolve(lived.contents, slices=rows))).difference
    assert found is not None
    assert (found.seq, found.stored) == (0, "turns=99")
    gone = attrs.evolve(lived.contents, attempts=lived.contents.attempts[1:])
    found = check("default", attrs.evolve(lived, contents=gone)).difference
    assert found is not None
    assert found.text == "attempt a@1 is stored otherwise than it comes out"


def test_a_host_that_says_which_sessions_live_is_replayed(store: MemoryStore) -> None:
    class Adopting(Host):
        async def adopt(self, assignment_ids: object) -> list[str]:
            return ["a@1"]

    with living(store, cores=2) as rig:
        rig.ask(Enqueue((work("a"), work("b"))))
        rig.ask(Cancel("a"))
    with serving(Adopting(), store) as service:
        assert service.get("a").state is SliceState.RUNNING
    opened = excerpt(store).log[3]
    assert json.loads(opened.input)["alive"] == ["a@1"]
    assert json.loads(opened.decisions) == {"moved": [["b", "queued"]], "stops": ["a@1"]}
    assert_replays(store)


def test_retry_and_requests_that_failed_come_out_the_same(store: MemoryStore) -> None:
    with living(store) as rig:
        rig.ask(Enqueue((work("a"),)))
        rig.ask(Cancel("a"))
        rig.ask(RequestFailed("a@1", "nobody there"))
        rig.ask(Cancel("a"))
        rig.report("a@1", SessionPhase.FAILED, error="broke")
        rig.ask(Retry("a"))
        rig.ask(Pause())
        rig.ask(Resume())
    assert_replays(store)
