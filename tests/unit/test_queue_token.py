"""Whether two processes use the same queue, told by tokens that say nothing else."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.settings import FleetSettings, queue_token
from harness.fleet.transport.memory import MemoryTransport
from harness.fleet.worker import Worker

STATE = {"STATE_DB_URI": "postgresql://ada:secret@db.example.org/fleet"}
POSTGRES = {"TASK_QUEUE_BACKEND": "postgres"}
KAFKA = {"TASK_QUEUE_BACKEND": "kafka"}


def token(environ: dict[str, str]) -> str:
    return queue_token(FleetSettings.of(STATE | environ))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (POSTGRES, POSTGRES | {"TASK_QUEUE_URI": "postgres://bob@db.example.org:5432/fleet?sslmode=require"}, True),
        (POSTGRES, POSTGRES | {"TASK_QUEUE_URI": "postgresql:///fleet?host=db.example.org&user=bob"}, True),
        (POSTGRES, POSTGRES | {"TASK_QUEUE_URI": "postgresql://db.example.org:5433/fleet"}, False),
        (POSTGRES, POSTGRES | {"TASK_QUEUE_URI": "postgresql://db.example.org/other"}, False),
        (POSTGRES, {}, False),
        (POSTGRES, KAFKA, False),
        (KAFKA, {}, False),
        (KAFKA | {"KAFKA_BOOTSTRAP_SERVERS": "a:1, b:2"}, KAFKA | {"KAFKA_BOOTSTRAP_SERVERS": "b:2,a:1"}, True),
        (KAFKA | {"KAFKA_BOOTSTRAP_SERVERS": "a:1"}, KAFKA | {"KAFKA_BOOTSTRAP_SERVERS": "b:2"}, False),
        ({"TASK_QUEUE_URI": "sqlite:////a/queue.db"}, {"TASK_QUEUE_URI": "sqlite:////a/b/../queue.db"}, True),
        ({"TASK_QUEUE_URI": "sqlite:////a/queue.db"}, {"TASK_QUEUE_URI": "sqlite:////b/queue.db"}, False),
    ],
)
def test_who_uses_the_same_queue_has_the_same_token(one: dict[str, str], other: dict[str, str], same: bool) -> None:
    assert (token(one) == token(other)) == same


def test_a_file_by_another_name_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    there, link = ({"TASK_QUEUE_URI": f"sqlite:///{tmp_path}/{name}/queue.db"} for name in ("there", "link"))
    assert token(there) == token(link)


@pytest.mark.parametrize("environ", [POSTGRES, KAFKA, {"TASK_QUEUE_URI": "sqlite:////home/ada/queue.db"}])
def test_it_says_nothing_of_where_it_is(environ: dict[str, str]) -> None:
    found = token(environ)
    assert len(found) == 32 and set(found) <= set("0123456789abcdef")


def test_a_worker_tells_which_queue_it_takes_from() -> None:
    settings, authority = FleetSettings.of(STATE | KAFKA), MemoryWorkItems()
    worker = Worker(authority, MemoryTransport(), {}, settings, 1)
    worker.start()
    try:
        with closing(authority.watch()) as watch:
            while not authority.workers(60.0):
                watch.wait(0.05)
        assert [each.queue for each in authority.workers(60.0)] == [queue_token(settings)]
    finally:
        worker.drain(0.0)
