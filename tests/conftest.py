"""Settings of all tests with generated cases: the same cases in every run, unless a run is to find new ones.

And the servers of those that need one: started by the first, ended after the last; of PostgreSQL one in each process,
of Kafka one in each run.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests import kafka_server, postgres_server
from tests.effort import EFFORT

# No deadline: how long a case takes says more of the machine's other work than of ours.
settings.register_profile("steady", derandomize=EFFORT == 1, deadline=None, print_blob=EFFORT > 1)
settings.load_profile("steady")


# A run that a shell started in the background ignores them, and so would every program that a test starts.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

KAFKA_MODULES = (
    "test_kafka_server",
    "test_kafka_transport",
    "test_kafka_outage",
    "test_kafka_security",
    "test_members",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: half of the time tests wait, for leases, servers and children."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without what Kafka runs on, its tests are not run, which the end of the run says; in CI they fail."""
    if os.environ.get("CI") or kafka_server.is_possible():
        return
    for item in items:
        if "[kafka" in item.name or Path(item.fspath).stem in KAFKA_MODULES:
            item.add_marker(pytest.mark.skip(reason=kafka_server.NEEDED))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [
        report for report in terminalreporter.getreports("skipped") if kafka_server.NEEDED in str(report.longrepr)
    ]
    if skipped:
        terminalreporter.section(f"NOT RUN: {len(skipped)} tests of Kafka", "!", red=True)
        terminalreporter.line(kafka_server.NEEDED)


@pytest.fixture
def kafka_broker() -> str:
    """The address of the broker that the tests of a run share. What they make there goes by names of their own."""
    return kafka_server.shared()


@pytest.fixture
def postgres_database() -> str:
    """The connection string of an empty database, made for this test."""
    return postgres_server.databases().new()


def pytest_sessionfinish() -> None:
    postgres_server.end_shared()
    kafka_server.end_shared()
