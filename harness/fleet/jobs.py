"""Looking at work items and changing their course from outside: what the command line, HTTP and programs share.

A *document* is an item as JSON can hold it. `tenant`, where it is given, is whose items there are at all; an operator
gives none, and sees everybody's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from harness.fleet.commands import Cancel, Command, Requeue
from harness.fleet.envelope import check_reference, check_whole
from harness.fleet.errors import InvalidTurnError, UnknownItemError
from harness.fleet.ports import Authority, Buried, Query
from harness.fleet.work_item import HELD, Outcome, WorkItem, WorkItemState

MOST = 1000  #: items in one answer
BY_HAND = "it was cancelled by hand"
REASON_LIMIT = 2000  #: characters of a reason

Document = dict[str, Any]


def graph_jobs(
    action: str = "status",
    job_id: str = "",
    *,
    tenant: str | None = None,
    reason: str = "",
    states: Iterable[str] = (),
    after: str = "",
    limit: int = 100,
    authority: Authority | None = None,
) -> Document:
    """`status` and `cancel` of the job `job_id`, `requeue` of a dead letter; `list` and `dead` of all there are.

    Without an `authority`, that of the environment's `STATE_DB_URI` is opened for the call; none is made. Raises the
    fleet's errors.
    """
    if authority is None:
        from harness.fleet.looking import authority_to_look_at
        from harness.fleet.settings import FleetSettings

        with authority_to_look_at(FleetSettings.of(os.environ)) as opened:
            return graph_jobs(
                action, job_id, tenant=tenant, reason=reason, states=states, after=after, limit=limit, authority=opened
            )
    match action:
        case "status":
            return status(authority, job_id, tenant)
        case "cancel":
            return cancel(authority, job_id, tenant, reason)
        case "requeue":
            return requeue(authority, job_id, tenant)
        case "list":
            return listing(authority, query(tenant=tenant, states=states, after=after, limit=limit))
        case "dead":
            return dead(authority, tenant, limit)
        case _:
            raise InvalidTurnError("action", "is none of status, cancel, requeue, list, dead")


def status(authority: Authority, job_id: str, tenant: str | None = None) -> Document:
    """The item with its provenance. Raises `UnknownItemError`."""
    item = _item(authority, job_id, tenant)
    return document(item) | {"outcomes": [_outcome(each) for each in authority.outcomes(item.id)]}


def cancel(authority: Authority, job_id: str, tenant: str | None = None, reason: str = "") -> Document:
    """At once if nobody holds it; else its holder is told, and stops at its next safepoint. Again, no change."""
    if len(reason) > REASON_LIMIT:
        raise InvalidTurnError("reason", f"has {len(reason):,} characters; {REASON_LIMIT:,} are the most")
    item = _item(authority, job_id, tenant)
    return document(_done(authority, Cancel(item.id, item.tenant, reason.strip() or BY_HAND)))


def requeue(authority: Authority, job_id: str, tenant: str | None = None) -> Document:
    """A dead letter is tried again, with its failures forgiven; the workers' pump sees to its delivery."""
    item = _item(authority, job_id, tenant)
    return document(_done(authority, Requeue(item.id, item.tenant)))


def listing(authority: Authority, wanted: Query) -> Document:
    """In order of submission. `next` is what to give as `after` for those that follow; None: that is all.

    Raises `UnknownItemError` for an `after` that is not there: a reader who pages would begin anew again and again.
    """
    if wanted.after and wanted.after not in authority.find([wanted.after]):
        raise UnknownItemError(wanted.after)
    items = authority.search(attrs.evolve(wanted, limit=wanted.limit + 1))
    page = items[: wanted.limit]
    return {"jobs": [document(item) for item in page], "next": page[-1].id if len(items) > len(page) else None}


def dead(authority: Authority, tenant: str | None = None, limit: int = 100) -> Document:
    """The dead letters, and the deliveries that were no item's, by the digest of their bytes."""
    letters = listing(authority, query(tenant=tenant, states=[WorkItemState.DEAD_LETTER.value], limit=limit))
    graves = [each for each in authority.graves(limit) if tenant in (None, each.tenant)]
    return {"dead_letters": letters["jobs"], "next": letters["next"], "buried": [_grave(each) for each in graves]}


def query(
    *,
    tenant: str | None = None,
    states: Iterable[str] = (),
    session_id: str | None = None,
    kind: str | None = None,
    after: str = "",
    limit: int = 100,
) -> Query:
    """From what somebody typed or sent. Raises `InvalidTurnError`."""
    named = {"tenant": tenant, "session_id": session_id, "kind": kind}
    references = {name: None if text is None else check_reference(name, text) for name, text in named.items()}
    return Query(
        states=frozenset(_state(name) for name in states),
        after=check_reference("after", after, empty=True),
        limit=check_whole("limit", limit, 1, MOST),
        **references,
    )


def document(item: WorkItem) -> Document:
    """The item. Times are Unix seconds by the database's clock; `worker` is the opaque token of who holds it."""
    return {
        "job_id": item.id,
        "tenant": item.tenant,
        "session_id": item.session_id,
        "kind": item.kind,
        "priority": item.priority,
        "deadline": item.deadline,
        "depends_on": list(item.depends_on),
        "state": item.state.value,
        "cancel_requested": bool(item.cancel_cause) and item.state in HELD,
        "cause": item.cancel_cause or item.cause,
        "result": item.result,
        "attempt": item.attempt,
        "failures": item.failures,
        "max_attempts": item.max_attempts,
        "epoch": item.epoch,
        "worker": item.owner or None,
        "lease_expires_at": item.expires_at or None,
        "not_before": item.not_before or None,
        "submitted_at": item.submitted_at,
        "started_at": item.started_at or None,
        "changed_at": item.changed_at,
    }


def _outcome(outcome: Outcome) -> Document:
    return {
        "attempt": outcome.attempt,
        "epoch": outcome.epoch,
        "worker": outcome.owner or None,
        "started_at": outcome.started_at or None,
        "ended_at": outcome.ended_at,
        "left": outcome.ended.value,
        "lease_expired": outcome.expired,
        "text": outcome.text,
    }


def _grave(found: Buried) -> Document:
    return {
        "digest": found.digest,
        "cause": found.cause,
        "job_id": found.job_id or None,
        "tenant": found.tenant or None,
        "count": found.count,
        "first_at": found.first_at,
        "last_at": found.last_at,
    }


def _item(authority: Authority, job_id: str, tenant: str | None) -> WorkItem:
    item = authority.find([check_reference("job_id", job_id)]).get(job_id)
    if item is None or tenant not in (None, item.tenant):
        raise UnknownItemError(job_id)
    return item


def _done(authority: Authority, command: Command) -> WorkItem:
    (result,) = authority.perform([command])
    if isinstance(result, Exception):
        raise result
    assert result is not None, "only a withdrawal leaves nothing"
    return result


def _state(name: str) -> WorkItemState:
    try:
        return WorkItemState(name)
    except ValueError:
        known = ", ".join(state.value for state in WorkItemState)
        raise InvalidTurnError("state", f"is none of {known}") from None


def counted(numbers: Mapping[WorkItemState, int]) -> dict[str, int]:
    """By the names of the states, in their order, those with 0 too."""
    return {state.value: numbers.get(state, 0) for state in WorkItemState}
