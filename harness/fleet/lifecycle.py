"""Every rule of a WorkItem's life.

Theory of operation. A WorkItem changes only by a *command*, and only here: `step` takes the item as it stands, a
command and the database's time, and gives the item as it is to stand, with what there is to be noted. Nothing else in
the fleet decides anything about a life; an adapter reads rows, lets `step` work on them and writes them back, in one
transaction. What is refused raises, and has changed nothing; save that a claim, of all commands, first puts in order
what it finds (an attempt whose lease ran out, a deadline that passed), and is refused with that put in order.

Three numbers guard a life. `epoch` rises with every claim, so that no two holders of an item are ever mistaken for one
another. `token`, the fencing token, rises with every claim of any item: whatever a holder writes to elsewhere can
refuse it once it has seen a higher one. `owner` is the random name of a process's incarnation. A command in the name of
a lease is refused unless tenant, owner, epoch and token are the item's: that it has run out is no reason as long as
nobody else has claimed the item.

`attempt` counts the attempts that were begun, and only rises. `failures` counts those that ended badly: by a report, or
by a lease that ran out while the turn ran. What gives an item back unharmed (`Defer`, a lease that ran out before the
turn began) is no failure. With `failures` at `max_attempts` the item is a dead letter, which only an operator's
`Requeue` brings back.

A cancellation ends at once what nobody holds. Of an item that is held it is a request, `cancel_cause`: the holder
learns of it when it renews, stops at its next safepoint and says so with what is left (`Stop`). However the attempt
ends after that, the item is cancelled; and so it is if its lease runs out.
"""

from __future__ import annotations

from typing import assert_never

import attrs

