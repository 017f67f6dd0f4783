"""The judge: from the ledger, the tables and what the campaign did, whether a promise was broken.

It shares no code with the fleet: it reads rows as the database's driver gives them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

import attrs

from benchmarks.fencing.notes import Note

ENDS = frozenset({"succeeded", "failed", "cancelled", "dead_letter"})


@attrs.frozen
class Row:
    """A work item as the authority has it in the end, and the states that its outcomes left, by epoch."""

    state: str
    outcomes: tuple[tuple[int, str], ...]


@attrs.frozen
class Evidence:
    """What is left. `accepted`: what the submitters were told was taken, by its number of effects. `suspended`: of a
    process, the spans in which it stood still. `cancelled`: items that somebody asked to cancel."""

    accepted: dict[str, int]
    notes: tuple[Note, ...]
    rows: dict[str, Row]
    depth: int
    suspended: dict[int, tuple[tuple[float, float], ...]] = attrs.field(factory=dict)
    cancelled: frozenset[str] = frozenset()


@attrs.frozen
class Verdict:
    """`violations`, each with its code; `excused`: notes of a holder that stood still between renewal and effect."""

    violations: tuple[tuple[str, str], ...] = ()
    excused: int = 0


def judge(evidence: Evidence) -> Verdict:
    stale, excused = _stale(evidence)
    found = [*_lost(evidence), *_twice(evidence), *stale, *_incomplete(evidence), *_left_over(evidence)]
    return Verdict(tuple(found), excused)


def _lost(evidence: Evidence) -> Iterator[tuple[str, str]]:
    for name in evidence.accepted:
        row = evidence.rows.get(name)
        if row is None:
            yield "lost", f"{name} was accepted, and is not there"
        elif row.state not in ENDS:
            yield "unended", f"{name} is {row.state}"
    for name in evidence.rows.keys() - evidence.accepted.keys():
        yield "refused", f"{name} was refused, and is there as {evidence.rows[name].state}"


def _twice(evidence: Evidence) -> Iterator[tuple[str, str]]:
    for name, row in evidence.rows.items():
        epochs = [epoch for epoch, _ in row.outcomes]
        ends = [state for _, state in row.outcomes if state in ENDS]
        if len(ends) > 1:
            yield "ended twice", f"{name}: {', '.join(ends)}"
        if any(later < earlier for earlier, later in itertools.pairwise(epochs)):
            yield "late commit", f"{name}: outcomes of epochs {epochs}"
        if ends and row.outcomes[-1][1] != row.state:
            yield "unaccounted", f"{name} is {row.state}, and its last outcome {row.outcomes[-1][1]}"


def _stale(evidence: Evidence) -> tuple[list[tuple[str, str]], int]:
    """Of each session, tokens never fall from note to note: who has seen a higher one has taken over."""
    highest: dict[str, Note] = {}
    found, excused = [], 0
    for note in sorted(evidence.notes, key=lambda note: note.written_at):
        last = highest.get(note.session)
        if last is None or note.token >= last.token:
            highest[note.session] = note
        elif _stood_still(note, evidence.suspended.get(note.pid, ())):
            excused += 1
        else:
            found.append(("stale effect", f"{note} came after {last}"))
    return found, excused


def _stood_still(note: Note, spans: Sequence[tuple[float, float]]) -> bool:
    return any(began < note.written_at and ended > note.asked_at for began, ended in spans)


def _incomplete(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """A success has all its effects, by the attempt that ended it."""
    seen: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    for note in evidence.notes:
        seen[note.item, note.epoch].add((note.what, note.number))
    for name, row in evidence.rows.items():
        if row.state != "succeeded" or name not in evidence.accepted:
            continue
        effects = evidence.accepted[name]
        wanted = {("start", 0), ("done", effects), *(("effect", number) for number in range(effects))}
        missing = wanted - seen[name, row.outcomes[-1][0]]
        if missing:
            yield "incomplete", f"{name} succeeded without {sorted(missing)}"


def _left_over(evidence: Evidence) -> Iterator[tuple[str, str]]:
    if evidence.depth:
        yield "left over", f"{evidence.depth} deliveries are unacknowledged in the end"
    for name, row in evidence.rows.items():
        if row.state == "cancelled" and name not in evidence.cancelled:
            yield "cancelled", f"{name} was cancelled, and nobody asked for it"
