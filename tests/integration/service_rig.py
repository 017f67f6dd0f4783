"""What the tests of owner and service need around them: a host and a store that do as they are told, and say so."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import attrs

from dispatch import DispatchService, MemoryStore, Store
from dispatch.calls import Line
from dispatch.capping import CapGauge
from dispatch.commands import ListSlices, Observe
from dispatch.errors import NotRunningError
from dispatch.journal import Journal
from dispatch.machine import Machine
from dispatch.outbox import Outbox
from dispatch.owner import GraphOwner, Stop, Tick
from dispatch.reply import BlockingReply
from dispatch.retention import Pruner
from dispatch.store import Changes, Claim, Contents
from dispatch.store.port import History, history_of
from dispatch.weights import UnitWeights, Weights
from harness import Assignment, SessionPhase, SessionState

LIMIT_S = 10.0  #: no test waits longer for anything
BEGAN_AT = 1_000_000.0
T = TypeVar("T")


class Noted(Generic[T]):
    """A list that can be waited for. From any thread."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._changed = threading.Condition()

    def add(self, item: T) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        with self._changed:
            return iter(list(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def wait(self, count: int) -> list[T]:
        """The items, once there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._items) >= count, LIMIT_S), f"only {self._items}"
            return list(self._items)


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = BEGAN_AT

    def __call__(self) -> float:
        return self.now


@attrs.define
class Places:
    """Measures that a test sets."""

    cores: float = 1.0
    load: float = 0.0


class Host:
    """Opens nothing. What it was asked is in `asked`; `before` is called, in the loop, before each request is noted."""

    def __init__(self) -> None:
        self.asked: Noted[tuple[str, ...]] = Noted()
        self.assignments: dict[str, Assignment] = {}
        self.before: Callable[..., Any] | None = None
        self._turns = itertools.count(1)

    async def submit(self, assignment: Assignment) -> None:
        await self._ask("submit", assignment.assignment_id)
        self.assignments[assignment.assignment_id] = assignment

    async def send(self, assignment_id: str, message: str) -> str:
        await self._ask("send", assignment_id, message)
        return f"turn-{next(self._turns)}"

    async def cancel(self, assignment_id: str) -> None:
        await self._ask("cancel", assignment_id)

    async def _ask(self, *request: str) -> None:
        if self.before is not None:
            await self.before(*request)
        self.asked.add(request)

    def sessions(self, what: str = "submit") -> list[str]:
        return [session for name, session, *_ in self.asked if name == what]


class Gate:
    """Holds requests for some sessions up until it is opened."""

    def __init__(self, *sessions: str) -> None:
        self.sessions, self.waiting = sessions, Noted[str]()
        self._opened: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, what: str, session: str, *_: str) -> None:
        if session in self.sessions:
            self._opened = self._opened or asyncio.Event()
            self._loop = asyncio.get_running_loop()
            self.waiting.add(session)
            await self._opened.wait()

    def open(self) -> None:
        assert self._loop is not None
        assert self._opened is not None
        self.sessions = ()
        self._loop.call_soon_threadsafe(self._opened.set)


class TroubledStore:
    """A store that works, and whose every write, renewal and claim a test can hold up or let fail.

    `trouble` is raised instead of doing what was asked; with `after`, once it is done. While `gate` is closed a write
    waits in front of it.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or MemoryStore()
        self.writes: Noted[Changes] = Noted()
        self.tries: Noted[str] = Noted()
        self.trouble: Exception | None = None
        self.after = False
        self.gate = threading.Event()
        self.gate.set()

    @property
    def url(self) -> str:
        return self.store.url

    def claim(self, graph: str, *, take_over: bool = False) -> Claim:
        self._meet("claim")
        return self.store.claim(graph, take_over=take_over)

    def load(self) -> Contents:
        self._meet("load")
        return self.store.load()

    def write(self, changes: Changes) -> None:
        self._meet("write")
        assert self.gate.wait(LIMIT_S)
        self.store.write(changes)
        self.writes.add(changes)
        if self.trouble is not None:
            raise self.trouble

    def renew(self) -> None:
        self._meet("renew")
        self.store.renew()

    def release(self) -> None:
        self.tries.add("release")
        self.store.release()

    def peek(self, graph: str) -> tuple[Contents, Claim | None]:
        return self.store.peek(graph)

    def history(self) -> History:
        found = history_of(self.store)
        assert found is not None
        return found

    def _meet(self, what: str) -> None:
        self.tries.add(what)
        if self.trouble is not None and not (self.after and what == "write"):
            raise self.trouble

    def written_ids(self) -> list[list[str]]:
        """The slices of each write."""
        return [[row.slice.id for row in changes.slices] for changes in self.writes]


class Owned:
    """An owner without a service around it: time passes when `tick` says so."""

    def __init__(
        self,
        store: Store | None = None,
        host: Host | None = None,
        cores: float = 1,
        weights: Weights | None = None,
        pruner: Callable[[Clock], Pruner] | None = None,
    ) -> None:
        self.store, self.host, self.places, self.clock = store, host or Host(), Places(cores), Clock()
        self.line = Line()
        self.outbox = Outbox(self.host, self.line.tell, first_pause_s=0.001)
        machine = Machine("default", "g1", weights or UnitWeights())
        if store is not None:
            epoch, contents = store.claim("default").epoch, store.load()
            machine.journal = Journal(epoch, contents.logged.last)
            machine.restore(contents, (), self.clock())
        self.outbox.start()
        pruning = None if pruner is None else pruner(self.clock)
        self.owner = GraphOwner.start(
            machine, CapGauge(self.places), self.outbox, store, self.clock, self.line.health, pruning
        )
        self.line.open(self.owner)

    def ask(self, item: Any, timeout: float = LIMIT_S) -> Any:
        return self.line.ask(item, timeout)

    def send(self, *items: Any) -> list[BlockingReply]:
        """Put them into the inbox; the replies come when they come."""
        replies = [BlockingReply() for _ in items]
        for item, reply in zip(items, replies, strict=True):
            self.line.tell(item, reply)
        return replies

    def report(self, session: str, phase: SessionPhase = SessionPhase.MERGED, **fields: Any) -> None:
        self.line.tell(Observe(SessionState(session, phase, **fields)))

    def tick(self, times: int = 1) -> None:
        """Let the owner tick, and wait until it has."""
        for _ in range(times):
            self.clock.now += 1
            with contextlib.suppress(NotRunningError):
                self.line.tell(Tick())
                self.ask(ListSlices())

    def states(self) -> dict[str, str]:
        return {view.id: view.state.value for view in self.ask(ListSlices())}

    def close(self) -> None:
        if self.owner.is_alive():
            self.line.ask(Stop(), LIMIT_S)
        self.line.close()
        self.outbox.stop(LIMIT_S)


@contextlib.contextmanager
def owned(store: Store | None = None, host: Host | None = None, **fields: Any) -> Iterator[Owned]:
    rig = Owned(store, host, **fields)
    try:
        yield rig
    finally:
        rig.close()


@contextlib.contextmanager
def serving(
    host: Any = None, store: Store | str | None = None, cores: float = 1, **fields: Any
) -> Iterator[DispatchService]:
    fields.setdefault("weights", UnitWeights())
    service = DispatchService(host or Host(), store, measures=Places(cores), **fields)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def in_thread(function: Callable[[], Any], name: str = "test") -> tuple[threading.Thread, list[Any]]:
    """Runs it; what it returns or raises is in the list once the thread has ended."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:  # noqa: BLE001 - the outcome, whatever it is
            outcome.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread, outcome


def finished(thread: threading.Thread) -> None:
    thread.join(LIMIT_S)
    assert not thread.is_alive(), f"{thread.name} hangs"
