"""The outbox: in order for each session, side by side for different ones, and never left with somebody waiting."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest

from dispatch.commands import AskToStop, Effect, Launch, Observe, RequestFailed, Send
from dispatch.errors import NotRunningError
from dispatch.outbox import Call, Errand, Outbox
from dispatch.reply import BlockingReply
from harness import Assignment, HostClosedError, Recipe, SessionPhase
from tests.integration.service_rig import LIMIT_S, Gate, Host, Noted


class Rig:
    """An outbox whose owner notes what it is told."""

    def __init__(self, host: Any) -> None:
        self.told: Noted[Observe | RequestFailed] = Noted()
        self.outbox = Outbox(host, self.told.add, first_pause_s=0.001)

    def post(self, *effects: Effect) -> None:
        self.outbox.post([Errand(effect) for effect in effects])

    def settle(self) -> None:
        idle = threading.Event()
        self.outbox.when_idle(idle.set)
        assert idle.wait(LIMIT_S)


@contextlib.contextmanager
def running(host: Any) -> Iterator[Rig]:
    rig = Rig(host)
    rig.outbox.start()
    try:
        yield rig
    finally:
        rig.outbox.stop(LIMIT_S)
        assert not rig.outbox.thread.is_alive()


def launch(name: str) -> Launch:
    return Launch(Assignment(f"{name}@1", name, 1, Recipe(), name, name, "", f"dispatch/{name}/1", "g1"))


def test_requests_for_one_session_keep_their_order() -> None:
    host = Host()
    host.before = gate = Gate("a@1")
    with running(host) as rig:
        rig.post(launch("a"), Send("a@1", "one"))
        gate.waiting.wait(1)
        rig.post(Send("a@1", "two"), AskToStop("a@1"))
        gate.open()
        rig.settle()
    assert list(host.asked) == [("submit", "a@1"), ("send", "a@1", "one"), ("send", "a@1", "two"), ("cancel", "a@1")]


def test_lone_requests_in_a_row_are_performed_by_the_same_few_tasks() -> None:
    """More of them than there may ever be tasks."""
    host = Host()
    with running(host) as rig:
        for i in range(400):
            rig.post(launch(f"s{i}"))
            rig.settle()
    assert len(host.asked) == 400


def test_a_slow_request_holds_up_no_other_session() -> None:
    host = Host()
    host.before = gate = Gate("a@1", "b@1", "c@1")
    with running(host) as rig:
        rig.post(launch("a"), launch("b"))
        gate.waiting.wait(2)
        rig.post(*(launch(f"s{i}") for i in range(500)), launch("c"), launch("last"))
        assert len(host.asked.wait(501)) == 501
        assert list(gate.waiting) == ["a@1", "b@1", "c@1"]
        gate.open()
        rig.settle()
    assert len(host.asked) == 504


def test_a_submit_that_fails_is_told_as_a_failed_session() -> None:
    class NoRoom(Host):
        async def submit(self, assignment: Assignment) -> None:
            raise OSError(28, "No space left")

    with running(NoRoom()) as rig:
        rig.post(launch("a"))
        (told,) = rig.told.wait(1)
    assert isinstance(told, Observe)
    assert (told.report.assignment_id, told.report.phase) == ("a@1", SessionPhase.FAILED)
    assert told.report.error == "the session could not be opened: OSError: [Errno 28] No space left"


def test_a_session_that_a_closed_host_did_not_open_is_under_way_all_the_same() -> None:
    """It was decided before the host was closed: to call it failed would lose it for whoever runs the graph next."""

    class Closed(Host):
        async def submit(self, assignment: Assignment) -> None:
            raise HostClosedError("the host was closed")

    class PromptlyClosed(Closed):
        def submit_nowait(self, assignment: Assignment) -> None:
            raise HostClosedError("the host was closed")

    for host in (Closed(), PromptlyClosed()):
        with running(host) as rig:
            rig.post(launch("a"))
            rig.settle()
            assert list(rig.told) == []


class Stubborn(Host):
    """Refuses the first so many requests to stop, of each session."""

    def __init__(self, fails: int, error: BaseException | None = None) -> None:
        super().__init__()
        self.fails, self.error = fails, error or ConnectionError("away")

    async def cancel(self, assignment_id: str) -> None:
        await super().cancel(assignment_id)
        if self.sessions("cancel").count(assignment_id) <= self.fails:
            raise self.error


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_stop_that_did_not_get_through_is_asked_again(fails: int) -> None:
    host = Stubborn(fails)
    with running(host) as rig:
        rig.post(AskToStop("a@1"))
        rig.settle()
        assert len(host.asked) == fails + 1
        assert list(rig.told) == []


def test_a_stop_that_never_gets_through_is_told() -> None:
    host = Stubborn(99)
    with running(host) as rig:
        rig.post(AskToStop("a@1"))
        rig.settle()
        assert len(host.asked) == 4
        problem = "the session could not be asked to stop: ConnectionError: away"
        assert list(rig.told) == [RequestFailed("a@1", problem)]


def test_while_a_stop_is_tried_again_other_sessions_go_on() -> None:
    host = Stubborn(1)
    with running(host) as rig:
        rig.post(AskToStop("a@1"), AskToStop("b@1"))
        rig.settle()
    assert sorted(host.sessions("cancel")) == ["a@1", "a@1", "b@1", "b@1"]


def test_a_send_answers_with_the_turn_or_the_problem() -> None:
    class Deaf(Host):
        async def send(self, assignment_id: str, message: str) -> str:
            if message == "loud":
                raise LookupError("no such session")
            return await super().send(assignment_id, message)

    answers: Noted[tuple[str, str]] = Noted()

    def done(turn: str, problem: str) -> None:
        answers.add((turn, problem))

    with running(Deaf()) as rig:
        rig.outbox.post([Errand(Send("a@1", "loud"), done), Errand(Send("a@1", "soft"), done)])
        assert answers.wait(2) == [("", "LookupError: no such session"), ("turn-1", "")]
        assert list(rig.told) == []


class Odd(Host):
    """A host that fails in ways that are no `Exception`, or isn't async at all."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self.error = error

    async def submit(self, assignment: Assignment) -> None:
        if self.error is not None and assignment.slice_id == "odd":
            raise self.error
        if assignment.slice_id == "odd":
            waits = asyncio.get_running_loop().create_future()
            waits.cancel()
            await waits
        await super().submit(assignment)


