"""Services inside other people's programs: however those end, they end; what is called in the wrong place says so."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from dispatch import DispatchService, MemoryStore, NotRunningError, Slice, SliceState, UnitWeights
from harness import Assignment, HostClosedError, SessionPhase, SessionState
from tests.integration.service_rig import LIMIT_S, Host, Noted, Places, finished, in_thread, serving

ROOT = Path(__file__).parents[2]
PREAMBLE = """
import asyncio, os, signal, sys, threading
import anyio
from dispatch import DispatchService, FixedCap, Slice
from harness import SessionPhase, SessionState

class Host:
    '''Its sessions run for ever, each in a task of the loop that opened it.'''

    def __init__(self):
        self.tasks, self.opened = [], threading.Event()

    async def submit(self, assignment):
        self.tasks.append(asyncio.get_running_loop().create_task(asyncio.sleep(1e6)))
        self.opened.set()

    async def send(self, assignment_id, message):
        return "turn-1"

    async def cancel(self, assignment_id):
        pass

def begin(store=None, **fields):
    host = Host()
    service = DispatchService(host, store, measures=FixedCap(3), **fields).start()
    service.enqueue_many([Slice("a"), Slice("b"), Slice("c", depends_on=("a",))])
    assert host.opened.wait(10)
    return service
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program, which must end by itself within the limit."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PREAMBLE + textwrap.dedent(program), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3 * LIMIT_S,
        check=False,
    )


