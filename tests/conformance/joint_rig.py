"""What the suite of a joint, and the tests of each, need around one: fleets in one database, and turns to put through.

A fleet joins the suite with one entry in `PLACES`: how to make a place for one, which is a URI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict

from harness.fleet.commands import Claim, Succeed
from harness.fleet.opening import Fleet, open_fleet
from harness.fleet.ports import Delivery, Ending, Joint, Opening, Settlement
from harness.fleet.settings import FleetSettings
from harness.fleet.work_item import Submission, WorkItem, WorkItemState
from tests.postgres_server import databases

LIMIT_S = 30.0
TTL_S = 600.0


def sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'fleet.db'}"


def postgres(folder: Path) -> str:
    return url_of(databases().new())


def url_of(conninfo: str) -> str:
    place = conninfo_to_dict(conninfo)
    return f"postgresql:///{place.pop('dbname')}?{urlencode(place)}"


PLACES: dict[str, Callable[[Path], str]] = {"sqlite": sqlite, "postgres": postgres}


@contextmanager
def opened(uri: str, depth: int = 100) -> Iterator[Fleet]:
    """A client of a fleet in that database."""
    backend = "postgres" if uri.startswith("postgresql") else "sqlite"
    with closing(open_fleet(FleetSettings(backend, uri, uri, max_depth=depth))) as fleet:
        yield fleet


def joint_of(fleet: Fleet) -> Joint:
    assert fleet.joint is not None
    return fleet.joint


def turn(name: str, session_id: str = "", **more: object) -> Submission:
    return Submission(name, "t", session_id or f"of {name}", "k", **more)  # type: ignore[arg-type]


def opening(delivery: Delivery) -> Opening:
    envelope = delivery.envelope
    assert envelope is not None
    claim = Claim(envelope.job_id, envelope.tenant, "me", TTL_S, starts=True)
    return Opening(claim, (envelope.tenant, envelope.session_id))


def ending(delivery: Delivery, item: WorkItem) -> Ending:
    return Ending(Succeed(item.lease), (item.tenant, item.session_id), delivery.receipt)


def settle(fleet: Fleet, endings: Sequence[Ending] = (), openings: Sequence[Opening] = ()) -> Settlement:
    return joint_of(fleet).settle(endings, openings)


def begin(fleet: Fleet, *names: str) -> list[tuple[Delivery, WorkItem]]:
    """Admit them, and take them up."""
    for name in names:
        fleet.queue.submit(turn(name))
    came = fleet.transport.receive(len(names), LIMIT_S)
    settled = settle(fleet, openings=[opening(each) for each in came])
    items = [result for result in settled.openings if isinstance(result, WorkItem)]
    assert len(items) == len(names) and all(settled.locked)
    return list(zip(came, items, strict=True))


def state(fleet: Fleet, name: str) -> WorkItemState:
    return fleet.authority.find([name])[name].state
