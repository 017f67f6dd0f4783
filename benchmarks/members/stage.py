"""Where the trials are played: servers, workers, and what was submitted to them."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from benchmarks.fencing.checker import ENDS, Evidence, Verdict, judge
from benchmarks.fencing.chore import KIND, Chore
from benchmarks.fencing.deliveries import NAME as DELIVERIES
from benchmarks.fencing.deliveries import Handed, handed
from benchmarks.fencing.grounds import KafkaGrounds
from benchmarks.fencing.workers import Workers
from harness.fleet.kafka_servers import KafkaServers
from harness.fleet.opening import Fleet, open_fleet
from harness.fleet.settings import FleetSettings
from harness.fleet.transport.kafka import KafkaQueue
from harness.fleet.work_item import Submission, WorkItem
from tests.kafka_server import KafkaServer, free_ports
from tests.tcp_proxy import TcpProxy

MAX_DEPTH = 400
QUIET_S = 120.0  #: from the last fault, all must have ended within so long
_GROUPS = "org.apache.kafka.coordinator.group"
_MEMBER = re.compile(r"( for)? \(?slice-dispatch-\S+( with group instance id null)?")
_REBALANCE = re.compile(r"Preparing to rebalance group agent-dispatch .*\(reason: (.*?)[:;.)]")


@attrs.define(eq=False)
class Stage:
    """One fleet on Kafka. `proxy` is a second way to the broker, for who submits."""

    folder: Path
    grounds: KafkaGrounds
    broker: KafkaServer
    proxy: TcpProxy
    fleet: Fleet
    workers: Workers
    accepted: dict[str, int] = attrs.field(factory=dict)
    exits: Counter[int] = attrs.field(factory=Counter)

    def submission(self, name: str, session: str, chore: Chore, max_attempts: int = 50) -> Submission:
        payload = self.fleet.authority.keep(json.dumps(attrs.asdict(chore)).encode())
        return Submission(name, "tenant", session, KIND, payload, max_attempts=max_attempts)

    def accept(self, submission: Submission, chore: Chore) -> WorkItem:
        """What the fleet's own transport admits."""
        item = self.fleet.queue.submit(submission)
        self.accepted[item.id] = chore.effects
        return item

    def item(self, name: str) -> WorkItem:
        return self.fleet.authority.find([name])[name]

    def by_the_proxy(self, patience_s: float) -> KafkaQueue:
        """The same queue, for a client whose connections can be cut."""
        return KafkaQueue(KafkaServers(f"127.0.0.1:{self.proxy.port}"), 1, patience_s=patience_s)

    def mind(self) -> None:
        self.exits.update(self.workers.mind())

    def settle(self) -> None:
        """Until all have ended and nothing is queued, or long enough waited for it."""
        self.until(lambda: self.unended() == 0 and self.fleet.transport.depth() == 0, QUIET_S)

    def unended(self) -> int:
        items = self.fleet.authority.find(list(self.accepted))
        return sum(items[name].state.value not in ENDS for name in self.accepted)

    def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Whether it came to be. Workers that ended are started again meanwhile."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.mind()
            time.sleep(0.1)
        return True

    def rebalances(self) -> Counter[str]:
        """So far, by what the broker says is the reason."""
        return Counter(_MEMBER.sub("", found.group(1)) for found in _REBALANCE.finditer(self.broker.log))

    def handed(self) -> Handed:
        return handed(self.folder / "deliveries")

    def doubles(self) -> list[str]:
        """Effects that were had twice in one attempt, or after the attempt by which their turn succeeded."""
        notes = Counter((note.item, note.epoch, note.what, note.number) for note in self.workers.notes())
        succeeded = {name: row.outcomes[-1][0] for name, row in self.grounds.rows().items() if row.state == "succeeded"}
        return [f"{note}" for note, times in notes.items() if times > 1 or note[1] > succeeded.get(note[0], note[1])]

    def verdict(self) -> Verdict:
        notes = tuple(self.workers.notes())
        return judge(Evidence(self.accepted, notes, self.grounds.rows(), self.fleet.transport.depth()))


@contextlib.contextmanager
def stage(workers: int) -> Iterator[Stage]:
    """One with so many workers."""
    (port,) = free_ports(1)
    proxy = TcpProxy(lambda: socket.create_connection(("127.0.0.1", port)))
    with contextlib.ExitStack() as after:
        after.callback(proxy.close)
        folder = Path(after.enter_context(tempfile.TemporaryDirectory(prefix="members-")))
        broker = _broker(port, proxy.port)
        grounds = KafkaGrounds(folder, MAX_DEPTH, broker)
        after.callback(grounds.close)
        fleet = after.enter_context(contextlib.closing(open_fleet(FleetSettings.of(grounds.direct))))
        crew = Workers(folder, {**grounds.environ, DELIVERIES: str(folder / "deliveries")})
        after.callback(crew.end)
        for _ in range(workers):
            crew.start()
        yield Stage(folder, grounds, broker, proxy, fleet, crew)


def _broker(port: int, proxied: int) -> KafkaServer:
    """Who comes by the proxy is sent on to it."""
    return KafkaServer(
        {"PROXIED": (f"127.0.0.1:{port}", f"127.0.0.1:{proxied}")},
        tells=_GROUPS,
        listener__security__protocol__map="PROXIED:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    )
