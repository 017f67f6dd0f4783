"""What an executor may do, and what its end means."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.commands import Cancel, Claim, Defer, Fail, Holding, Recover, Retry, Stop, Submit, Succeed
from harness.fleet.errors import (
    CancelRequestedError,
    DrainRequestedError,
    FleetUnavailableError,
    InvalidSettingError,
    LeaseLostError,
)
from harness.fleet.executors import NotNowError, TryAgainError, TurnFailedError, load_executors, run
from harness.fleet.lease import WorkItemLeaseGuard
from harness.fleet.work_item import Submission, WorkItem, WorkItemState


class Desk:
    """One item, claimed by us."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.items = MemoryWorkItems(lambda: self.now)
        self.items.perform([Submit(Submission("a", "t", "s", "k", max_attempts=5))])
        self.guard = self.claimed("us")

    def claimed(self, owner: str) -> WorkItemLeaseGuard:
        (item,) = self.items.perform([Claim("a", "t", owner, 10.0, starts=True)])
        assert isinstance(item, WorkItem), item
        return WorkItemLeaseGuard(self.items, self.items, item, 10.0)

    @property
    def item(self) -> WorkItem:
        return self.items.find(["a"])["a"]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_an_effect_renews_the_lease_before_it_happens(desk: Desk) -> None:
    desk.now += 9.0
    assert desk.guard.side_effect(lambda more: desk.item.expires_at + more, 1.0) == 1020.0
    assert desk.guard.lease.epoch == 1


def test_nothing_happens_in_the_name_of_a_lost_lease(desk: Desk) -> None:
    desk.now += 11.0
    other = desk.claimed("them")
    done: list[str] = []
    with pytest.raises(LeaseLostError):
        desk.guard.side_effect(done.append, "ours")
    with pytest.raises(LeaseLostError):
        desk.guard.safepoint()
    with pytest.raises(LeaseLostError):
        desk.guard.leave("half")
    other.side_effect(done.append, "theirs")
    assert done == ["theirs"]
    assert desk.guard.is_lost
    assert desk.guard.wait(60.0)


def test_a_lease_that_ran_out_is_good_as_long_as_nobody_claimed_the_item(desk: Desk) -> None:
    desk.now += 500.0
    assert desk.guard.side_effect(lambda: "done") == "done"


def test_a_cancellation_is_seen_before_the_next_effect(desk: Desk) -> None:
    desk.items.perform([Cancel("a", "t", "not wanted")])
    desk.guard.safepoint()  # nobody has asked yet
    with pytest.raises(CancelRequestedError, match="not wanted"):
        desk.guard.side_effect(pytest.fail, "it happened")
    with pytest.raises(CancelRequestedError):
        desk.guard.safepoint()
    desk.guard.ask_to_stop(DrainRequestedError("a", "ending"))
    with pytest.raises(CancelRequestedError):  # a cancellation stands
        desk.guard.safepoint()


def test_a_checkpoint_is_there_for_the_next_attempt(desk: Desk) -> None:
    desk.guard.leave("half done")
    desk.now += 11.0
    assert desk.claimed("them").checkpoint == "half done"


def test_messages_are_heard_once(desk: Desk) -> None:
    assert desk.guard.messages() == ()
    assert [desk.items.say("a", text) for text in ("one", "two")] == [1, 2]
    assert desk.guard.messages() == ("one", "two")
    desk.items.say("a", "three")
    assert desk.guard.messages() == ("three",)


def raising(error: BaseException) -> Callable[[bytes, WorkItemLeaseGuard], str]:
    def executor(_: bytes, __: WorkItemLeaseGuard) -> str:
        raise error

    return executor


