"""What is put into the queue: good turns, and among them everything that should not be there. Pure.

A campaign has two waves. Before the first a few items end, in every way that there is, and a few *sleepers* begin, that
run until the morning: what is planted meanwhile comes while its item runs, or waits for its session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random

import attrs

from benchmarks.envelopes.checker import Wanted
from benchmarks.envelopes.chore import DOOMED, NOTE, SLEEPER
from benchmarks.envelopes.post import Stray
from harness.fleet.work_item import Submission

TENANTS, SESSIONS = 2, 4  #: so many of each: few, so that good turns wait for one another
#: Sessions of sleepers. By Kafka's murmur2, and of eight partitions, each has one of its own, where no good turn is.
BEDS = ("bed-1", "bed-3", "bed-4", "bed-8")
SLEEPERS = len(BEDS)
ENDED = {"succeeded": NOTE, "dead_letter": DOOMED, "cancelled": NOTE}
FAR = 1e11  #: a deadline beyond all campaigns
SOON_S = 1.0  #: the deadline of what waits for its session
#: What is planted, by weight.
STRAYS = {
    "poison": 30,
    "poison again": 5,
    "no item": 14,
    "another tenant's": 16,
    "expired": 8,
    "expires": 2,
    "a second of one that has ended": 10,
    "a second of one that waits": 7,
    "a second of one that runs": 5,
    "altered": 3,
}


@attrs.frozen
class Item:
    """A turn to be submitted, and what is to become of it."""

    submission: Submission
    wanted: Wanted


def item(name: str, tenant: str, session: str, kind: str = NOTE, state: str = "succeeded", **more: object) -> Item:
    payload = f"note:{name}"
    runs = int(state in ("succeeded", "dead_letter"))
    submission = Submission(name, tenant, session, kind, payload, **more)  # type: ignore[arg-type]
    return Item(submission, Wanted(tenant, session, kind, payload, state, runs))


def places() -> list[tuple[str, str]]:
    """The tenants and sessions of good turns. Sessions of two tenants have the same name."""
    return [(f"tenant-{number}", f"session-{other}") for number in range(TENANTS) for other in range(SESSIONS)]


def sleepers() -> list[Item]:
    return [item(f"sleeper-{number}", "tenant-0", bed, SLEEPER) for number, bed in enumerate(BEDS)]


def waiters(count: int) -> list[Item]:
    """They depend on sleepers."""
    return [
        item(f"waiter-{number}", "tenant-0", f"session-{number % SESSIONS}", depends_on=(_sleeper(number),))
        for number in range(count)
    ]


def _sleeper(number: int) -> str:
    return f"sleeper-{number % SLEEPERS}"


def early(count: int) -> dict[str, list[Item]]:
    """Those that end before anything is planted, by the state they come to."""
    return {
        state: [
            item(f"{state}-{number}", f"tenant-{number % TENANTS}", f"early-{number % 8}", kind, state, max_attempts=1)
            for number in range(count)
        ]
        for state, kind in ENDED.items()
    }


def good(number: int, rng: Random) -> Item:
    tenant, session = rng.choice(places())
    deadline = FAR if rng.random() < 0.2 else None
    return item(f"good-{number}", tenant, session, priority=rng.randrange(4), deadline=deadline)


def expired(number: int, now: float, rng: Random) -> Item:
    tenant, session = rng.choice(places())
    deadline = now - rng.choice((0.5, 60.0, 86_400.0, now))
    return item(f"expired-{number}", tenant, session, state="cancelled", deadline=deadline)


def expiring(number: int, now: float) -> Item:
    """It waits for a session in which a sleeper runs."""
    bed = BEDS[number % SLEEPERS]
    return item(f"expires-{number}", "tenant-0", bed, state="cancelled", deadline=now + SOON_S)


def letter(called: str, of: Submission, now: float, **changes: object) -> Stray:
    """An envelope of that turn, but for the changes."""
    fields = {
        "job_id": of.id, "session_id": of.session_id, "kind": of.kind, "payload_ref": of.payload_ref,
        "tenant": of.tenant, "priority": of.priority, "deadline": of.deadline, "attempt": 0, "enqueued_at": now,
    } | changes  # fmt: skip
    return Stray(called, tuple(fields.values()), is_letter=True)


def stranger(number: int, now: float, rng: Random) -> Stray:
    """An envelope of an item that there isn't."""
    tenant, session = rng.choice((*places(), ("tenant-9", "session-9"), ("tenant-0", BEDS[0])))
    name = rng.choice((f"stranger-{number}", f"好-{number}", f"' OR 1=1 -- {number}", f"../../{number}"))
    of = Submission(name, tenant, session, rng.choice((NOTE, "unheard-of")), "note:stranger")
    return letter("no item", of, now, deadline=rng.choice((None, 1.0, FAR)))


def shuffled(count: int, weights: Mapping[str, int], rng: Random) -> list[str]:
    """So many kinds, each as often as its weight says, in any order."""
    total = sum(weights.values())
    kinds = [kind for kind, weight in weights.items() for _ in range(count * weight // total)]
    kinds += rng.choices(list(weights), list(weights.values()), k=count - len(kinds))
    rng.shuffle(kinds)
    return kinds


def chunks(kinds: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(kinds), size):
        yield kinds[start : start + size]
