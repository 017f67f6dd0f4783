"""A worker's side of a Kafka queue in a process of its own, which can be stopped and killed.

It does what it is told, a line at a time: `receive` prints the job that it got, `acknowledge` what came of that.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from harness.fleet.kafka_servers import KafkaServers
from harness.fleet.transport.kafka import KafkaQueue, KafkaTransport

ROOT = Path(__file__).parents[2]
LIMIT_S = 30.0


@attrs.define
class Member:
    process: subprocess.Popen[str]

    def ask(self, line: str) -> str:
        self.say(line)
        return self.answer()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextlib.contextmanager
def member(queue: KafkaQueue) -> Iterator[Member]:
    arguments = [queue.servers.bootstrap, queue.topic, queue.group, str(queue.session_s), str(queue.partitions)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.kafka_member", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Member(process)
    finally:
        process.kill()
        process.communicate()


def main(servers: str, topic: str, group: str, session_s: str, partitions: str) -> None:
    transport = KafkaTransport(
        KafkaQueue(KafkaServers(servers), int(partitions), topic, group, session_s=float(session_s))
    )
    receipts = []
    for line in sys.stdin:
        if line.strip() == "receive":
            (delivery,) = transport.receive(1, LIMIT_S)
            receipts.append(delivery.receipt)
            print(delivery.envelope.job_id if delivery.envelope else "?", flush=True)
        else:
            (answer,) = transport.acknowledge(receipts)
            print(type(answer).__name__, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