class Unspeakable(Exception):  # noqa: N818 - it is the host's, and so is its name
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt(), Unspeakable(), None])
def test_whatever_a_host_raises_fails_that_one_request(error: BaseException | None) -> None:
    host = Odd(error)
    with running(host) as rig:
        rig.post(launch("odd"), AskToStop("odd@1"), launch("a"))
        (told,) = rig.told.wait(1)
        assert isinstance(told, Observe)
        assert told.report.assignment_id == "odd@1"
        rig.post(launch("b"))
        rig.settle()
    assert sorted(host.asked) == [("cancel", "odd@1"), ("submit", "a@1"), ("submit", "b@1")]


def test_a_method_that_is_not_async_fails_its_request() -> None:
    class Plain(Host):
        def submit(self, assignment: Assignment) -> None:  # type: ignore[override]
            return None

    with running(Plain()) as rig:
        rig.post(launch("a"))
        (told,) = rig.told.wait(1)
    assert isinstance(told, Observe)
    assert "TypeError" in told.report.error


def test_an_owner_that_has_ended_stops_no_other_request(caplog: pytest.LogCaptureFixture) -> None:
    """After another process took over, every session is asked to stop, even if asking one of them fails."""

    class Away(Host):
        async def cancel(self, assignment_id: str) -> None:
            if assignment_id == "a@1":
                raise ConnectionError("away")
            await super().cancel(assignment_id)

    def nobody(_: object) -> None:
        raise NotRunningError("it has ended")

    host = Away()
    outbox = Outbox(host, nobody, first_pause_s=0.001)
    outbox.start()
    with caplog.at_level(logging.WARNING):
        outbox.post([Errand(AskToStop(f"{name}@1")) for name in "abc"])
        outbox.stop(LIMIT_S)
    assert host.sessions("cancel") == ["b@1", "c@1"]
    assert "nobody is left to tell that a request to a@1 failed: ConnectionError: away" in caplog.text


def test_calls_answer_with_what_they_return_or_raise() -> None:
    async def returns() -> str:
        return "here"

    async def raises() -> str:
        raise LookupError("nothing here")

    with running(Host()) as rig:
        replies = [BlockingReply(), BlockingReply()]
        rig.outbox.post([Call(returns, replies[0]), Call(raises, replies[1])])
        assert replies[0].wait(LIMIT_S) == "here"
        with pytest.raises(LookupError, match="nothing here"):
            replies[1].wait(LIMIT_S)


def test_stopping_performs_what_is_queued() -> None:
    host = Host()
    with running(host) as rig:
        rig.post(*(launch(f"s{i}") for i in range(2000)))
    assert len(host.asked) == 2000