# What the program does once sessions run; its exit status; what its last line of error says.
ENDINGS: dict[str, tuple[str, int, str]] = {
    "forgets to stop": ("begin()", 0, ""),
    "forgets to stop, with a store": ("begin(sys.argv[1])", 0, ""),
    "stops": ("begin(sys.argv[1]).stop()", 0, ""),
    "leaves it by an exception": ("with begin(sys.argv[1]): raise ValueError('over')", 1, "ValueError: over"),
    "an exception": ("begin(sys.argv[1]); raise ValueError('over')", 1, "ValueError: over"),
    "sys.exit": ("begin(sys.argv[1]); sys.exit(3)", 3, ""),
    "sys.exit inside": ("with begin(sys.argv[1]): sys.exit(3)", 3, ""),
    "os._exit": ("begin(sys.argv[1]); os._exit(4)", 4, ""),
    "SIGTERM": (
        "begin(sys.argv[1]); os.kill(os.getpid(), signal.SIGTERM); threading.Event().wait()",
        *(-signal.SIGTERM, ""),
    ),
    "SIGINT": (
        "begin(sys.argv[1]); os.kill(os.getpid(), signal.SIGINT); threading.Event().wait()",
        *(-signal.SIGINT, "KeyboardInterrupt"),
    ),
    "SIGINT in a call": (
        """
        service = begin(sys.argv[1])
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        service.wait_for_change(10**9, 1000)
        """,
        *(-signal.SIGINT, "KeyboardInterrupt"),
    ),
    "started from a thread that has ended": (
        "thread = threading.Thread(target=begin); thread.start(); thread.join()",
        *(0, ""),
    ),
    "a call from a thread that waits for ever": (
        """
        service = begin()
        threading.Thread(target=service.wait_for_change, args=(10**9, 1e6), daemon=True).start()
        """,
        *(0, ""),
    ),
    "inside asyncio.run": (
        """
        async def main():
            service = begin(sys.argv[1])
            await service.aio.enqueue(Slice("d"))
        asyncio.run(main())
        """,
        *(0, ""),
    ),
    "inside trio.run, by an exception": (
        """
        import trio
        async def main():
            service = begin()
            await service.aio.enqueue(Slice("d"))
            raise ValueError("over")
        trio.run(main)
        """,
        *(1, "ValueError: over"),
    ),
    "inside asyncio.run, with a call that was cancelled": (
        """
        async def main():
            service = begin()
            with anyio.move_on_after(0.05):
                await service.aio.wait_for_change(10**9, 1e6)
            await service.aio.enqueue(Slice("d"))
        asyncio.run(main())
        """,
        *(0, ""),
    ),
    "a defect in the owner": (
        """
        import logging
        logging.disable(logging.CRITICAL)
        from dispatch import NotRunningError, UnitWeights
        class Broken(UnitWeights):
            def measured(self, kind, seconds):
                raise RuntimeError("out of order")
        service = begin(weights=Broken())
        try:
            service.mark_merged("a", timeout=None)
        except NotRunningError as error:
            print(error, file=sys.stderr)
        """,
        *(0, "the graph's owner crashed (RuntimeError('out of order')); start the service again"),
    ),
    "a request to the host that hangs": (
        """
        class Hanging(Host):
            async def submit(self, assignment):
                await super().submit(assignment)
                await asyncio.sleep(1e6)
        Host = Hanging
        begin()
        """,
        *(0, ""),
    ),
    "no file descriptors left": (
        """
        import logging, resource
        logging.disable(logging.CRITICAL)
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, used))
        try:
            begin()
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(5)  # asyncio complains of its half-made loop when that is collected
        """,
        *(5, "[Errno 24] Too many open files"),
    ),
    "two services": ("begin(graph='one'); begin(graph='two')", 0, ""),
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_that_ends_ends(ending: str, tmp_path: Path) -> None:
    program, status, said = ENDINGS[ending]
    ended = run(program, f"sqlite:///{tmp_path / 'graphs.db'}")
    assert (ended.returncode, (ended.stderr.strip().splitlines() or [""])[-1]) == (status, said), ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert "Fatal Python error" not in ended.stderr


@pytest.mark.parametrize("ending", ["forgets to stop, with a store", "os._exit", "SIGTERM", "SIGINT"])
def test_what_was_acknowledged_before_such_an_end_is_there_at_once(ending: str, tmp_path: Path) -> None:
    """The owner is known to be gone: nobody waits for its claim to run out."""
    url = f"sqlite:///{tmp_path / 'graphs.db'}"
    run(ENDINGS[ending][0], url)
    with serving(store=url, cores=1) as service:
        assert {view.id: view.state.value for view in service.list()} == {"a": "running", "b": "queued", "c": "queued"}
        assert service.get("a").attempt == 2


# --- one process --------------------------------------------------------------------------------------------------


def test_two_services_with_two_graphs_do_not_meet() -> None:
    store = MemoryStore()
    with serving(store=store, graph="one") as one, serving(store=store.another(), graph="two") as two:
        one.enqueue(Slice("a"))
        two.enqueue(Slice("a"))
        two.cancel("a")
        one.pause()
        assert one.get("a").state is SliceState.RUNNING
        assert two.snapshot().paused == ""
        one.stop()
        two.enqueue(Slice("b"))


def test_stopping_twice_is_stopping_once_and_asks_no_session_to_stop() -> None:
    host = Host()
    with serving(host) as service:
        service.enqueue(Slice("a"))
        service.stop()
        service.stop()
    assert list(host.asked) == [("submit", "a@1")]


def test_stopping_from_two_threads_at_once() -> None:
    with serving() as service:
        threads = [in_thread(service.stop) for _ in range(4)]
        for thread, _ in threads:
            finished(thread)
        assert [outcome for _, outcome in threads] == [[None]] * 4


def test_nothing_is_left_running_after_a_stop() -> None:
    before = set(threading.enumerate())
    with serving() as service:
        mine = set(threading.enumerate()) - before
        assert {thread.name.partition("-")[0] for thread in mine} == {"GraphOwner", "dispatch"}
        assert all(thread.daemon for thread in mine)
        service.stop()
    for thread in mine:
        finished(thread)


def test_a_service_is_started_once() -> None:
    with serving() as service:
        with pytest.raises(NotRunningError, match="started once"):
            service.start()
        service.enqueue(Slice("a"))
        service.stop()
        with pytest.raises(NotRunningError, match="started once"):
            service.start()


CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("enqueue", (Slice("a"),)),
    ("enqueue_many", ([Slice("a")],)),
    *((name, ("a",)) for name in ("mark_merged", "cancel", "retry", "hold", "release", "get", "explain")),
    *((name, ()) for name in ("pause", "resume", "remeasure", "frontier", "snapshot", "settle", "check", "list")),
    ("observe_session", (SessionState("a@1", SessionPhase.MERGED),)),
]


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_calls_before_the_start_and_after_the_stop_are_refused(name: str, arguments: tuple[Any, ...]) -> None:
    service = DispatchService(Host(), measures=Places())
    with pytest.raises(NotRunningError, match="start"):
        getattr(service, name)(*arguments)
    with service:
        service.stop()
        with pytest.raises(NotRunningError, match="the service was stopped"):
            getattr(service, name)(*arguments)

    async def awaited() -> None:
        await getattr(service.aio, name)(*arguments)

    with pytest.raises(NotRunningError, match="the service was stopped"):
        anyio.run(awaited)


