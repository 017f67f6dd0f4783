"""The life of a work item, command by command: what may follow what, what is counted, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from harness.fleet.commands import (
    Cancel,
    Checkpoint,
    Claim,
    Command,
    Defer,
    Deliver,
    Fail,
    Hand,
    Recover,
    Release,
    Renew,
    Requeue,
    Retry,
    Start,
    Stop,
    Submit,
    Succeed,
    Withdraw,
)
from harness.fleet.errors import (
    FleetError,
    HeldElsewhereError,
    InvalidTurnError,
    ItemExistsError,
    LeaseLostError,
    NotDueError,
    WrongStateError,
)
from harness.fleet.lifecycle import FIRST_PAUSE_S, LONGEST_PAUSE_S, is_abandoned, is_lapsed, pause_s, step
from harness.fleet.work_item import ENDED, HELD, TRANSITIONS, Lease, Submission, WorkItem, WorkItemState

State = WorkItemState
NOW, TTL_S = 1000.0, 60.0
BARE = WorkItem("a", "t", "s", "k", submitted_at=1.0, changed_at=1.0)


def in_state(state: State, **fields: object) -> WorkItem:
    """An item as it stands when nothing out of the ordinary has happened to it."""
    begun = state is State.RUNNING or state in ENDED
    held = {"owner": "w", "expires_at": NOW + TTL_S} if state in HELD else {}
    if state not in (State.SUBMITTED, State.READY):
        held |= {"epoch": 1, "token": 7}
    if begun:
        held |= {"attempt": 1, "started_at": 900.0}
    return BARE.but(state=state, **(held | fields))


def commands_on(item: WorkItem) -> list[Command]:
    """Every kind of command, each in the name of the lease that the item has or may once have had."""
    lease = Lease("a", "t", item.owner or "w", item.epoch, item.token, item.expires_at)
    return [
        Submit(Submission("a", "t", "s", "k")), Withdraw("a", "t"), Deliver("a", "t"), Hand("a", "t"),
        Release("a", "t"), Claim("a", "t", "v", TTL_S, token=8), Claim("a", "t", "v", TTL_S, starts=True, token=8),
        Start(lease), Renew(lease, TTL_S), Checkpoint(lease, "x"), Succeed(lease, "r"), Fail(lease, "c"),
        Retry(lease, "c"), Defer(lease, "c"), Stop(lease), Cancel("a", "t", "c"), Recover("a", "t"), Requeue("a", "t"),
    ]  # fmt: skip


VARIANTS: list[dict[str, object]] = [
    {}, {"expires_at": NOW - 1}, {"deadline": NOW - 1}, {"expires_at": NOW - 1, "deadline": NOW - 1},
    {"cancel_cause": "no"}, {"cancel_cause": "no", "expires_at": NOW - 1}, {"failures": 2}, {"failures": 1},
    {"failures": 2, "expires_at": NOW - 1}, {"not_before": NOW + 1}, {"delivered": True},
]  # fmt: skip


def every_step() -> list[tuple[WorkItem, Command]]:
    found = []
    for state, variant in itertools.product(State, VARIANTS):
        held_only = variant.keys() & {"expires_at", "cancel_cause"}
        if held_only and state not in HELD:
            continue
        item = in_state(state, **variant)
        found += [(item, command) for command in commands_on(item)]
    return found


def test_the_moves_that_happen_are_exactly_those_of_the_table() -> None:
    moves = set()
    for item, command in every_step():
        try:
            after = step(item, command, NOW).item
        except FleetError:
            continue
        if after is not None and after.state is not item.state:
            moves.add((item.state, after.state))
    composed = {(State.READY, State.RUNNING), (State.RUNNING, State.LEASED)}  # two moves of one command
    assert moves - composed == {(before, after) for before, afters in TRANSITIONS.items() for after in afters}
    assert composed <= moves


@pytest.mark.parametrize(
    ("fields", "epoch", "delivered"),
    [({}, 0, True), ({"epoch": 3}, 3, True), ({"epoch": 3}, 2, False), ({"epoch": 3}, None, True)],
)
def test_a_note_of_a_delivery_is_void_once_a_claim_has_used_it_up(
    fields: dict[str, object], epoch: int | None, delivered: bool
) -> None:
    after = step(in_state(State.READY, **fields), Deliver("a", "t", epoch), NOW).item
    assert after is not None
    assert after.delivered is delivered


def test_nothing_that_is_refused_says_anything_but_why() -> None:
    allowed = (ItemExistsError, WrongStateError, NotDueError, HeldElsewhereError, LeaseLostError)
    kinds = set()
    for item, command in every_step():
        try:
            refused = step(item, command, NOW).refused
        except FleetError as error:
            refused = error
        if refused is not None:
            assert isinstance(refused, allowed)
            kinds.add(type(refused))
    assert kinds == set(allowed)


def test_what_is_held_has_an_owner_and_an_end_and_what_is_not_has_neither() -> None:
    for item, command in every_step():
        try:
            after = step(item, command, NOW).item
        except FleetError:
            continue
        if after is not None:
            assert (after.owner != "", after.expires_at > 0) == (after.state in HELD,) * 2, (item, command)
            assert (after.epoch >= item.epoch, after.attempt >= item.attempt) == (True, True)
            assert after.attempt <= max(after.epoch, item.attempt)
            assert after.failures <= after.max_attempts


def test_every_attempt_that_ends_leaves_a_line_and_only_those_and_unheld_ends_do() -> None:
    for item, command in every_step():
        try:
            done = step(item, command, NOW)
        except FleetError:
            continue
        after = done.item
        was_let_go = item.state in HELD and (after is None or after.state not in HELD or after.epoch != item.epoch)
        ended_unheld = item.state not in HELD and after is not None and after.state in ENDED and item.state not in ENDED
        lapsed_too = was_let_go and after is not None and after.cause == "its deadline passed"
        assert len(done.outcomes) == was_let_go + ended_unheld + lapsed_too, (item, command)
        for outcome in done.outcomes:
            assert (outcome.item_id, outcome.epoch, outcome.token) == (item.id, item.epoch, item.token)
            assert outcome.ended_at == NOW


@pytest.mark.parametrize("state", [state for state in State if state in ENDED])
def test_an_end_is_final(state: State) -> None:
    item = in_state(state)
    for command in commands_on(item):
        if isinstance(command, Requeue) and state is State.DEAD_LETTER:
            continue
        try:
            done = step(item, command, NOW)
        except FleetError:
            continue
        assert done.item is not None
        assert (done.item.but(handed_at=0.0), done.outcomes) == (item, ())


# -- the fence ---------------------------------------------------------------------------------------------------------

HOLDING: dict[str, Callable[[Lease], Command]] = {
    "start": Start, "renew": lambda lease: Renew(lease, TTL_S), "checkpoint": lambda lease: Checkpoint(lease, "x"),
    "succeed": Succeed, "fail": lambda lease: Fail(lease, "c"), "retry": lambda lease: Retry(lease, "c"),
    "defer": lambda lease: Defer(lease, "c"), "stop": Stop,
}  # fmt: skip


@pytest.mark.parametrize("field", ["tenant", "owner", "epoch", "token"])
@pytest.mark.parametrize("name", HOLDING)
@pytest.mark.parametrize("state", [State.LEASED, State.RUNNING])
def test_each_part_of_a_lease_counts(state: State, name: str, field: str) -> None:
    item = in_state(state)
    other = {"tenant": "u", "owner": "v", "epoch": item.epoch + 1, "token": item.token + 1}[field]
    with pytest.raises(LeaseLostError):
        step(item, HOLDING[name](attrs.evolve(item.lease, **{field: other})), NOW)


@pytest.mark.parametrize("name", HOLDING)
@pytest.mark.parametrize("state", [state for state in State if state not in HELD])
def test_there_is_no_lease_on_what_nobody_holds(state: State, name: str) -> None:
    item = in_state(state)
    lease = Lease("a", "t", "w", item.epoch, item.token, 0.0)
    with pytest.raises(LeaseLostError):
        step(item, HOLDING[name](lease), NOW)


@pytest.mark.parametrize("name", ["succeed", "fail", "retry"])
def test_a_turn_that_has_not_begun_has_no_end(name: str) -> None:
    item = in_state(State.LEASED)
    with pytest.raises(WrongStateError):
        step(item, HOLDING[name](item.lease), NOW)


def test_a_lease_is_never_shortened() -> None:
    item = in_state(State.RUNNING, expires_at=NOW + 50)
    assert after(item, Renew(item.lease, 10.0)).expires_at == NOW + 50
    assert after(item, Renew(item.lease, 60.0)).expires_at == NOW + 60


def test_a_claim_raises_the_epoch_and_has_the_token_it_is_given() -> None:
    item = in_state(State.READY, epoch=4, token=9)
    claimed = after(item, Claim("a", "t", "v", TTL_S, token=12))
    assert (claimed.epoch, claimed.token, claimed.owner, claimed.expires_at) == (5, 12, "v", NOW + TTL_S)
    assert (claimed.state, claimed.attempt) == (State.LEASED, 0)


# -- counts ------------------------------------------------------------------------------------------------------------


def after(item: WorkItem, command: Command, now: float = NOW) -> WorkItem:
    done = step(item, command, now)
    assert done.item is not None
    assert done.refused is None
    return done.item


def test_starting_counts_an_attempt_once() -> None:
    item = in_state(State.LEASED, attempt=2, epoch=3)
    started = after(item, Start(item.lease))
    assert (started.attempt, started.started_at) == (3, NOW)
    assert step(started, Start(started.lease), NOW + 1).item is started


@pytest.mark.parametrize(
    ("state", "command", "failures"),
    [
        (State.RUNNING, lambda lease: Retry(lease, "c"), 1),
        (State.RUNNING, lambda lease: Defer(lease, "c"), 0),
        (State.LEASED, lambda lease: Defer(lease, "c"), 0),
        (State.RUNNING, lambda lease: Recover("a", "t"), 1),
        (State.LEASED, lambda lease: Recover("a", "t"), 0),
        (State.RUNNING, lambda lease: Claim("a", "t", "v", TTL_S, token=8), 1),
        (State.LEASED, lambda lease: Claim("a", "t", "v", TTL_S, token=8), 0),
    ],
)
def test_every_way_back_counts_failures_by_one_rule(
    state: State, command: Callable[[Lease], Command], failures: int
) -> None:
    item = in_state(state)
    later = item.expires_at + 1
    assert after(item, command(item.lease), later).failures == failures


@pytest.mark.parametrize("way", ["retry", "recover", "claim"])
def test_the_last_failure_is_a_dead_letter_whichever_way_it_comes(way: str) -> None:
    item = in_state(State.RUNNING, failures=2, max_attempts=3)
    command = {"retry": Retry(item.lease, "c"), "recover": Recover("a", "t"), "claim": Claim("a", "t", "v", TTL_S)}[way]
    done = step(item, command, item.expires_at + 1)
    assert done.item is not None
    assert (done.item.state, done.item.failures) == (State.DEAD_LETTER, 3)
    assert isinstance(done.refused, WrongStateError if way == "claim" else type(None))


def test_a_requeued_item_begins_anew_but_for_its_numbers() -> None:
    dead = in_state(State.DEAD_LETTER, failures=3, attempt=3, epoch=5, delivered=True, not_before=NOW, handed_at=NOW)
    anew = after(dead, Requeue("a", "t"))
    assert (anew.state, anew.failures, anew.not_before, anew.delivered, anew.handed_at) == (
        State.READY, 0, 0.0, False, 0.0,
    )  # fmt: skip
    assert (anew.attempt, anew.epoch) == (3, 5)


def test_who_loses_a_lease_loses_it_by_the_lease_and_not_by_when_it_began() -> None:
    item = in_state(State.RUNNING, started_at=1.0, expires_at=NOW)
    assert not is_abandoned(item, NOW)
    assert is_abandoned(item, NOW + 0.001)
    assert step(item, Recover("a", "t"), NOW).item is item


# -- pauses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failures", [0, 1, 5, 8, 9, 31, 10_000])
def test_a_pause_doubles_up_to_the_longest_and_jitter_adds_up_to_half(failures: int) -> None:
    least = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures, 30))
    assert (pause_s(failures, 0.0), pause_s(failures, 1.0)) == (least, 1.5 * least)
    assert least <= pause_s(failures, 0.3) <= 1.5 * least


def test_who_failed_waits_and_who_was_given_back_waits_as_long_as_was_asked() -> None:
    item = in_state(State.RUNNING, failures=1)
    assert after(item, Retry(item.lease, "c", 0.5)).not_before == NOW + pause_s(1, 0.5)
    assert after(item, Defer(item.lease, "c", 5.0)).not_before == NOW + 5.0
    assert after(item, Defer(item.lease, "c", -5.0)).not_before == NOW
    assert after(item, Recover("a", "t", 1.0), item.expires_at + 1).not_before == item.expires_at + 1 + pause_s(1, 1.0)


def test_what_is_not_due_is_not_claimed() -> None:
    item = in_state(State.READY, not_before=NOW + 2)
    refused = step(item, Claim("a", "t", "v", TTL_S, token=1), NOW).refused
    assert isinstance(refused, NotDueError)
    assert refused.wait_s == 2.0
    assert step(item, Claim("a", "t", "v", TTL_S, token=1), NOW + 2).refused is None


# -- cancellation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in HOLDING if name not in ("start", "renew", "checkpoint")])
def test_a_cancellation_that_was_asked_for_goes_before_every_other_end(name: str) -> None:
    item = in_state(State.RUNNING)
    asked = after(item, Cancel("a", "t", "not wanted"))
    assert (asked.state, asked.cancel_cause) == (State.RUNNING, "not wanted")
    ended = after(asked, HOLDING[name](asked.lease))
    assert (ended.state, ended.cause) == (State.CANCELLED, "not wanted")


def test_what_a_success_brought_is_kept_though_it_came_too_late() -> None:
    item = in_state(State.RUNNING, cancel_cause="no")
    assert after(item, Succeed(item.lease, "all of it")).result == "all of it"


def test_the_first_cause_stands() -> None:
    item = after(in_state(State.RUNNING), Cancel("a", "t", "first"))
    assert after(item, Cancel("a", "t", "second")).cancel_cause == "first"
    gone = after(in_state(State.READY), Cancel("a", "t", "first"))
    assert step(gone, Cancel("a", "t", "second"), NOW).item is gone


def test_a_cancellation_without_a_cause_is_one_all_the_same() -> None:
    assert after(in_state(State.RUNNING), Cancel("a", "t", "")).cancel_cause != ""


def test_a_holder_that_is_gone_is_not_asked() -> None:
    item = in_state(State.RUNNING)
    done = step(item, Cancel("a", "t", "no"), item.expires_at + 1)
    assert done.item is not None
    assert done.item.state is State.CANCELLED
    assert [outcome.expired for outcome in done.outcomes] == [True]


def test_a_deadline_is_for_taking_a_turn_up() -> None:
    for state in State:
        item = in_state(state, deadline=NOW - 1)
        assert is_lapsed(item, NOW) == (state in (State.SUBMITTED, State.READY))
    assert not is_lapsed(in_state(State.READY, deadline=NOW), NOW)


# -- submission and withdrawal -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [state for state in State if state not in (State.SUBMITTED, State.READY)])
def test_what_has_begun_to_live_is_not_withdrawn(state: State) -> None:
    item = in_state(state)
    assert step(item, Withdraw("a", "t"), NOW).item is item


@pytest.mark.parametrize(("fields", "gone"), [({}, True), ({"delivered": True}, False), ({"epoch": 1}, False)])
def test_what_nobody_has_seen_is_withdrawn(fields: dict[str, object], gone: bool) -> None:
    item = in_state(State.READY, **fields)
    assert (step(item, Withdraw("a", "t"), NOW).item is None) == gone


@pytest.mark.parametrize(
    "fields",
    [
        {"id": ""}, {"id": " "}, {"id": "a\0"}, {"id": "x" * 513}, {"tenant": "\n"}, {"session_id": "\ud800"},
        {"kind": 3}, {"priority": 4}, {"priority": -1}, {"priority": 2**70}, {"priority": True}, {"priority": 1.0},
        {"max_attempts": 0}, {"max_attempts": 1001}, {"deadline": float("nan")}, {"deadline": float("inf")},
        {"deadline": -1.0}, {"not_before": float("nan")}, {"depends_on": ("a",)}, {"depends_on": ("",)},
        {"depends_on": "se"}, {"depends_on": b"se"}, {"depends_on": 7}, {"depends_on": None}, {"depends_on": [7]},
        {"payload_ref": " "}, {"payload_ref": "sha256:"}, {"payload_ref": "sha256:0"},
        {"payload_ref": f"sha256:{'A' * 64}"}, {"payload_ref": f"sha256:{'0' * 65}"}, {"payload_ref": b"src"},
    ],
)  # fmt: skip
def test_a_submission_outside_of_its_grammar_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidTurnError) as refused:
        attrs.evolve(Submission("a", "t", "s", "k"), **fields)
    assert refused.value.field == next(iter(fields))


@pytest.mark.parametrize("reference", ["", f"sha256:{'0a' * 32}", "s3://bucket/key", "sha512:0", "src/"])
def test_a_reference_to_elsewhere_is_not_looked_into(reference: str) -> None:
    assert Submission("a", "t", "s", "k", reference).payload_ref == reference


@pytest.mark.parametrize("given", [["b", "c"], ("b", "c"), {"b": 1, "c": 2}, iter("bc")])
def test_what_is_waited_for_comes_in_any_collection(given: Any) -> None:
    assert Submission("a", "t", "s", "k", depends_on=given).depends_on == ("b", "c")


def test_a_copy_differs_in_what_is_asked_for_alone_and_in_nothing_unknown() -> None:
    item = in_state(State.RUNNING)
    assert item.but(attempt=9) == attrs.evolve(item, attempt=9)
    assert hash(item.but()) == hash(item)
    with pytest.raises(AssertionError):
        item.but(atempt=9)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        item.attempt = 3  # type: ignore[misc]
