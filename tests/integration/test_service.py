"""The owner and the service around it: what shares a commit and what waits for it, who is told what, in which order."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
import trio

from dispatch import (
    DispatchService,
    Intent,
    MemoryStore,
    NotRunningError,
    OwnershipLostError,
    RouteDecision,
    Slice,
    SliceState,
    StoreUnavailableError,
    TimedOutError,
    UnitWeights,
    UnknownSliceError,
)
from dispatch.aio import AwaitableCalls
from dispatch.commands import Cancel, Check, Enqueue, Explain, Get, Hold, ListSlices, Pause, Proof, Resume, TakeSnapshot
from dispatch.health import claim_clock
from dispatch.owner import Settle
from dispatch.store.ownership import CLAIM_S
from harness import Assignment, SessionPhase, SessionState
from tests.integration.service_rig import (
    LIMIT_S,
    Gate,
    Host,
    Noted,
    Owned,
    Places,
    TroubledStore,
    finished,
    in_thread,
    owned,
    serving,
)

BATCH = 1024


def enqueue(*names: str) -> Enqueue:
    return Enqueue(tuple(map(Slice, names)))


@pytest.fixture
def store() -> TroubledStore:
    return TroubledStore()


@pytest.fixture
def rig(store: TroubledStore) -> Iterator[Owned]:
    with owned(store) as rig:
        yield rig


# --- commits ------------------------------------------------------------------------------------------------------


def held_up(rig: Owned, store: TroubledStore) -> None:
    """Let the owner wait in a write, so that all that is sent piles up behind it."""
    store.gate.clear()
    tries = len(store.tries)
    rig.send(Hold("x", "first"))
    store.tries.wait(tries + 1)


def test_a_lone_command_costs_one_commit(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("x"))
    before = len(store.writes)
    for command in (Pause(), Resume(), enqueue("y"), Hold("y")):
        rig.ask(command)
    assert len(store.writes) == before + 4


def test_what_changes_nothing_costs_none(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("x"))
    before, changes = len(store.writes), rig.line.health.changes
    for item in (Resume(), Get("x"), ListSlices(), Explain("x"), TakeSnapshot(), Check(), Settle()):
        rig.ask(item)
    with pytest.raises(UnknownSliceError):
        rig.ask(Cancel("absent"))
    rig.report("absent@1")
    rig.ask(Settle())
    assert len(store.writes) == before
    assert rig.line.health.changes == changes, "who waits for a change waits on"


def test_a_burst_shares_one_commit(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("x"))
    before = len(store.writes)
    held_up(rig, store)
    replies = rig.send(*(enqueue(f"s{i}") for i in range(300)), *(Hold(f"s{i}") for i in range(300)))
    store.gate.set()
    for reply in replies:
        reply.wait(LIMIT_S)
    assert [len(ids) for ids in store.written_ids()[before:]] == [1, 300]


def test_a_batch_is_bounded(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("x"))
    before = len(store.writes)
    held_up(rig, store)
    replies = rig.send(*(enqueue(f"s{i}") for i in range(2 * BATCH + 5)))
    store.gate.set()
    for reply in replies:
        reply.wait(LIMIT_S)
    assert [len(ids) for ids in store.written_ids()[before:]] == [1, BATCH, BATCH, 5]


def test_nothing_is_acknowledged_shown_or_launched_before_it_is_written(rig: Owned, store: TroubledStore) -> None:
    store.gate.clear()
    order: Noted[str] = Noted()

    class Telling:
        def __init__(self, name: str) -> None:
            self.name = name

        def answer(self, value: Any) -> None:
            order.add(f"{self.name}, {len(store.writes)} written")

        def refuse(self, error: BaseException) -> None:
            order.add(f"{self.name} refused, {len(store.writes)} written")

    async def note(what: str, session: str) -> None:
        order.add(f"{what} {session}, {len(store.writes)} written")

    rig.host.before = note
    changes = rig.line.health.changes
    rig.line.tell(enqueue("a"), Telling("a"))
    store.tries.wait(3)  # claim, load, and the write that hangs now
    for name, item in (("b", enqueue("b")), ("read", Get("b")), ("bad", Cancel("absent"))):
        rig.line.tell(item, Telling(name))
    assert len(order) == 0
    assert rig.line.health.changes == changes
    store.gate.set()
    order.wait(5)
    acts = [entry for entry in order if not entry.startswith("submit")]
    assert acts == ["a, 1 written", "b, 2 written", "read, 2 written", "bad refused, 2 written"]
    (submit,) = [entry for entry in order if entry.startswith("submit")]
    assert submit in ("submit a@1, 1 written", "submit a@1, 2 written")
    assert rig.line.health.changes > changes


def test_replies_come_in_the_order_of_the_commands(rig: Owned) -> None:
    order: Noted[int] = Noted()

    class Numbered:
        def __init__(self, number: int) -> None:
            self.number = number

        def answer(self, value: Any) -> None:
            order.add(self.number)

        def refuse(self, error: BaseException) -> None:
            order.add(self.number)

    for number in range(500):
        item: Any = (enqueue(f"s{number}"), Get("absent"), Pause(), Hold("absent"), ListSlices())[number % 5]
        rig.line.tell(item, Numbered(number))
    assert order.wait(500) == list(range(500))


def test_a_change_is_told_to_those_who_wait_for_one(rig: Owned) -> None:
    seen = rig.line.health.changes
    waiting, outcome = in_thread(lambda: rig.line.health.wait(seen, LIMIT_S))
    rig.ask(enqueue("x"))
    finished(waiting)
    assert outcome[0] > seen
    assert rig.line.health.wait(outcome[0], 0.01) == outcome[0]


# --- defects ------------------------------------------------------------------------------------------------------


class Defect(Exception):  # noqa: N818 - what it stands for is no error that anybody foresees
    pass


class Broken(UnitWeights):
    """Fails when the first slice merges: in the middle of a command."""

    def measured(self, kind: str, seconds: float) -> bool:
        raise Defect("out of order")


def test_after_a_defect_nobody_waits(caplog: pytest.LogCaptureFixture) -> None:
    """The one whose call it was, those before and behind it in the batch, and every later one are told at once."""
    store = TroubledStore()
    with caplog.at_level(logging.CRITICAL, "pykka"), owned(store, weights=Broken()) as rig:
        rig.ask(enqueue("x"))
        rig.clock.now += 1
        written = len(store.writes)
        held_up(rig, store)
        from dispatch.commands import MarkMerged

        before, culprit, behind, settle = rig.send(enqueue("y"), MarkMerged("x"), enqueue("z"), Settle())
        started = time.monotonic()
        store.gate.set()
        for reply in (before, culprit, behind, settle):
            with pytest.raises(NotRunningError, match=r"crashed.*Defect.*out of order") as told:
                reply.wait(LIMIT_S)
            assert isinstance(told.value.__cause__, Defect)
        with pytest.raises(NotRunningError, match="out of order") as told:
            rig.ask(ListSlices())
        assert isinstance(told.value.__cause__, Defect)
        with pytest.raises(NotRunningError, match="out of order"):
            rig.report("x@1")
        assert time.monotonic() - started < LIMIT_S / 2
        assert len(store.writes) == written + 1, "nothing of the broken batch is written"


def test_each_caller_gets_an_error_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """One exception raised in several threads would gather their tracebacks."""
    with caplog.at_level(logging.CRITICAL, "pykka"), owned(weights=Broken()) as rig:
        rig.ask(enqueue("x"))
        rig.clock.now += 1
        rig.report("x@1")
        rig.owner.actor_stopped.wait(LIMIT_S)
        errors = []
        for _ in range(2):
            with pytest.raises(NotRunningError) as told:
                rig.ask(ListSlices())
            errors.append(told.value)
        assert errors[0] is not errors[1]


def test_an_outbox_that_has_died_ends_the_owner_and_says_of_what(caplog: pytest.LogCaptureFixture) -> None:
    class Stopper(Host):
        async def submit(self, assignment: Assignment) -> None:
            asyncio.get_running_loop().stop()

    with caplog.at_level(logging.CRITICAL), owned(host=Stopper()) as rig:
        rig.ask(enqueue("x"))
        assert rig.owner.actor_stopped.wait(LIMIT_S)
        with pytest.raises(NotRunningError, match="requests don't reach the host any more"):
            rig.ask(ListSlices())


def test_a_graph_is_owned_while_its_claim_is_renewed(rig: Owned, store: TroubledStore) -> None:
    health = rig.line.health
    health.owned_until = 0.0
    assert not health.owned()
    rig.tick(3)
    assert health.owned()
    assert health.owned_until <= claim_clock() + CLAIM_S
    store.trouble = StoreUnavailableError("away")
    health.owned_until = 0.0
    rig.tick(3)
    assert not health.owned(), "a claim that could not be renewed runs out"
    store.trouble = OwnershipLostError("another's")
    health.owned_until = float("inf")
    rig.tick(3)
    assert not health.owned(), "an owner that has ended owns nothing"


def test_a_host_that_asks_is_told_whether_the_graph_is_owned() -> None:
    class Fenced(Host):
        def fence(self, owned: Callable[[], bool]) -> None:
            self.owned = owned

    host = Fenced()
    with DispatchService(host, store=MemoryStore(), measures=Places()):
        assert host.owned()
    assert not host.owned()


def test_who_waits_for_a_change_learns_of_the_end() -> None:
    with serving() as service:
        waiting, outcome = in_thread(lambda: service.wait_for_change(10_000, LIMIT_S))
        service.pause()
        service.stop()
        finished(waiting)
        assert not isinstance(outcome[0], BaseException)


def test_an_actor_system_that_is_shut_down_ends_the_service_and_says_so() -> None:
    """The program around may use Pykka too, and stop all its actors."""
    import pykka

    with serving() as service:
        pykka.ActorRegistry.stop_all()
        with pytest.raises(NotRunningError, match="stopped"):
            service.list()


# --- settle, and the host's failures ------------------------------------------------------------------------------


class Failing(Host):
    """Cannot open the sessions of some slices."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    async def submit(self, assignment: Assignment) -> None:
        await super().submit(assignment)
        if assignment.slice_id in self.names:
            raise RuntimeError(f"no room for {assignment.slice_id}")