def test_waiting_for_a_change_before_the_start_is_refused_and_after_the_stop_is_over_at_once() -> None:
    service = DispatchService(Host(), measures=Places())
    with pytest.raises(NotRunningError, match="start"):
        service.wait_for_change(0)
    with pytest.raises(NotRunningError, match="start"):
        anyio.run(service.aio.wait_for_change, 0)
    with service:
        seen = service.wait_for_change(-1)
        service.stop()
        assert service.wait_for_change(seen + 100, 1e6) >= seen
        assert anyio.run(service.aio.wait_for_change, seen + 100, 1e6) >= seen


# --- in the service's own threads ---------------------------------------------------------------------------------


class Impatient(Host):
    """Calls the service from where it is called itself."""

    def __init__(self, call: Callable[[DispatchService], Any]) -> None:
        super().__init__()
        self.call, self.outcomes = call, Noted[Any]()
        self.service: DispatchService | None = None

    async def submit(self, assignment: Assignment) -> None:
        await super().submit(assignment)
        assert self.service is not None
        try:
            self.outcomes.add(self.call(self.service))
        except RuntimeError as error:
            self.outcomes.add(error)


BLOCKING: list[Callable[[DispatchService], Any]] = [
    lambda service: service.list(),
    lambda service: service.settle(),
    lambda service: service.enqueue(Slice("b")),
    lambda service: service.wait_for_change(0),
    lambda service: service.stop(),
]


@pytest.mark.parametrize("call", BLOCKING)
def test_a_call_that_would_block_the_hosts_own_loop_is_refused_at_once(call: Callable[[DispatchService], Any]) -> None:
    host = Impatient(call)
    with serving(host) as service:
        host.service = service
        service.enqueue(Slice("a"))
        (outcome,) = host.outcomes.wait(1)
        assert isinstance(outcome, RuntimeError)
        assert "would wait for its own thread" in str(outcome)
        assert service.get("a").state is SliceState.RUNNING


@pytest.mark.parametrize("call", BLOCKING)
def test_a_call_that_would_block_the_owner_is_refused_at_once(call: Callable[[DispatchService], Any]) -> None:
    class Curious(UnitWeights):
        def measured(self, kind: str, seconds: float) -> bool:
            try:
                outcomes.add(call(service))
            except RuntimeError as error:
                outcomes.add(error)
            return False

    outcomes: Noted[Any] = Noted()
    with serving(weights=Curious()) as service:
        service.enqueue(Slice("a"))
        service.mark_merged("a")
        (outcome,) = outcomes.wait(1)
        assert isinstance(outcome, RuntimeError)
        assert service.get("a").state is SliceState.MERGED


def test_a_host_may_use_the_awaitable_calls_and_report_from_its_loop() -> None:
    class Busy(Host):
        service: DispatchService

        async def submit(self, assignment: Assignment) -> None:
            await super().submit(assignment)
            view = await self.service.aio.get(assignment.slice_id)
            assert view.state is SliceState.RUNNING
            self.service.observe_session(SessionState(assignment.assignment_id, SessionPhase.MERGED))

    host = Busy()
    with serving(host) as service:
        host.service = service
        service.enqueue_many([Slice("a"), Slice("b", depends_on=("a",)), Slice("c")])
        service.settle(LIMIT_S)
        assert {view.state for view in service.list()} == {SliceState.MERGED}


