"""What workers were handed by Kafka, in a file that only grows: counted in the workers' processes.

Done where FENCING_DELIVERIES names the file, when a worker loads the campaign's executor.
"""

from __future__ import annotations

import os
from pathlib import Path

import attrs

NAME = "FENCING_DELIVERIES"


@attrs.frozen
class Handed:
    """How many times workers were handed a record, how many records those were, and of how many jobs."""

    deliveries: int
    records: int
    jobs: int

    @property
    def again(self) -> int:
        """More often than once for each job."""
        return self.deliveries - self.jobs


def count() -> None:
    """From here on, in this process."""
    path = os.environ.get(NAME)
    if not path:
        return
    from harness.fleet.ports import Delivery
    from harness.fleet.transport.kafka import KafkaTransport

    receive, file = KafkaTransport.receive, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def counted(transport: KafkaTransport, limit: int, wait_s: float) -> tuple[Delivery, ...]:
        found = receive(transport, limit, wait_s)
        for delivery in found:
            os.write(file, f"{delivery.receipt.place.partition(':')[2]}\n".encode())  # partition@offset:job
        return found

    setattr(KafkaTransport, "receive", counted)  # noqa: B010 - it is another product from here on


def handed(path: Path) -> Handed:
    lines = path.read_text("utf-8").split("\n")[:-1] if path.exists() else []
    records = set(lines)
    return Handed(len(lines), len(records), len({line.partition(":")[2] for line in records}))