def test_settle_returns_when_what_failed_and_what_that_released_is_settled() -> None:
    host = Failing("a", "b", "c")
    with serving(host) as service:
        service.enqueue_many([Slice(name) for name in "abcd"])
        service.settle(LIMIT_S)
        assert [(view.id, view.state.value) for view in service.list()] == [
            ("a", "failed"),
            ("b", "failed"),
            ("c", "failed"),
            ("d", "running"),
        ]
        assert host.sessions() == ["a@1", "b@1", "c@1", "d@1"]
        assert service.get("a").error == "the session could not be opened: RuntimeError: no room for a"


def test_settle_keeps_to_its_timeout_however_many_steps_it_takes() -> None:
    class Endless(Host):
        """Closes each session as soon as it is opened; slices never run out of attempts."""

        service: DispatchService

        async def submit(self, assignment: Assignment) -> None:
            self.service.observe_session(SessionState(assignment.assignment_id, SessionPhase.CLOSED, error="again"))

    from harness import Recipe

    host = Endless()
    with serving(host) as service:
        host.service = service
        service.enqueue(Slice("a", recipe=Recipe(max_attempts=10**9)))
        started = time.monotonic()
        with pytest.raises(TimedOutError):
            service.settle(0.2)
        assert time.monotonic() - started < LIMIT_S / 2