# --- hosts whose sessions live on ---------------------------------------------------------------------------------


class Lasting(Host):
    """Knows which of its sessions live, and reports where it was told to."""

    def __init__(self, alive: Iterable[str], early: Iterable[SessionState] = ()) -> None:
        super().__init__()
        self.alive, self.early = list(alive), list(early)
        self.asked_about: Noted[list[str]] = Noted()
        self.report: Callable[[SessionState], None] | None = None

    def connect(self, report: Callable[[SessionState], None]) -> None:
        self.report = report

    async def adopt(self, assignment_ids: Iterable[str]) -> Iterable[str]:
        assert self.report is not None
        self.asked_about.add(list(assignment_ids))
        for state in self.early:
            self.report(state)
        return self.alive


@pytest.fixture
def store() -> MemoryStore:
    """A graph whose owner has gone: a, b and c ran, a was to be canceled, d waits."""
    first = MemoryStore()
    with serving(store=first, cores=3) as service:
        service.enqueue_many([Slice(name) for name in "abcd"])
        service.cancel("a")
        service.settle(LIMIT_S)
    return first


def states(service: DispatchService) -> dict[str, tuple[str, int]]:
    return {view.id: (view.state.value, view.attempt) for view in service.list()}


def test_sessions_that_live_on_go_on(store: MemoryStore) -> None:
    host = Lasting(["b@1", "c@1", "other@1"])
    with serving(host, store, cores=2) as service:
        service.settle(LIMIT_S)
        assert list(host.asked_about) == [["a@1", "b@1", "c@1"]]
        assert states(service) == {"a": ("canceled", 1), "b": ("running", 1), "c": ("running", 1), "d": ("queued", 0)}
        assert list(host.asked) == []


def test_a_session_that_was_to_stop_and_lives_on_is_asked_again(store: MemoryStore) -> None:
    host = Lasting(["a@1", "b@1", "c@1"])
    with serving(host, store, cores=3) as service:
        service.settle(LIMIT_S)
        assert list(host.asked) == [("cancel", "a@1")]
        service.observe_session(SessionState("a@1", SessionPhase.CANCELED))
        service.settle(LIMIT_S)
        assert states(service)["a"] == ("canceled", 1)
        assert states(service)["d"] == ("running", 1)


def test_a_report_that_comes_before_the_graph_is_there_is_kept(store: MemoryStore) -> None:
    host = Lasting(["b@1", "c@1"], early=[SessionState("b@1", SessionPhase.MERGED)])
    with serving(host, store, cores=2) as service:
        service.settle(LIMIT_S)
        assert states(service) == {"a": ("canceled", 1), "b": ("merged", 1), "c": ("running", 1), "d": ("running", 1)}


def test_a_host_that_cannot_say_which_sessions_live_starts_nothing(store: MemoryStore) -> None:
    class Away(Lasting):
        async def adopt(self, assignment_ids: Iterable[str]) -> Iterable[str]:
            raise ConnectionError("away")

    host = Away([])
    with pytest.raises(ConnectionError, match="away"), serving(host, store):
        pass
    assert list(host.asked) == []
    with serving(Lasting([]), store) as service:  # nothing holds the claim
        assert len(service.list()) == 4


def test_what_was_launched_onto_a_host_that_is_closing_is_run_by_the_next_one() -> None:
    class Closing(Host):
        async def submit(self, assignment: Assignment) -> None:
            asked.set()
            raise HostClosedError("the host was closed")

    asked, store = threading.Event(), MemoryStore()
    with serving(Closing(), store) as service:
        service.enqueue(Slice("a"))
        assert asked.wait(LIMIT_S)
        assert service.get("a").state is SliceState.RUNNING
    host = Host()
    with serving(host, store) as service:
        host.asked.wait(1)
        assert (service.get("a").state, service.get("a").attempt) == (SliceState.RUNNING, 2)