def test_stopping_leaves_nobody_waiting() -> None:
    """What hangs is cut off; it and all that is behind it is refused."""
    host = Host()
    host.before = gate = Gate("a@1")
    rig, answers = Rig(host), Noted[tuple[str, str]]()

    async def hangs() -> None:
        await asyncio.get_running_loop().create_future()

    under_way, behind = BlockingReply(), BlockingReply()
    rig.outbox.start()
    rig.outbox.post(
        [Errand(Send("a@1", message), lambda turn, problem: answers.add((turn, problem))) for message in ("x", "y")]
    )
    rig.outbox.post([Call(hangs, under_way)])
    gate.waiting.wait(1)
    rig.outbox.stop(0.05)
    rig.outbox.thread.join(LIMIT_S)
    assert not rig.outbox.thread.is_alive()
    assert answers.wait(2) == [("", "the service was stopped")] * 2
    with pytest.raises(NotRunningError):
        under_way.wait(LIMIT_S)
    with pytest.raises(NotRunningError):
        rig.outbox.post([Call(hangs, behind)])
    assert list(rig.told) == []
    rig.outbox.stop(LIMIT_S)


def test_one_whose_start_was_broken_off_is_stopped_once_it_has_begun() -> None:
    """An interrupt may come between the start of the thread and that of its loop."""
    stopping = threading.Event()

    class Slow(Outbox):
        async def _serve(self) -> None:
            await anyio.to_thread.run_sync(stopping.wait)
            await super()._serve()

    class BrokenOff(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout is None:
                raise KeyboardInterrupt
            stopping.set()
            return super().wait(timeout)

    outbox = Slow(Host(), lambda _: None)
    outbox._ready = BrokenOff()
    try:
        with pytest.raises(KeyboardInterrupt):
            outbox.start()
        outbox.stop(LIMIT_S)
        assert not outbox.thread.is_alive()
    finally:
        stopping.set()


def test_idle_is_told_at_once_or_when_it_comes() -> None:
    host = Host()
    host.before = gate = Gate("a@1")
    with running(host) as rig:
        idle: Noted[str] = Noted()
        rig.outbox.when_idle(lambda: idle.add("at once"))
        assert list(idle) == ["at once"]
        rig.post(launch("a"))
        gate.waiting.wait(1)
        rig.outbox.when_idle(lambda: idle.add("later"))
        assert list(idle) == ["at once"]
        gate.open()
        assert idle.wait(2) == ["at once", "later"]
        assert list(host.asked) == [("submit", "a@1")]


def test_a_long_queue_leaves_the_loop_to_others_now_and_then() -> None:
    """A host that works through tasks of its own in that loop gets its turn long before the queue is empty."""

    class WithTasks(Host):
        def __init__(self) -> None:
            super().__init__()
            self.first_turn_at = -1

        async def submit(self, assignment: Assignment) -> None:
            if not len(self.asked):
                self.task = asyncio.get_running_loop().create_task(self.turn())
            await super().submit(assignment)

        async def turn(self) -> None:
            self.first_turn_at = len(self.asked)

    host = WithTasks()
    with running(host) as rig:
        rig.post(*(launch(f"s{i}") for i in range(5000)))
        rig.settle()
    assert 0 <= host.first_turn_at <= 300


# --- a prompt host ------------------------------------------------------------------------------------------------


class Prompt(Host):
    """Told of launches in the thread that posts them; `fails` is what it raises then."""

    def __init__(self, fails: BaseException | None = None) -> None:
        super().__init__()
        self.fails, self.threads = fails, set[threading.Thread]()

    def submit_nowait(self, assignment: Assignment) -> None:
        self.threads.add(threading.current_thread())
        if self.fails is not None:
            raise self.fails
        self.asked.add(("submit", assignment.assignment_id))


def test_a_prompt_host_is_told_of_launches_where_they_are_posted_and_of_the_rest_in_the_loop() -> None:
    host = Prompt()
    with running(host) as rig:
        rig.post(launch("a"), AskToStop("z@1"), launch("b"), Send("a@1", "hello"))
        assert host.threads == {threading.current_thread()}
        assert host.sessions() == ["a@1", "b@1"]
        rig.settle()
        assert sorted(host.asked)[:2] == [("cancel", "z@1"), ("send", "a@1", "hello")]
        assert list(rig.told) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left"), asyncio.CancelledError("not you")], ids=repr)
def test_a_prompt_host_that_refuses_a_launch_fails_that_session_alone(error: BaseException) -> None:
    host = Prompt(error)
    with running(host) as rig:
        rig.post(launch("a"))
        (told,) = rig.told.wait(1)
        host.fails = None
        rig.post(launch("b"))
    assert isinstance(told, Observe)
    assert told.report.error.startswith(f"the session could not be opened: {type(error).__name__}: ")
    assert host.sessions() == ["b@1"]


def test_launches_of_a_prompt_host_need_no_loop() -> None:
    host = Prompt()
    with running(host) as rig:
        pass
    rig.post(launch("a"))
    assert host.sessions() == ["a@1"]
    with pytest.raises(NotRunningError):
        rig.post(launch("b"), AskToStop("a@1"))