def test_a_request_that_hangs_holds_up_settle_and_nothing_else() -> None:
    host = Host()
    host.before = gate = Gate("a@1")
    with serving(host, cores=2) as service:
        service.enqueue_many([Slice("a"), Slice("b")])
        gate.waiting.wait(1)
        host.asked.wait(1)
        with pytest.raises(TimedOutError):
            service.settle(0.05)
        service.cancel("b")
        assert host.asked.wait(2) == [("submit", "b@1"), ("cancel", "b@1")]
        gate.open()
        service.settle(LIMIT_S)


def test_a_session_that_cannot_be_asked_to_stop_is_told_in_its_slice() -> None:
    class Deaf(Host):
        async def cancel(self, assignment_id: str) -> None:
            await super().cancel(assignment_id)
            raise ConnectionError("away")

    with owned(host=Deaf()) as rig:
        rig.ask(enqueue("a"))
        rig.ask(Cancel("a"))
        rig.host.asked.wait(5)
        rig.ask(Settle())
        rig.ask(Settle())
        assert rig.ask(Get("a")).error == "the session could not be asked to stop: ConnectionError: away"
        rig.ask(Cancel("a"))
        rig.host.asked.wait(9)


# --- routes -------------------------------------------------------------------------------------------------------


def steer(message: str = "faster") -> tuple[Intent, str]:
    return Intent("i", "s", "x"), message


