"""What the fleet is like, for Prometheus. Needs the extra `metrics` (prometheus-client).

Every number is read when it is asked for, from the authority and the transport, so that all workers tell the same and
none of them has to remember anything (`Counts` has more on what takes long). What can't be read is left out, and
`agent_dispatch_up` says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from harness.fleet.counting import Counts
from harness.fleet.errors import FleetError
from harness.fleet.ports import KEPT_S, Registry, Tally, Transport
from harness.fleet.work_item import WorkItemState

Answer = TypeVar("Answer")

#: What an attempt, or an item that nobody held, may be left as: `ready` is one that will be tried again.
OUTCOMES = (
    WorkItemState.SUCCEEDED,
    WorkItemState.FAILED,
    WorkItemState.CANCELLED,
    WorkItemState.DEAD_LETTER,
    WorkItemState.READY,
)


class FleetCollector(Collector):
    """To be registered with a `CollectorRegistry`."""

    def __init__(self, registry: Registry, transport: Transport) -> None:
        self._registry, self._transport, self._counts = registry, transport, Counts(registry)
        self._mutex = threading.Lock()  # of several that ask at once, one goes to the databases at a time

    def collect(self) -> Iterator[Metric]:
        with self._mutex:
            tally, depth = _read(self._counts.tally), _read(self._transport.depth)
            alive = None if tally is None else _read(lambda: self._alive(tally.at))
        up = GaugeMetricFamily("agent_dispatch_up", "Whether it can be read", labels=["part"])
        up.add_metric(["authority"], float(tally is not None and alive is not None))
        up.add_metric(["transport"], float(depth is not None))
        yield up
        if depth is not None:
            yield GaugeMetricFamily("agent_dispatch_queue_depth", "Deliveries that are not acknowledged yet", depth)
        if alive is not None:
            yield GaugeMetricFamily("agent_dispatch_workers", "Workers that were heard of in time", alive)
        if tally is not None:
            yield from _tallied(tally)

    def describe(self) -> Iterator[Metric]:
        """Nothing: a registry that asks for names should not go to the databases for them."""
        return iter(())

    def _alive(self, now: float) -> int:
        return sum(each.is_alive(now) for each in self._registry.workers(KEPT_S))


def _tallied(tally: Tally) -> Iterator[Metric]:
    turns = CounterMetricFamily(
        "agent_dispatch_turns", "Attempts that ended, and items that did while nobody held them", labels=["outcome"]
    )
    for state in OUTCOMES:
        turns.add_metric([state.value], tally.outcomes.get(state, 0))
    yield turns
    yield CounterMetricFamily("agent_dispatch_lease_failures", "Leases that ran out", tally.expired)
    yield GaugeMetricFamily("agent_dispatch_leases_overdue", "Leases that ran out, not recovered yet", tally.overdue)
    items = GaugeMetricFamily("agent_dispatch_items", "Work items by state", labels=["state"])
    for state in WorkItemState:
        items.add_metric([state.value], tally.items.get(state, 0))
    yield items


def _read(call: Callable[[], Answer]) -> Answer | None:
    try:
        return call()
    except FleetError:
        return None


def serve_metrics(registry: Registry, transport: Transport, port: int, address: str) -> Callable[[], None]:
    """Serve them over HTTP, at any path. Returns what ends it. Raises `OSError` if the port is taken."""
    collected = CollectorRegistry(auto_describe=False)
    collected.register(FleetCollector(registry, transport))
    server, thread = start_http_server(port, address, collected)

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end
