"""The judge: from the tables, the ledger and what was planted, whether each delivery ended where it should.

It shares no code with the fleet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import attrs

from benchmarks.envelopes.ledger import Note

PROMPT_S = 10.0  #: from a deadline that has passed to the cancellation of its item
LATE = "its deadline passed"


@attrs.frozen
class Row:
    """An item, and how its attempts ended: the state they left, the text, when."""

    tenant: str
    state: str
    attempt: int
    submitted_at: float
    deadline: float | None
    outcomes: tuple[tuple[str, str, float], ...] = ()


@attrs.frozen
class Grave:
    """A delivery that was no item's."""

    cause: str
    job_id: str
    tenant: str
    count: int


@attrs.frozen
class Wanted:
    """What is to become of an item that was submitted: the state, and how often its executor is to run."""

    tenant: str
    session: str
    kind: str
    payload: str
    state: str
    runs: int = 1


@attrs.frozen
class Burial:
    """A delivery that is to be buried, so many times. `job_id` and `tenant` are empty for what is no envelope."""

    kind: str
    job_id: str = ""
    tenant: str = ""
    count: int = 1


@attrs.frozen
class Evidence:
    """`redelivers`: of a queue that may deliver twice what it was not told of in time, so that counts may be higher.
    `exits`: the statuses of workers, which were asked to end."""

    wanted: Mapping[str, Wanted]
    buried: Mapping[str, Burial]
    notes: Sequence[Note]
    rows: Mapping[str, Row]
    graves: Mapping[str, Grave]
    depth: int
    exits: Sequence[int]
    redelivers: bool = False


Violation = tuple[str, str]  #: a code, and what was seen


@attrs.frozen
class Verdict:
    violations: tuple[Violation, ...] = ()
    delays_s: tuple[float, ...] = ()  #: from each deadline that had passed to the end of its item, in order
    recounted: int = 0  #: burials beyond those that were planted


def judge(evidence: Evidence) -> Verdict:
    found = [
        *_executed(evidence),
        *_ended(evidence),
        *_serial(evidence.notes),
        *_buried(evidence),
        *_late(evidence),
        *_left(evidence),
    ]
    planted = sum(each.count for each in evidence.buried.values())
    recounted = sum(each.count for each in evidence.graves.values()) - planted
    return Verdict(tuple(found), tuple(sorted(_delays(evidence))), recounted)


def _executed(evidence: Evidence) -> Iterator[Violation]:
    """Nothing ran that nobody submitted, nothing in another's name, and nothing more or less often than it should."""
    runs: Counter[str] = Counter()
    for note in evidence.notes:
        wanted = evidence.wanted.get(note.item)
        if wanted is None:
            yield "foreign", f"{note} is of no item"
        elif (note.tenant, note.session, note.kind, note.payload) != (
            wanted.tenant,
            wanted.session,
            wanted.kind,
            wanted.payload,
        ):
            yield "altered", f"{note} is not {wanted}"
        runs[note.item] += note.what == "began"
    for name, wanted in evidence.wanted.items():
        if runs[name] > wanted.runs:
            yield "twice", f"{name} ran {runs[name]} times, and should {wanted.runs}"
        if runs[name] < wanted.runs:
            yield "not run", f"{name} ran {runs[name]} times, and should {wanted.runs}"


def _ended(evidence: Evidence) -> Iterator[Violation]:
    """Each item is where it should be, by one end."""
    for name in evidence.rows.keys() - evidence.wanted.keys():
        yield "made up", f"{name} was never submitted"
    for name, wanted in evidence.wanted.items():
        row = evidence.rows.get(name)
        if row is None:
            yield "lost", f"{name} is gone"
        elif (row.state, row.tenant) != (wanted.state, wanted.tenant):
            yield "state", f"{name} of {row.tenant} is {row.state}, and should be {wanted.state} of {wanted.tenant}"
        elif [ended for ended, _, _ in row.outcomes] != [wanted.state]:
            yield "ends", f"{name} ended as {row.outcomes}"
        elif row.attempt != wanted.runs:
            yield "attempts", f"{name} has {row.attempt} attempts, and should have {wanted.runs}"


def _serial(notes: Sequence[Note]) -> Iterator[Violation]:
    """Of a session, one turn at a time."""
    under_way: dict[tuple[str, str], str] = {}
    for note in sorted(notes, key=lambda note: (note.at, note.what == "began")):
        session = note.tenant, note.session
        other = under_way.get(session)
        if note.what == "began":
            if other is not None:
                yield "at once", f"{note.item} began while {other} ran, in {session}"
            under_way[session] = note.item
        elif other == note.item:
            del under_way[session]
        else:
            yield "at once", f"{note.item} ended while {other} ran, in {session}"


def _buried(evidence: Evidence) -> Iterator[Violation]:
    """What is nobody's has a grave, by its digest, that counts it; and nothing else has one."""
    for digest in evidence.graves.keys() - evidence.buried.keys():
        yield "buried alive", f"{evidence.graves[digest]} was planted by nobody"
    for digest, wanted in evidence.buried.items():
        grave = evidence.graves.get(digest)
        if grave is None:
            yield "unburied", f"{wanted} has no grave"
        elif (grave.job_id, grave.tenant) != (wanted.job_id, wanted.tenant) or not grave.cause:
            yield "misnamed", f"{grave} is not {wanted}"
        elif grave.count < wanted.count or (grave.count > wanted.count and not evidence.redelivers):
            yield "miscounted", f"{grave} should count {wanted.count}"


def _late(evidence: Evidence) -> Iterator[Violation]:
    """Whose deadline had passed is cancelled for that, and soon."""
    for name, row in _expired(evidence):
        _, text, at = row.outcomes[-1]
        assert row.deadline is not None
        if text != LATE:
            yield "cause", f"{name} was cancelled since: {text!r}"
        if at < row.deadline:
            yield "too soon", f"{name} was cancelled {row.deadline - at:.3f} s before its deadline"
    for delay_s in _delays(evidence):
        if delay_s > PROMPT_S:
            yield "late", f"an item was cancelled {delay_s:.1f} s after its deadline had passed"


def _expired(evidence: Evidence) -> Iterator[tuple[str, Row]]:
    for name, row in evidence.rows.items():
        if row.deadline is not None and row.state == "cancelled" and row.outcomes:
            yield name, row


def _delays(evidence: Evidence) -> list[float]:
    """In seconds from when both were true: it was there, and its deadline had passed."""
    return [
        row.outcomes[-1][2] - max(row.deadline, row.submitted_at)
        for _, row in _expired(evidence)
        if row.deadline is not None
    ]


def _left(evidence: Evidence) -> Iterator[Violation]:
    if evidence.depth:
        yield "left over", f"{evidence.depth} deliveries are left"
    if any(evidence.exits) or not evidence.exits:
        yield "worker", f"workers ended with {list(evidence.exits)}"


def by_code(violations: Sequence[Violation]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for code, text in violations:
        found[code].append(text)
    return dict(found)