def test_a_steered_route_brings_the_turn_that_takes_it() -> None:
    with serving() as service:
        service.enqueue(Slice("x"))
        first, second = service.route(*steer("one")), service.route(*steer("two"))
        assert first.decision is RouteDecision.STEER
        assert [(r.assignment_id, r.turn_id, r.findings) for r in (first, second)] == [
            ("x@1", "turn-1", ()),
            ("x@1", "turn-2", ()),
        ]


def test_a_message_that_could_not_be_delivered_is_a_finding() -> None:
    class Deaf(Host):
        async def send(self, assignment_id: str, message: str) -> str:
            raise LookupError("no such session")

    with serving(Deaf()) as service:
        service.enqueue(Slice("x"))
        routed = service.route(*steer())
        assert (routed.decision, routed.turn_id) == (RouteDecision.STEER, "")
        assert routed.findings == ("the message could not be delivered: LookupError: no such session",)
        assert service.get("x").state is SliceState.RUNNING


def test_routes_in_one_batch_get_their_own_turns() -> None:
    store = TroubledStore()
    with owned(store, cores=3) as rig:
        from dispatch.commands import Route

        rig.ask(enqueue("x", "y", "z"))
        held_up(rig, store)
        replies = rig.send(*(Route(Intent(name, "s", name), name) for name in "xyzzyx"))
        store.gate.set()
        answers = [reply.wait(LIMIT_S) for reply in replies]
        assert [answer.assignment_id for answer in answers] == [f"{name}@1" for name in "xyzzyx"]
        sent = [(session, message) for what, session, *rest in rig.host.asked if what == "send" for message in rest]
        turns = {f"turn-{i}": session for i, (session, _) in enumerate(sent, 1)}
        assert [turns[answer.turn_id] for answer in answers] == [f"{name}@1" for name in "xyzzyx"]


class Checking:
    """Checks that do what a test says."""

    def __init__(self, prove: Callable[[Intent], Awaitable[Any]]) -> None:
        self.prove = prove


async def proven(intent: Intent) -> Proof:
    return Proof(f"the glossary defines {intent.id}")


async def unprovable(intent: Intent) -> Proof:
    raise OSError("no git here")


async def late(intent: Intent) -> Proof:
    raise TimeoutError("the gate took too long")


async def endless(intent: Intent) -> Proof:
    await anyio.sleep_forever()
    raise AssertionError


def test_a_proof_makes_it_already_done() -> None:
    with serving(checks=Checking(proven)) as service:
        routed = service.route(Intent("i", "s"))
        assert (routed.decision, routed.reference) == (RouteDecision.ALREADY_DONE, "the glossary defines i")


@pytest.mark.parametrize("prove", [unprovable, late])
def test_a_check_that_cannot_be_made_is_a_finding(prove: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL), serving(checks=Checking(prove)) as service:
        routed = service.route(Intent("i", "s"), new_slice=Slice("new"))
        assert (routed.decision, routed.slice_id) == (RouteDecision.NEW, "new")
        assert len(routed.findings) == 1
        assert routed.findings[0].startswith("whether it is done already can't be checked: ")


def test_checks_that_take_too_long_end_the_call_at_its_timeout() -> None:
    gate = Gate("blocking")

    async def prove(intent: Intent) -> Proof:
        await gate("prove", intent.id)
        return await proven(intent) if intent.id == "blocking" else await endless(intent)

    with serving(checks=Checking(prove)) as service:
        with pytest.raises(TimedOutError):
            anyio.run(lambda: service.aio.route(Intent("awaiting", "s"), timeout=0.05))
        with pytest.raises(TimedOutError):
            service.route(Intent("blocking", "s"), timeout=0.05)
        service.enqueue(Slice("x"))
        gate.open()