from harness.fleet.commands import (
    Cancel,
    Checkpoint,
    Claim,
    Command,
    Defer,
    Deliver,
    Fail,
    Hand,
    Holding,
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
from harness.fleet.errors import HeldElsewhereError, ItemExistsError, LeaseLostError, NotDueError, WrongStateError
from harness.fleet.work_item import DECLARED, ENDED, HELD, TRANSITIONS, Outcome, State, WorkItem, WorkItemState
from harness.text import storable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0  #: between attempts: doubled by each failure, up to the longest


@attrs.frozen
class Step:
    """What became of a command: the item as it stands now (None: it is no more) and what is to be noted."""

    item: WorkItem | None
    outcomes: tuple[Outcome, ...] = ()
    refused: Exception | None = None  #: of a claim that put something in order and could not be granted


def step(item: WorkItem | None, command: Command, now: float) -> Step:
    """`item` is None where there is none of that id, which only `Submit` has a use for.

    Raises the fleet's errors for what is refused; then nothing changes.
    """
    if isinstance(command, Submit):
        return Step(_submitted(item, command, now))
    assert item is not None, "who calls has looked it up"
    match command:
        case Withdraw():
            unborn = item.state in (State.READY, State.SUBMITTED) and item.epoch == 0 and not item.delivered
            return Step(None if unborn else item)
        case Deliver():
            meant = item.state is State.READY and command.epoch in (None, item.epoch)
            return Step(item.but(delivered=True) if meant else item)
        case Hand():
            return Step(item.but(handed_at=now))
        case Release():
            released = item.state is State.SUBMITTED
            return Step(_moved(item, State.READY, now).but(handed_at=0.0) if released else item)
        case Claim():
            return _claimed(item, command, now)
        case Cancel():
            return _cancelled(item, command.cause, now)
        case Recover():
            return _in_order(item, now, command.jitter)
        case Requeue():
            return Step(_requeued(item, now))
        case _:
            return _in_the_name_of(item, command, now)


# -- before anybody holds it -------------------------------------------------------------------------------------------


def _submitted(item: WorkItem | None, command: Submit, now: float) -> WorkItem:
    asked = {name: getattr(command.submission, name) for name in DECLARED}
    if item is None:
        state = State.SUBMITTED if command.unmet else State.READY
        handed_at = now if state is State.READY and command.submission.not_before <= now else 0.0
        return WorkItem(**asked, state=state, submitted_at=now, changed_at=now, handed_at=handed_at)
    other = next((name for name in DECLARED if name != "not_before" and getattr(item, name) != asked[name]), None)
    if other is not None:
        raise ItemExistsError(item.id, other)
    return item


def _claimed(item: WorkItem, command: Claim, now: float) -> Step:
    """A dead holder's attempt is put in order first, and what is then ready is claimed without a pause."""
    left = _in_order(item, now, None)
    item = left.item or item
    refused = _refusal(item, command, now)
    if refused is not None:
        return attrs.evolve(left, refused=refused)
    leased = _moved(item, State.LEASED, now).but(
        owner=command.owner, epoch=item.epoch + 1, token=command.token, expires_at=now + command.ttl_s, started_at=0.0,
    )  # fmt: skip
    return attrs.evolve(left, item=_started(leased, now) if command.starts else leased)


def _refusal(item: WorkItem, command: Claim, now: float) -> Exception | None:
    if item.state in HELD:
        return HeldElsewhereError(item.id, item.id, item.expires_at - now)
    if item.state is not State.READY:
        return WrongStateError("claim", item.id, item.state.value)
    if item.not_before > now:
        return NotDueError(item.id, item.not_before - now)
    if command.session_holder:
        return HeldElsewhereError(item.id, command.session_holder, command.session_wait_s)
    return None


def _requeued(item: WorkItem, now: float) -> WorkItem:
    if item.state is not State.DEAD_LETTER:
        raise WrongStateError("requeue", item.id, item.state.value)
    return _moved(item, State.READY, now).but(failures=0, not_before=0.0, delivered=False, handed_at=0.0)


# -- in the name of a lease --------------------------------------------------------------------------------------------


def _in_the_name_of(item: WorkItem, command: Holding, now: float) -> Step:
    lease = command.lease
    held = (item.tenant, item.owner, item.epoch, item.token)
    if item.state not in HELD or held != (lease.tenant, lease.owner, lease.epoch, lease.token):
        raise LeaseLostError(item.id, lease.epoch)
    match command:
        case Start():
            return Step(_started(item, now))
        case Renew():
            return Step(item.but(expires_at=max(item.expires_at, now + command.ttl_s)))
        case Checkpoint():
            return Step(item.but(checkpoint=storable(command.text), changed_at=now))
        case Defer():
            return _given_back(item, command.cause, now, now + max(0.0, command.delay_s))
        case Stop():
            checkpoint = item.checkpoint if command.checkpoint is None else storable(command.checkpoint)
            cause = item.cancel_cause or command.cause
            return _ended(item.but(checkpoint=checkpoint), State.CANCELLED, cause, now)
    if item.state is not State.RUNNING:
        raise WrongStateError("end", item.id, item.state.value)
    match command:
        case Succeed():
            return _ended(item, State.SUCCEEDED, command.result, now)
        case Fail():
            return _ended(item, State.FAILED, command.cause, now)
        case Retry():
            return _failed_once(item, command.cause, now, pause_s(item.failures, command.jitter))
        case _:
            assert_never(command)


def _started(item: WorkItem, now: float) -> WorkItem:
    """Again, no change: whoever lost the answer asks again."""
    if item.state is State.RUNNING:
        return item
    return _moved(item, State.RUNNING, now).but(attempt=item.attempt + 1, started_at=now)


def _given_back(item: WorkItem, cause: str, now: float, not_before: float) -> Step:
    if item.cancel_cause:
        return _ended(item, State.CANCELLED, item.cancel_cause, now)
    ready = _moved(item, State.READY, now).but(
        owner="", expires_at=0.0, not_before=not_before, delivered=False, handed_at=0.0, cause=storable(cause),
    )  # fmt: skip
    return Step(ready, (_outcome(item, ready, cause),))


def _failed_once(item: WorkItem, cause: str, now: float, wait_s: float) -> Step:
    item = item.but(failures=item.failures + 1)
    if item.failures >= item.max_attempts:
        return _ended(item, State.DEAD_LETTER, cause, now)
    return _given_back(item, cause, now, now + wait_s)


def _ended(item: WorkItem, state: WorkItemState, text: str, now: float) -> Step:
    """A request to cancel that came before goes before every other end; what a success brought is kept all the same."""
    succeeded = state is State.SUCCEEDED
    if item.cancel_cause:
        state = State.CANCELLED
    ended = _moved(item, state, now).but(
        owner="",
        expires_at=0.0,
        cause=storable(item.cancel_cause or ("" if succeeded else text)),
        result=storable(text) if succeeded else item.result,
    )
    return Step(ended, (_outcome(item, ended, text),))


# -- from outside ------------------------------------------------------------------------------------------------------


def _cancelled(item: WorkItem, cause: str, now: float) -> Step:
    """The first cause stands. What has ended otherwise is refused."""
    if item.state is State.CANCELLED:
        return Step(item)
    if item.state in ENDED:
        raise WrongStateError("cancel", item.id, item.state.value)
    cause = storable(cause) or "it was cancelled"
    if item.state in HELD and not is_abandoned(item, now):
        return Step(item.but(cancel_cause=item.cancel_cause or cause, changed_at=now))
    ended = _ended(item, State.CANCELLED, item.cancel_cause or cause, now)
    return _ran_out(ended) if item.state in HELD else ended


def is_abandoned(item: WorkItem, now: float) -> bool:
    """Whether its holder let the lease run out."""
    return item.state in HELD and item.expires_at < now


def is_lapsed(item: WorkItem, now: float) -> bool:
    """Whether its deadline passed before anybody took it up."""
    return item.state in (State.SUBMITTED, State.READY) and item.deadline is not None and item.deadline < now


def _in_order(item: WorkItem, now: float, jitter: float | None) -> Step:
    """A turn that had begun has failed, one that had not is as good as new. A pause follows unless `jitter` is None."""
    outcomes: tuple[Outcome, ...] = ()
    if is_abandoned(item, now):
        left = _ran_out(_recovered(item, now, 0.0 if jitter is None else pause_s(item.failures, jitter)))
        item, outcomes = left.item or item, left.outcomes
    if is_lapsed(item, now):
        lapsed = _ended(item, State.CANCELLED, "its deadline passed", now)
        item, outcomes = lapsed.item or item, outcomes + lapsed.outcomes
    return Step(item, outcomes)


def _recovered(item: WorkItem, now: float, wait_s: float) -> Step:
    if item.cancel_cause:
        return _ended(item, State.CANCELLED, item.cancel_cause, now)
    if item.state is State.LEASED:
        return _given_back(item, "its worker was gone before it began", now, now)
    return _failed_once(item, f"its worker was lost in attempt {item.attempt}", now, wait_s)


def _ran_out(left: Step) -> Step:
    """What was held ended because its lease had."""
    return attrs.evolve(left, outcomes=tuple(attrs.evolve(each, expired=True) for each in left.outcomes))


# -- small things ------------------------------------------------------------------------------------------------------


def pause_s(failures: int, jitter: float) -> float:
    """Before the next attempt, after so many earlier failures: doubled by each, and up to half as much again."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures, 30)) * (1.0 + 0.5 * jitter))


def _moved(item: WorkItem, state: WorkItemState, now: float) -> WorkItem:
    assert state in TRANSITIONS[item.state], f"{item.state} -> {state}"
    return item.but(state=state, changed_at=now)


def _outcome(before: WorkItem, after: WorkItem, text: str) -> Outcome:
    """Of the attempt that ended with this change, if one had begun."""
    return Outcome(
        before.id, before.tenant, before.epoch, before.token, before.attempt, before.owner, before.started_at,
        after.changed_at, after.state, storable(text),
    )  # fmt: skip
