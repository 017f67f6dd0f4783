"""What the page on the fleet says is so: its examples run, its tables have what the code has."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from harness.fleet import executors
from harness.fleet.doctor import findings
from harness.fleet.jobs import graph_jobs
from harness.fleet.lease import WorkItemLeaseGuard
from harness.fleet.metrics import FleetCollector
from harness.fleet.opening import Fleet, open_fleet
from harness.fleet.settings import FleetSettings
from tests.e2e.desk import Desk, end, until
from tests.unit.asgi import Client

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fleet.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SUBMIT, TURNS, JOBS, APP = (text for kind, text in BLOCKS if kind == "python")
(UNIT,) = (text for kind, text in BLOCKS if kind == "ini")
(CONTAINER,) = (text for kind, text in BLOCKS if kind == "dockerfile")


@pytest.fixture
def environ(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    settings = {name: f"sqlite:///{desk.folder / name}" for name in ("STATE_DB_URI", "TASK_QUEUE_URI")}
    desk.env |= settings
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture
def fleet(environ: dict[str, str]) -> Iterator[Fleet]:
    with closing(open_fleet(FleetSettings.of(environ))) as fleet:
        yield fleet


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(text: str, head: str) -> list[str]:
    """Of the rows of the table that begins with that row."""
    rows = text.split(f"{head}\n")[1].split("\n\n")[0].splitlines()[1:]
    return [row.split("|")[1].strip().strip("`") for row in rows]


def test_a_turn_is_submitted_run_and_looked_at(desk: Desk, environ: dict[str, str]) -> None:
    (desk.folder / "turns.py").write_text(TURNS)
    desk.env["PYTHONPATH"] = str(desk.folder)
    exec(compile(SUBMIT, "docs/fleet.md", "exec"), {})
    (command,) = re.findall(r"^    agent-dispatch-worker (--workers 4 .*)$", PAGE, re.MULTILINE)
    worker = desk.start("worker", *command.split())
    until(lambda: graph_jobs("status", "reindex-7")["state"] == "succeeded", worker)
    assert graph_jobs("status", "reindex-7")["result"] == "1 files"
    status, out, err = end(worker, signal.SIGTERM)
    assert (status, out) == (0, "src/\n"), err
    exec(compile(SUBMIT.replace("reindex-7", "again"), "docs/fleet.md", "exec"), {})
    exec(compile(JOBS.replace("reindex-7", "again"), "docs/fleet.md", "exec"), {})
    assert graph_jobs("status", "again")["cause"] == "not wanted any more"


def test_the_app_is_made_as_it_says(fleet: Fleet) -> None:
    made: dict[str, Any] = {"fleet": fleet}
    exec(compile(APP, "docs/fleet.md", "exec"), made)
    client = Client(made["app"])
    token = {"authorization": "Bearer of your choice"}
    assert client.get("/api/fleet/topology").status_code == 401
    assert client.get("/api/fleet/topology", headers=token).status_code == 200
    assert client.get("/api/graph/jobs?state=ready,running&limit=5", headers=token).json() == {"jobs": [], "next": None}


def test_the_settings_are_those_that_are_read() -> None:
    table = first_cells(section("Settings"), "| variable | default | what it says |")
    names = ("settings.py", "clone.py", "kafka_servers.py")
    sources = "".join((ROOT / "harness" / "fleet" / name).read_text() for name in names)
    assert set(table) == set(re.findall(r"\b(?:AGENT|TASK|KAFKA|STATE)_[A-Z_]+\b", sources))
    assert len(table) == len(set(table))
    settings = FleetSettings.of({})
    defaults = dict(re.findall(r"^\| `([A-Z_]+)` \| `?([^|`]+?)`? \|", section("Settings"), re.MULTILINE))
    for name, value in {
        "TASK_QUEUE_BACKEND": settings.backend,
        "KAFKA_BOOTSTRAP_SERVERS": settings.kafka_servers.bootstrap,
        "AGENT_TURNS_PARTITIONS": settings.partitions,
        "AGENT_DISPATCH_MAX_DEPTH": settings.max_depth,
        "AGENT_DISPATCH_CLAIM_TTL_S": f"{settings.claim_ttl_s:g}",
        "AGENT_DISPATCH_RENEW_INTERVAL_S": f"{settings.renew_interval_s:g}",
    }.items():
        assert defaults[name] == str(value)


def test_the_metrics_are_those_that_are_served(fleet: Fleet) -> None:
    table = first_cells(section("Looking on"), "| metric | |")
    served = {
        sample.name + "".join(f"{{{label}}}" for label in sample.labels)
        for metric in FleetCollector(fleet.authority, fleet.transport).collect()
        for sample in metric.samples
    }
    assert sorted(table) == sorted(served)
    CollectorRegistry().register(FleetCollector(fleet.authority, fleet.transport))  # as it says one may


def test_the_findings_are_those_of_the_doctor(environ: dict[str, str]) -> None:
    table = first_cells(section("The doctor"), "| finding | what it looks at | `warn` | `fail` |")
    with closing(open_fleet(FleetSettings.of(environ))) as fleet:  # there is more to find where there is something
        assert (fleet.authority.graves(1), fleet.transport.depth()) == ((), 0)
    assert sorted(table) == sorted(each.name for each in findings(environ))


def test_what_an_executor_may_use_is_there() -> None:
    text = section("Workers")
    for name in re.findall(r"`guard\.(\w+)", text):
        assert hasattr(WorkItemLeaseGuard, name), name
    raised = re.findall(r"`(\w+Error)\(", text)
    assert len(raised) == 3
    assert all(issubclass(getattr(executors, name), Exception) for name in raised)
    assert executors.ENTRY_POINTS in text


@pytest.mark.parametrize("text", [UNIT, CONTAINER])
def test_what_is_deployed_has_options_that_there_are(desk: Desk, text: str) -> None:
    known = set(re.findall(r"--[a-z-]+", desk.ask("worker", "--help").stdout))
    used = set(re.findall(r"--(?:workers|executor|drain|metrics)[a-z-]*", text))
    assert {"--workers", "--executor", "--drain-s"} <= used <= known


def test_a_service_is_not_killed_while_it_drains() -> None:
    drain_s, stop_s = (int(found) for found in re.findall(r"(?:--drain-s |TimeoutStopSec=)(\d+)", UNIT))
    assert stop_s > drain_s + 10