def test_a_call_that_waits_for_checks_ends_with_the_service() -> None:
    begun = threading.Event()

    async def begin(intent: Intent) -> Proof:
        begun.set()
        return await endless(intent)

    service = DispatchService(Host(), measures=Places(), checks=Checking(begin)).start()
    waiting, outcome = in_thread(lambda: service.route(Intent("i", "s"), timeout=None))
    assert begun.wait(LIMIT_S)
    stopping, _ = in_thread(service.stop)
    finished(stopping)
    finished(waiting)
    assert isinstance(outcome[0], NotRunningError)


# --- awaitable twins ----------------------------------------------------------------------------------------------

NO_TWIN = {"start", "stop"}  # they begin and end threads, and block


def calls_of(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_every_call_has_an_awaitable_twin_with_the_same_parameters() -> None:
    blocking, awaitable = calls_of(DispatchService), calls_of(AwaitableCalls)
    assert blocking.keys() - awaitable.keys() == NO_TWIN
    assert awaitable.keys() <= blocking.keys()
    for name, signature in awaitable.items():
        assert signature.parameters == blocking[name].parameters, name
        assert signature.return_annotation == blocking[name].return_annotation, name
        assert inspect.iscoroutinefunction(getattr(AwaitableCalls, name))


class InThreads:
    """A service's blocking calls, each made in a thread."""

    def __init__(self, service: DispatchService) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            return await anyio.to_thread.run_sync(lambda: getattr(self._service, name)(*arguments))

        return call


async def use_everything(aio: Any) -> None:
    """Each call once, and what comes of it."""
    seen = await aio.wait_for_change(-1)
    await aio.enqueue(Slice("a"))
    assert await aio.wait_for_change(seen) > seen
    await aio.enqueue_many([Slice("b"), Slice("c", depends_on=("b",)), Slice("d")])
    await aio.settle()
    assert (await aio.get("a")).state is SliceState.RUNNING
    await aio.revise(Slice("b", "mended"))
    assert (await aio.get("b")).title == "mended"
    await aio.hold("b", "wait")
    assert [view.id for view in await aio.frontier()] == ["b", "d"]
    await aio.release("b")
    await aio.cancel("d")
    await aio.pause("lunch")
    assert (await aio.snapshot()).paused == "lunch"
    assert (await aio.explain("b")).reasons
    await aio.resume()
    assert [view.id for view in await aio.declare_intent(Intent("i", "s", "b"))] == ["b"]
    assert [view.id for view in await aio.reprioritize(Intent("i", "s", "c"))] == ["c"]
    assert (await aio.route(Intent("j", "s", "a"), "faster")).turn_id == "turn-1"
    assert (await aio.route(Intent("k", "s"), "", Slice("new"))).decision is RouteDecision.NEW
    await aio.observe_session(SessionState("a@1", SessionPhase.FAILED, error="broke"))
    await aio.settle()
    await aio.retry("a")
    await aio.remeasure()
    merge = await aio.mark_merged("b", "url")
    assert [view.id for view in merge.released] == ["c"]
    states = {view.id: view.state.value for view in await aio.list()}
    assert states == {"a": "running", "b": "merged", "c": "queued", "d": "canceled", "new": "queued"}
    await aio.check()
    with pytest.raises(UnknownSliceError):
        await aio.get("absent")
    with pytest.raises(TypeError):
        await aio.observe_session("a@1")


@pytest.mark.parametrize("run", [asyncio.run, lambda coroutine: trio.run(lambda: coroutine)], ids=["asyncio", "trio"])
def test_the_twins_work_under(run: Callable[[Any], Any]) -> None:
    with serving() as service:
        run(use_everything(service.aio))


def test_the_blocking_calls_do_the_same() -> None:
    with serving() as service:
        anyio.run(use_everything, InThreads(service))


async def under_trouble(service: DispatchService, store: TroubledStore) -> None:
    """A call that is cancelled while it waits, and one that waits too long."""
    store.gate.clear()
    with anyio.move_on_after(0.02) as scope:
        await service.aio.enqueue(Slice("a"))
    assert scope.cancelled_caught
    with pytest.raises(TimedOutError, match=r"no answer within 0.02 s"):
        await service.aio.enqueue(Slice("b"), timeout=0.02)
    with pytest.raises(TimedOutError):
        await service.aio.settle(0.02)
    assert await service.aio.wait_for_change(10**6, 0.02) < 10**6
    store.gate.set()
    await service.aio.enqueue(Slice("c"))
    assert [view.id for view in await service.aio.list()] == ["a", "b", "c"]
    async with anyio.create_task_group() as group:  # one waits in a task while others go on
        for i in range(20):
            group.start_soon(service.aio.enqueue, Slice(f"s{i}"))
    assert len(await service.aio.list()) == 23


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_twins_that_are_cancelled_or_late_under(backend: str) -> None:
    store = TroubledStore()
    with serving(store=store) as service:
        anyio.run(under_trouble, service, store, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_event_loop_that_has_ended_is_missed_by_nobody(backend: str) -> None:
    """The answer to a call of a loop that is gone by then goes nowhere."""
    store = TroubledStore()
    with serving(store=store) as service:
        store.gate.clear()

        async def give_up() -> None:
            with anyio.move_on_after(0.02):
                await service.aio.enqueue(Slice("a"))

        anyio.run(give_up, backend=backend)
        store.gate.set()
        service.settle(LIMIT_S)
        assert [view.id for view in service.list()] == ["a"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_twins_end_with_the_service(backend: str) -> None:
    async def stop_meanwhile(service: DispatchService) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, service.stop)
            seen = 0
            with pytest.raises(NotRunningError):
                while True:
                    seen = await service.aio.wait_for_change(seen)
                    await service.aio.list()

    with serving() as service:
        anyio.run(stop_meanwhile, service, backend=backend)


# --- what it is asked with ----------------------------------------------------------------------------------------

JUNK_REPORTS: list[tuple[Any, type[Exception], str]] = [
    ("a@1", TypeError, "a report must be a SessionState, not str"),
    (None, TypeError, "a report must be a SessionState, not NoneType"),
    (SessionState("a@1", "merged"), TypeError, "phase must be a SessionPhase, not 'merged'"),  # type: ignore[arg-type]
    (SessionState("a@1", SessionPhase.RUNNING, "3"), TypeError, "turns must be"),  # type: ignore[arg-type]
    (SessionState("a@1", SessionPhase.RUNNING, -1), ValueError, "turns must be"),
    (SessionState("a@1", SessionPhase.RUNNING, 2**40), ValueError, "turns must be"),
    (SessionState("a@1", SessionPhase.CLOSED, error=None), TypeError, "error must be text"),  # type: ignore[arg-type]
    (SessionState("a@1", SessionPhase.CLOSED, detail=b"x"), TypeError, "detail must be text"),  # type: ignore[arg-type]
    (SessionState(7, SessionPhase.CLOSED), TypeError, "assignment_id must be text"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("report", "refusal", "problem"), JUNK_REPORTS)
def test_what_is_no_report_is_refused_in_its_hosts_thread(report: Any, refusal: type[Exception], problem: str) -> None:
    with serving() as service:
        service.enqueue(Slice("a"))
        with pytest.raises(refusal, match=problem):
            service.observe_session(report)
        assert service.get("a").state is SliceState.RUNNING


@pytest.mark.parametrize("call", ["hold", "release", "mark_merged"])
def test_reasons_must_be_text(call: str) -> None:
    with serving() as service:
        service.enqueue(Slice("a"))
        with pytest.raises(TypeError, match="must be text, not int"):
            getattr(service, call)("a", 7)
        service.check()


def test_calls_may_come_from_many_threads_at_once() -> None:
    with serving(store=MemoryStore(), cores=3) as service:
        threads = [
            in_thread(lambda i=i: [service.enqueue(Slice(f"t{i}-{n}")) for n in range(25)])[0]  # type: ignore[misc]
            for i in range(8)
        ]
        for thread in threads:
            finished(thread)
        assert len(service.list()) == 200
        service.check()
