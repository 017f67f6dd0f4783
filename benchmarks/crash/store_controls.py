"""The rules of the store's rows on trial: evidence that was well, doctored."""

from __future__ import annotations

import attrs

from benchmarks.crash.doctor import Doctor, first
from benchmarks.crash.evidence import Command, Evidence, Look, Row, Step, Takeover
from benchmarks.crash.plan import Plan

#: As a database tells of two owners: claimed, two batches, a new connection, a renewal; claimed, a batch.
_STEPS = tuple(
    Step(*each) for each in ((1, 1, 1, 0), (2, 1, 1, 1), (3, 1, 1, 2), (4, 1, 2, 2), (5, 2, 1, 0), (6, 2, 1, 1))
)
_WRITERS = (2, 3, 6)
_NEW = 10**9


def merged_row(evidence: Evidence) -> tuple[str, Row]:
    found: tuple[str, Row] = first(
        (name, row) for name, row in evidence.looks[-1].rows.items() if row.state == "merged" and row.attempt
    )
    return found


def at_the_end(evidence: Evidence, rows: dict[str, Row], told: frozenset[str] = frozenset()) -> Evidence:
    """One more look, at which some rows are as given."""
    last = evidence.looks[-1]
    look = attrs.evolve(last, at=last.at + 10, when="the end", rows=dict(last.rows) | rows, told=told)
    return attrs.evolve(evidence, looks=(*evidence.looks, look))


def launch_not_stored(plan: Plan, evidence: Evidence) -> Evidence:
    name, row = merged_row(evidence)
    rows = {name: attrs.evolve(row, attempt=0)}
    return attrs.evolve(evidence, looks=(Look(_NEW, "the end", dict(evidence.looks[-1].rows) | rows, frozenset()),))


def merge_not_stored(plan: Plan, evidence: Evidence) -> Evidence:
    name, row = merged_row(evidence)
    look = Look(
        _NEW, "the end", {**evidence.looks[-1].rows, name: attrs.evolve(row, state="queued")}, frozenset({name})
    )
    return attrs.evolve(evidence, looks=(look,))


def commanded(evidence: Evidence, verb: str, row: Row) -> Evidence:
    """Acknowledged right before the last of all looks, at which the slice's row is as given."""
    name, _ = merged_row(evidence)
    at = evidence.looks[-1].at + 5
    told = Command(verb, name, at, at + 1, 0, evidence.seen[-1])
    return attrs.evolve(at_the_end(evidence, {name: row}), commands=(*evidence.commands, told))


def hold_not_stored(plan: Plan, evidence: Evidence) -> Evidence:
    return commanded(evidence, "hold", Row("queued", 9, held=False))


def release_not_stored(plan: Plan, evidence: Evidence) -> Evidence:
    return commanded(evidence, "release", Row("queued", 9, held=True))


def cancel_not_stored(plan: Plan, evidence: Evidence) -> Evidence:
    return commanded(evidence, "cancel", Row("queued", 9, held=False))


def row_gone(plan: Plan, evidence: Evidence) -> Evidence:
    name, _ = merged_row(evidence)
    last = evidence.looks[-1]
    rows = {other: row for other, row in last.rows.items() if other != name}
    return attrs.evolve(evidence, looks=(*evidence.looks, attrs.evolve(last, rows=rows, told=frozenset())))


def attempt_forgotten(plan: Plan, evidence: Evidence) -> Evidence:
    name, row = merged_row(evidence)
    return at_the_end(at_the_end(evidence, {name: attrs.evolve(row, attempt=row.attempt + 2)}), {name: row})


def merge_forgotten(plan: Plan, evidence: Evidence) -> Evidence:
    name, row = merged_row(evidence)
    return at_the_end(evidence, {name: attrs.evolve(row, state="queued")})


def not_refused(plan: Plan, evidence: Evidence) -> Evidence:
    return attrs.evolve(evidence, takeovers=(Takeover(3, 0, changed=False),))


def wrote_all_the_same(plan: Plan, evidence: Evidence) -> Evidence:
    return attrs.evolve(evidence, takeovers=(Takeover(3, 1, changed=True),))


def stepped(evidence: Evidence, *more: Step, writers: tuple[int, ...] = ()) -> Evidence:
    steps, known = (evidence.steps, evidence.writers) if evidence.steps else (_STEPS, _WRITERS)
    return attrs.evolve(evidence, steps=(*steps, *more), writers=(*known, *writers))


def last_step(evidence: Evidence) -> Step:
    return (evidence.steps or _STEPS)[-1]


def batch_twice(plan: Plan, evidence: Evidence) -> Evidence:
    return stepped(evidence, attrs.evolve(last_step(evidence), transaction=_NEW), writers=(_NEW,))


def batch_lost(plan: Plan, evidence: Evidence) -> Evidence:
    last = last_step(evidence)
    return stepped(evidence, attrs.evolve(last, transaction=_NEW, batch=last.batch + 2))


def batch_of_former_owner(plan: Plan, evidence: Evidence) -> Evidence:
    last = last_step(evidence)
    after = attrs.evolve(last, transaction=_NEW, epoch=last.epoch + 1, batch=0)
    return stepped(evidence, after, attrs.evolve(last, transaction=_NEW + 1, batch=last.batch + 1))


def batch_of_former_connection(plan: Plan, evidence: Evidence) -> Evidence:
    last = last_step(evidence)
    after = attrs.evolve(last, transaction=_NEW, incarnation=last.incarnation + 1)
    return stepped(evidence, after, attrs.evolve(last, transaction=_NEW + 1, batch=last.batch + 1))


def batch_before_the_claim(plan: Plan, evidence: Evidence) -> Evidence:
    last = last_step(evidence)
    return stepped(evidence, attrs.evolve(last, transaction=_NEW, epoch=last.epoch + 1, batch=7))


def written_past_the_claim(plan: Plan, evidence: Evidence) -> Evidence:
    return stepped(evidence, writers=(_NEW,))


STORE_CONTROLS: tuple[tuple[str, str, Doctor], ...] = (
    ("a session began whose launch is not in the store", "durable", launch_not_stored),
    ("a merge was told that is not in the store", "durable", merge_not_stored),
    ("an acknowledged hold is not in the store", "durable", hold_not_stored),
    ("an acknowledged release is not in the store", "durable", release_not_stored),
    ("an acknowledged cancel is not in the store", "durable", cancel_not_stored),
    ("a row is gone from the store", "durable", row_gone),
    ("the store forgot an attempt", "durable", attempt_forgotten),
    ("the store forgot a merge", "durable", merge_forgotten),
    ("no write of a former owner was refused", "fenced", not_refused),
    ("a former owner changed rows", "fenced", wrote_all_the_same),
    ("a batch was written twice", "batches", batch_twice),
    ("a batch was left out", "batches", batch_lost),
    ("a former owner's batch was committed", "batches", batch_of_former_owner),
    ("a batch of a former connection was committed", "batches", batch_of_former_connection),
    ("an owner's first batch was not its first", "batches", batch_before_the_claim),
    ("rows were changed past the claim", "batches", written_past_the_claim),
)