@pytest.mark.parametrize(
    ("error", "ending", "state"),
    [
        (TurnFailedError("hopeless"), Fail, WorkItemState.FAILED),
        (TryAgainError("unlucky"), Retry, WorkItemState.READY),
        (NotNowError("busy", 5.0), Defer, WorkItemState.READY),
        (CancelRequestedError("a", "not wanted"), Stop, WorkItemState.CANCELLED),
        (DrainRequestedError("a", "ending"), Defer, WorkItemState.READY),
        (FleetUnavailableError("postgresql://server is out of reach"), Retry, WorkItemState.READY),
        (ValueError("/home/somebody/secret"), Retry, WorkItemState.READY),
        (SystemExit(3), Retry, WorkItemState.READY),
        (KeyboardInterrupt(), Retry, WorkItemState.READY),
        (BaseException("/home/somebody"), Retry, WorkItemState.READY),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_an_executor_raises_ends_the_attempt(
    desk: Desk, error: BaseException, ending: type[Holding], state: WorkItemState
) -> None:
    command = run(raising(error), b"", desk.guard)
    assert isinstance(command, ending)
    (item,) = desk.items.perform([command])
    assert isinstance(item, WorkItem)
    assert item.state is state
    assert "somebody" not in item.cause and "server" not in item.cause


@pytest.mark.parametrize("error", [TryAgainError(), TurnFailedError(" "), NotNowError("", 5.0)])
def test_an_end_without_a_cause_says_what_was_raised(desk: Desk, error: Exception) -> None:
    command = run(raising(error), b"", desk.guard)
    assert isinstance(command, Retry | Fail | Defer)
    assert command.cause == f"its executor raised {type(error).__name__}, and gave no cause"


def test_what_an_executor_returns_is_the_result(desk: Desk) -> None:
    command = run(lambda payload, _: payload.decode(), b"fine", desk.guard)
    assert command == Succeed(desk.guard.lease, "fine")
    assert run(lambda *_: None, b"", desk.guard) == Succeed(desk.guard.lease, "")


@pytest.mark.parametrize("value", [7, {"a": 1}, b"bytes", ["list"], object()], ids=lambda value: type(value).__name__)
def test_what_is_no_text_fails_the_turn_and_says_so(desk: Desk, value: Any) -> None:
    command = run(lambda *_: value, b"", desk.guard)
    assert command == Fail(
        desk.guard.lease, f"its executor returned {type(value).__name__}; it may return text, or nothing"
    )


@pytest.mark.parametrize(
    ("asked_s", "given_s"),
    [(5.0, 5.0), (3600, 3600), (0, 1.0), (-5.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), ("x", 1.0)],
)
def test_a_turn_is_given_back_for_a_moment_at_least(desk: Desk, asked_s: Any, given_s: float) -> None:
    assert run(raising(NotNowError("busy", asked_s)), b"", desk.guard) == Defer(desk.guard.lease, "busy", given_s)


def test_nothing_is_said_in_the_name_of_a_lost_lease(desk: Desk) -> None:
    assert run(raising(LeaseLostError("a", 1)), b"", desk.guard) is None


def shout(payload: bytes, _: WorkItemLeaseGuard) -> str:
    return payload.decode().upper()


def test_executors_are_found_by_their_place() -> None:
    assert load_executors({"k": f"{__name__}:shout"})["k"](b"x", Desk().guard) == "X"


@pytest.mark.parametrize("place", ["no.such.module:f", f"{__name__}:nothing", "", ":", "os:sep", "os"])
def test_an_executor_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(InvalidSettingError, match="executor of 'k'"):
        load_executors({"k": place})


def test_a_look_tells_what_the_next_renewal_would(desk: Desk) -> None:
    desk.guard.look()
    desk.guard.safepoint()
    desk.items.perform([Cancel("a", "t", "enough")])
    desk.guard.safepoint()  # not heard of yet
    desk.guard.look()
    with pytest.raises(CancelRequestedError):
        desk.guard.safepoint()


@pytest.mark.parametrize("ended", [False, True])
def test_a_look_at_an_item_that_is_anothers_says_so(desk: Desk, ended: bool) -> None:
    desk.now += 11.0
    other = desk.claimed("them")
    if ended:
        desk.items.perform([Succeed(other.lease, "")])
    desk.guard.look()
    assert desk.guard.is_lost


def test_what_makes_work_safe_may_be_done_when_the_turn_is_to_stop_but_not_without_the_lease(desk: Desk) -> None:
    desk.items.perform([Cancel("a", "t", "enough")])
    done: list[str] = []
    with pytest.raises(CancelRequestedError):
        desk.guard.side_effect(done.append, "an effect")
    desk.guard.last_effect(done.append, "what there is")
    assert done == ["what there is"]
    desk.now += 11.0
    desk.items.perform([Recover("a", "t")])
    with pytest.raises(LeaseLostError):
        desk.guard.last_effect(done.append, "too late")
    assert done == ["what there is"]
