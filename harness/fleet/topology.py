"""The fleet as it stands, in one document: who works, how much there is, how much is on its way."""

from __future__ import annotations

from harness.fleet.counting import Counts
from harness.fleet.errors import FleetError
from harness.fleet.jobs import Document, counted
from harness.fleet.ports import KEPT_S, Registry, Transport, WorkerPresence


def topology(registry: Registry, transport: Transport, backend: str, counts: Counts | None = None) -> Document:
    """Times are Unix seconds by the authority's clock. `depth` is null if it can't be read: never a guess.

    Who asks again and again gives the `counts` to ask, the same each time.
    """
    tally = registry.tally() if counts is None else counts.tally()
    return {
        "at": tally.at,
        "transport": backend,
        "depth": _depth(transport),
        "items": counted(tally.items),
        "due": dict(sorted(tally.due.items())),
        "leases": {"overdue": tally.overdue, "oldest_overdue_s": round(tally.overdue_s, 3), "expired": tally.expired},
        "workers": [_worker(each, tally.at) for each in registry.workers(KEPT_S)],
    }


def _depth(transport: Transport) -> int | None:
    try:
        return transport.depth()
    except FleetError:
        return None


def _worker(found: WorkerPresence, now: float) -> Document:
    return {
        "token": found.token,
        "kinds": list(found.kinds),
        "slots": found.slots,
        "busy": found.busy,
        "queue": found.queue or None,
        "alive": found.is_alive(now),
        "started_at": found.started_at,
        "seen_at": found.seen_at,
    }
