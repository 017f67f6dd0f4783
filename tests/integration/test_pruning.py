"""A log is pruned beside its owner, which goes on writing; what is left is played with the same decisions."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from dispatch import DispatchService, MemoryStore, Slice, Store, StoreError
from dispatch.commands import Enqueue, Hold, ListSlices, Release
from dispatch.owner import Tick
from dispatch.retention import Pruner, Retention, RetentionError
from dispatch.store import SqliteStore
from dispatch.store.port import History, KeyframeRow
from harness import SessionPhase
from tests.conformance.store_rig import ADAPTERS, World
from tests.integration import store_child
from tests.integration.service_rig import BEGAN_AT, LIMIT_S, Clock, Host, Owned, Places, owned
from tests.integration.store_child import child
from tests.replaying import assert_replays, excerpt, history_at

HOUR = 3_600.0
KEPT = Retention(days=8 / 24, entries=10**6)  #: eight hours: a keyframe every hour


def live(rig: Owned, turns: int, first: int = 0) -> None:
    for turn in range(first, first + turns):
        rig.ask(Enqueue((Slice(f"s{turn}"),)))
        rig.report(f"s{turn}@1", SessionPhase.MERGED if turn % 3 else SessionPhase.FAILED)
        rig.ask(Hold(f"s{turn}")) if turn % 3 == 0 else None


def look(rig: Owned) -> None:
    """Let the owner look after its log, and wait until it has begun what is due."""
    rig.tick()
    rig.ask(ListSlices())  # taken only after the tick was dealt with to its end


def made(path: Path) -> SqliteStore:
    """A store that is there, so that it can be looked into before it is claimed."""
    store = SqliteStore(path)
    store.claim("default")
    store.release()
    return store


def seqs(store: Store) -> tuple[list[int], list[int]]:
    """The entries and the keyframes that are there."""
    found = excerpt(store)
    return [row.seq for row in found.log], [frame.seq for frame in found.frames]


def pruner_of(store: Store, began: float, retention: Retention = KEPT) -> Pruner:
    """For the graph that `store` is about to be claimed for."""
    contents, _ = store.peek("default")
    return Pruner(history_at(store), "default", retention, contents.logged, began)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_what_is_older_than_the_span_goes_and_the_rest_plays_on(adapter: str, tmp_path: Path) -> None:
    opener = ADAPTERS[adapter](World(), tmp_path)
    store, reader = opener(), opener()
    store.claim("default")
    store.release()
    pruner = pruner_of(reader, BEGAN_AT)
    with owned(store, cores=2, pruner=lambda _: pruner) as rig:
        for hour in range(12):
            live(rig, 3, 3 * hour)
            rig.clock.now += HOUR
            look(rig)
            pruner.join(LIMIT_S)
            rig.clock.now += 1  # what was kept in this hour may let something go in the next look
            look(rig)
            pruner.join(LIMIT_S)
            assert_replays(reader)
        left, frames = seqs(reader)
        assert 8 <= len(frames) <= 9
        assert left[0] == frames[0] + 1 > 1
        assert left == list(range(left[0], left[-1] + 1))
    store.release()
    verdict = assert_replays(reader)
    assert verdict.begins == f"what came before entry {left[0]} is no longer kept"


class SlowHistory:
    """A log whose pruning waits, transaction by transaction, until it is told to go on."""

    def __init__(self, history: History) -> None:
        self.history, self.limit = history, 2
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.trouble: Exception | None = None

    def reading(self, graph: str) -> object:
        return self.history.reading(graph)

    def keep(self, graph: str, keyframe: KeyframeRow) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.history.keep(graph, keyframe)

    def prune(self, graph: str, keyframe: int, limit: int) -> int:
        self.begun.release()
        assert self.go.acquire(timeout=LIMIT_S)
        gone = self.history.prune(graph, keyframe, self.limit)
        return limit if gone == self.limit else gone


def with_history(store: Store, wrap: Callable[[History], SlowHistory]) -> tuple[SlowHistory, Pruner]:
    slow = wrap(history_at(store))
    return slow, Pruner(slow, "default", Retention(0), store.peek("default")[0].logged, 0.0)  # type: ignore[arg-type]


def test_the_owner_goes_on_while_its_log_is_pruned(tmp_path: Path) -> None:
    """Between two transactions of the pruner, and while one has been begun, commands are taken in and are durable."""
    store, reader = made(tmp_path / "graphs.db"), SqliteStore(tmp_path / "graphs.db")
    slow, pruner = with_history(store, SlowHistory)
    with owned(store, pruner=lambda _: pruner) as rig:
        live(rig, 3)
        rig.clock.now += HOUR
        look(rig)  # takes the keyframe
        pruner.join(LIMIT_S)
        live(rig, 2, 3)
        rig.clock.now += HOUR
        look(rig)  # lets go what came before it
        keyframe = seqs(reader)[1][0]
        assert keyframe > 6
        for step in range(keyframe // slow.limit + 1):
            assert slow.begun.acquire(timeout=LIMIT_S)
            rig.ask(Enqueue((Slice(f"meanwhile-{step}"),)))
            slow.go.release()
        pruner.join(LIMIT_S)
        left, frames = seqs(reader)
        assert frames[0] + 1 == left[0]
        assert_replays(reader)
    store.release()
    assert_replays(reader)


def test_a_service_that_is_stopped_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    store = made(tmp_path / "graphs.db")
    slow, pruner = with_history(store, SlowHistory)
    with owned(store, pruner=lambda _: pruner) as rig:
        live(rig, 4)
        rig.clock.now += HOUR
        look(rig)
        pruner.join(LIMIT_S)
        rig.clock.now += HOUR
        look(rig)
        assert slow.begun.acquire(timeout=LIMIT_S)
        stopping = threading.Thread(target=pruner.stop, args=(LIMIT_S,))
        stopping.start()
        slow.go.release()
        stopping.join(LIMIT_S)
        assert not slow.begun.acquire(timeout=0), "it went on"
        now = rig.clock.now
    left, frames = seqs(store)
    assert left[0] == 3, "two entries went"
    assert len(frames) == 1
    assert_replays(store)
    store.release()
    again = [pruner_of(store, now, Retention(0))]
    with owned(store, pruner=lambda _: again[0]) as rig:
        rig.clock.now = now
        look(rig)
        again[0].join(LIMIT_S)
        left, frames = seqs(store)
        assert left[0] == frames[0] + 1
    store.release()
    assert_replays(store)


def test_a_store_that_refuses_is_asked_again_a_minute_later(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    slow, pruner = with_history(store, SlowHistory)
    slow.trouble = StoreError("no room")
    with owned(store, pruner=lambda _: pruner) as rig:
        live(rig, 1)
        rig.clock.now += HOUR
        look(rig)
        pruner.join(LIMIT_S)
        assert "can't be pruned: no room" in caplog.text
        slow.trouble = None
        rig.tick(10)
        pruner.join(LIMIT_S)
        assert seqs(store)[1] == []
        rig.clock.now += 60
        look(rig)
        pruner.join(LIMIT_S)
        assert len(seqs(store)[1]) == 1


def test_a_service_prunes_by_its_setting(tmp_path: Path) -> None:
    store, clock = SqliteStore(tmp_path / "graphs.db"), Clock()
    service = DispatchService(Host(), store, measures=Places(), clock=clock, history_days=0).start()
    with service:
        for turn in range(40):
            service.enqueue(Slice(f"s{turn}"))
            service.hold(f"s{turn}")
        for _ in range(2):  # a keyframe, and what came before it once that is old enough
            clock.now += HOUR
            _tick(service)
        service.release("s0")
    left, frames = seqs(store)
    assert left[0] == frames[0] + 1 > 1
    assert_replays(store)


def _tick(service: DispatchService) -> None:
    """Let the owner look after its log, and wait until that is done."""
    service._line.tell(Tick())
    service.settle()
    pruner = service._pruner
    assert pruner is not None
    pruner.join(LIMIT_S)


def test_a_setting_that_is_none_is_refused_by_the_service() -> None:
    with pytest.raises(RetentionError):
        DispatchService(Host(), history_days=-1)


# -- killed in the midst of it -------------------------------------------------------------------------------------

KILLPOINTS = ["before-keyframe-commit", "after-keyframe-commit", "before-prune-commit", "after-prune-commit"]


def a_log(store: Store) -> KeyframeRow:
    """Twelve slices' lives, and a keyframe of the graph in the midst of them."""
    with owned(store, cores=2) as rig:
        live(rig, 12)
        rig.ask(Release("s0"))
    store.release()
    return excerpt(store).since(17).frames[0]


@pytest.mark.parametrize("point", KILLPOINTS)
@pytest.mark.parametrize("adapter", ["sqlite", "postgres"])
@pytest.mark.parametrize("passage", [1, 2])
def test_whoever_is_killed_in_the_midst_leaves_a_log_that_plays(
    adapter: str, point: str, passage: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where: Path | str = tmp_path / "graphs.db"
    if adapter == "postgres":
        where = request.getfixturevalue("postgres_database")
    store = store_child.store_at(where)
    frame = a_log(store)
    with child(store_child.pruning, where, f"{adapter}.{point}", passage, attrs.astuple(frame)) as victim:
        killed = victim.wait() == -signal.SIGKILL
    assert killed == (passage == 1 or "prune" in point), "only pruning takes more than one transaction"
    assert_replays(store)
    history = history_at(store)
    history.keep("default", frame)
    while history.prune("default", frame.seq, 5):
        assert_replays(store)
    assert seqs(store) == (list(range(18, excerpt(store).contents.logged.last + 1)), [17])
    assert_replays(store)
