"""What a doctor makes of what it finds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import attrs
import pytest

from harness.fleet.doctor import Finding, Standing, depth_judged, findings, judged, worst
from harness.fleet.opening import open_authority, open_fleet
from harness.fleet.ports import Tally, WorkerPresence
from harness.fleet.settings import FleetSettings
from harness.fleet.work_item import WorkItemState

OK, WARN, FAIL = Standing
WELL = Tally(1000.0, 1, {WorkItemState.SUCCEEDED: 7}, {WorkItemState.SUCCEEDED: 7})
ALIVE = WorkerPresence("a", ("k", "l"), 4, 3, 30.0, 900.0, 990.0)
SILENT = WorkerPresence("b", ("m",), 4, 4, 30.0, 100.0, 909.0)
OVERDUE = attrs.evolve(WELL, overdue=2, overdue_s=10.5)


def named(found: list[Finding]) -> dict[str, Finding]:
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


@pytest.mark.parametrize(
    ("name", "tally", "workers", "ahead_s", "standing", "words"),
    [
        ("authority", WELL, [ALIVE], 0.0, OK, "holds 7 work items"),
        ("schema", WELL, [ALIVE], 0.0, OK, "version 1"),
        ("clock", WELL, [ALIVE], 2.0, OK, "within 2 s"),
        ("clock", WELL, [ALIVE], 3601.0, WARN, "3,601 s ahead of"),
        ("clock", WELL, [ALIVE], -2.5, WARN, "2 s behind"),
        ("dispatch_lease_recovery", WELL, [], 0.0, OK, "no lease"),
        ("dispatch_lease_recovery", attrs.evolve(OVERDUE, overdue_s=10.0), [], 0.0, OK, "no lease"),
        ("dispatch_lease_recovery", OVERDUE, [ALIVE], 0.0, FAIL, "2 leases ran out and nobody put that in order"),
        ("dispatch_lease_recovery", OVERDUE, [SILENT], 0.0, FAIL, "no worker is alive"),
        ("workers", WELL, [ALIVE], 0.0, OK, "1 alive, 3 of 4 slots busy"),
        ("workers", WELL, [ALIVE, SILENT], 0.0, WARN, "1 fell silent"),
        ("workers", WELL, [], 0.0, WARN, "none is alive"),
        ("workers", attrs.evolve(WELL, due={"k": 2}), [], 0.0, FAIL, "2 of kind 'k'"),
        ("workers", attrs.evolve(WELL, due={"k": 2}), [SILENT], 0.0, FAIL, "none is alive; 1 fell silent"),
        ("workers", attrs.evolve(WELL, due={"k": 2}), [ALIVE], 0.0, OK, "1 alive"),
        (
            "workers",
            attrs.evolve(WELL, due={"k": 2, "m": 1}),
            [ALIVE],
            0.0,
            FAIL,
            "no worker has an executor for: 1 of",
        ),
        ("queue", WELL, [], 0.0, OK, "from this one"),
        ("queue", WELL, [ALIVE], 0.0, OK, "from this one"),
        ("queue", WELL, [attrs.evolve(ALIVE, queue="here")], 0.0, OK, "from this one"),
        ("queue", WELL, [attrs.evolve(ALIVE, queue="there")], 0.0, WARN, "from another queue than"),
        ("queue", WELL, [attrs.evolve(SILENT, queue="there")], 0.0, OK, "from this one"),
        (
            "queue",
            WELL,
            [attrs.evolve(ALIVE, queue="here"), attrs.evolve(ALIVE, token="c", queue="there")],
            0.0,
            WARN,
            "from 2 different queues, 1 of them not from this one",
        ),
        ("dead_letters", WELL, [ALIVE], 0.0, OK, "none"),
        ("dead_letters", attrs.evolve(WELL, items={WorkItemState.DEAD_LETTER: 1}), [], 0.0, WARN, "1 work item failed"),
    ],
)
def test_what_the_authority_says(
    name: str, tally: Tally, workers: list[WorkerPresence], ahead_s: float, standing: Standing, words: str
) -> None:
    found = named(list(judged(tally, workers, ahead_s, "here")))[name]
    assert (found.standing, words in found.says) == (standing, True), found
    assert bool(found.mend) == (standing is not OK)


@pytest.mark.parametrize(("depth", "standing"), [(0, OK), (79, OK), (80, WARN), (99, WARN), (100, WARN), (2**40, WARN)])
def test_how_full_the_queue_is(depth: int, standing: Standing) -> None:
    found = depth_judged(depth, 100)
    assert (found.standing, bool(found.mend)) == (standing, standing is not OK)
    assert ("refused" in found.says) == (standing is not OK)


def test_the_worst_counts() -> None:
    assert worst([]) is OK
    assert worst([Finding("a", FAIL, ""), Finding("b", OK, ""), Finding("c", WARN, "")]) is FAIL
    assert worst([Finding("b", OK, ""), Finding("c", WARN, "")]) is WARN


def environ(folder: Path, **more: str) -> dict[str, str]:
    return {
        "STATE_DB_URI": f"sqlite:///{folder / 'state.db'}",
        "TASK_QUEUE_URI": f"sqlite:///{folder / 'queue.db'}",
    } | more


def made(folder: Path) -> None:
    """The files of a fleet, as whoever uses it first makes them."""
    with closing(open_fleet(FleetSettings.of(environ(folder)))) as fleet:
        fleet.authority.tally()
        fleet.transport.depth()


def test_a_fleet_that_is_well(tmp_path: Path) -> None:
    authority = open_authority(FleetSettings.of(environ(tmp_path)))
    authority.beat(WorkerPresence("a", ("k",), 1, 0, 30.0))
    authority.close()
    made(tmp_path)
    found = list(findings(environ(tmp_path)))
    assert [each.name for each in found] == [
        "configuration", "leases", "authority", "schema", "clock", "dispatch_lease_recovery", "workers",
        "queue", "dead_letters", "transport", "depth",
    ]  # fmt: skip
    assert {each.standing for each in found} == {OK}, found


def test_who_only_looks_makes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "made"
    found = named(list(findings(environ(folder))))
    assert {name: each.standing for name, each in found.items()} == {
        "configuration": OK, "leases": OK, "authority": WARN, "transport": WARN,
    }  # fmt: skip
    assert found["authority"].says.startswith("STATE_DB_URI: its file is not there yet")
    assert found["transport"].says.startswith("TASK_QUEUE_URI: its file is not there yet")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "state.db").touch()
    assert named(list(findings(environ(tmp_path))))["authority"].standing is WARN
    assert (tmp_path / "state.db").stat().st_size == 0


def test_a_clock_that_is_an_hour_off(tmp_path: Path) -> None:
    made(tmp_path)
    found = named(list(findings(environ(tmp_path), lambda: 0.0)))
    assert found["clock"].standing is WARN
    assert "behind" in found["clock"].says


def test_all_that_is_wrong_with_the_settings_is_told_and_nothing_else_is_tried(tmp_path: Path) -> None:
    wrong = {"TASK_QUEUE_BACKEND": "redis", "AGENT_DISPATCH_CLAIM_TTL_S": "301", "AGENT_DISPATCH_MAX_DEPTH": "x"}
    wrong["STATE_DB_URI"] = "mysql://x"
    found = list(findings(environ(tmp_path, **wrong)))
    assert {each.says.partition(":")[0] for each in found} == set(wrong)
    assert {(each.name, each.standing) for each in found} == {("configuration", FAIL)}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "name", "standing"),
    [
        ({"AGENT_DISPATCH_CLAIM_TTL_S": "14"}, "leases", WARN),
        ({"STATE_DB_URI": "sqlite:////proc/nowhere/state.db"}, "authority", FAIL),
        ({"TASK_QUEUE_URI": "sqlite:////proc/nowhere/queue.db"}, "transport", FAIL),
        ({"STATE_DB_URI": "postgresql://ada:secret@127.0.0.1:1/db"}, "authority", FAIL),
    ],
)
def test_each_part_is_looked_at_by_itself(tmp_path: Path, more: dict[str, str], name: str, standing: Standing) -> None:
    made(tmp_path)
    found = named(list(findings(environ(tmp_path, **more))))
    assert found[name].standing is standing, found
    assert found[name].mend
    others = {each.standing for each in found.values() if each.name not in (name, "workers")}
    assert others == {OK}
    assert "nowhere" not in str(found)
    assert not any(word in str(found) for word in ("ada", "secret", "127.0.0.1"))


@pytest.mark.parametrize(
    ("more", "says", "mend"),
    [
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT"}, "the network can read", "KAFKA_SECURITY_PROTOCOL=SASL_SSL"),
        (
            {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": "none"},
            "passes for a broker",
            "unset KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM",
        ),
    ],
)
def test_what_lets_others_into_kafka_is_told(more: dict[str, str], says: str, mend: str) -> None:
    user = {"KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_USERNAME": "ada", "KAFKA_SASL_PASSWORD": "secret"}
    kafka = {"TASK_QUEUE_BACKEND": "kafka", "STATE_DB_URI": "postgresql://127.0.0.1:1/db"}
    first = next(findings(kafka | user | more))
    assert (first.name, first.standing) == ("configuration", WARN)
    assert says in first.says and mend in first.mend
    assert "ada" not in first.says and "secret" not in first.says


def test_turns_in_kafka_need_an_authority_that_others_can_reach(tmp_path: Path) -> None:
    settings = environ(tmp_path, TASK_QUEUE_BACKEND="kafka", KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    first = next(findings(settings))
    assert (first.name, first.standing) == ("configuration", WARN)
    assert "STATE_DB_URI" in first.says
