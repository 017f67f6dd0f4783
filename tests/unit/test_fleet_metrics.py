"""Metrics are what is stored, and nothing else."""

from __future__ import annotations

import random
import socket
import urllib.request
from collections import Counter

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from harness.fleet.commands import Cancel, Fail, Recover, Retry, Stop
from harness.fleet.metrics import FleetCollector, serve_metrics
from harness.fleet.work_item import WorkItemState
from tests.unit.fleet_desk import WORKER, FleetDesk


@pytest.fixture
def desk() -> FleetDesk:
    return FleetDesk()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """By the name and the values of the labels."""
    families = text_string_to_metric_families(text)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def read(desk: FleetDesk) -> dict[tuple[str, ...], float]:
    registry = CollectorRegistry()
    registry.register(FleetCollector(desk.authority, desk.transport))
    return samples(generate_latest(registry).decode())


def test_an_empty_fleet_has_every_number(desk: FleetDesk) -> None:
    found = read(desk)
    assert {name: value for name, value in found.items() if value} == {
        ("agent_dispatch_up", "authority"): 1.0, ("agent_dispatch_up", "transport"): 1.0,
    }  # fmt: skip
    outcomes = {labels[0] for name, *labels in found if name == "agent_dispatch_turns_total"}
    assert outcomes == {"succeeded", "failed", "cancelled", "dead_letter", "ready"}
    assert {("agent_dispatch_queue_depth",), ("agent_dispatch_workers",), ("agent_dispatch_lease_failures_total",)} <= {
        *found
    }


def test_they_equal_what_is_counted_item_by_item(desk: FleetDesk) -> None:
    dice = random.Random(7)
    for number in range(60):
        name = f"j{number}"
        desk.submit(name, max_attempts=2)
        ends = dice.randrange(7)
        if ends == 0:
            desk.perform(Cancel(name, "t", "not wanted"))
        elif ends < 6:
            lease = desk.begin(name, ttl_s=10.0)
            if ends == 1:
                desk.perform(Fail(lease, "bad"))
            elif ends == 2:
                desk.perform(Retry(lease, "no luck"))
            elif ends == 3:
                desk.perform(Stop(lease))
            elif ends == 4:
                desk.now += 11.0
                desk.perform(Recover(name, "t"))
    desk.now += 100.0
    found = read(desk)
    items = list(desk.authority.items.values())
    outcomes = [each for item in items for each in desk.authority.outcomes(item.id)]
    left = Counter(each.ended.value for each in outcomes)
    assert {state: found["agent_dispatch_turns_total", state] for state in left} == left
    states = Counter(item.state for item in items)
    assert all(found["agent_dispatch_items", state.value] == states[state] for state in WorkItemState)
    assert found["agent_dispatch_lease_failures_total",] == sum(each.expired for each in outcomes) > 0
    assert found["agent_dispatch_leases_overdue",] == states[WorkItemState.RUNNING] > 0
    assert found["agent_dispatch_queue_depth",] == desk.transport.depth() == 60


def test_a_worker_counts_as_long_as_it_is_heard_of(desk: FleetDesk) -> None:
    desk.authority.beat(WORKER)
    desk.now += 90.0
    assert read(desk)["agent_dispatch_workers",] == 1.0
    desk.now += 1.0
    assert read(desk)["agent_dispatch_workers",] == 0.0
    desk.authority.beat(WORKER)
    desk.authority.leave(WORKER.token)
    assert read(desk)["agent_dispatch_workers",] == 0.0


def test_what_cant_be_read_is_left_out_and_never_0(desk: FleetDesk) -> None:
    desk.transport.is_away = True
    found = read(desk)
    assert ("agent_dispatch_queue_depth",) not in found
    assert found["agent_dispatch_up", "transport"] == 0.0
    assert found["agent_dispatch_up", "authority"] == 1.0
    assert found["agent_dispatch_workers",] == 0.0
    desk.authority.is_away = True
    assert read(desk) == {("agent_dispatch_up", "authority"): 0.0, ("agent_dispatch_up", "transport"): 0.0}


def test_they_are_served_until_the_end(desk: FleetDesk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            serve_metrics(desk.authority, desk.transport, port, "127.0.0.1")
    end = serve_metrics(desk.authority, desk.transport, port, "127.0.0.1")
    try:
        desk.submit("a")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            assert samples(answer.read().decode())["agent_dispatch_items", "ready"] == 1.0
            assert socket.gethostname() not in str(answer.headers)
    finally:
        end()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=20)
