"""`jobs` and `doctor`, as they are typed."""

from __future__ import annotations

import json
import signal

import pytest

from tests.e2e.desk import Desk, end, until
from tests.e2e.fleet_yard import Yard


@pytest.fixture
def yard(desk: Desk) -> Yard:
    return Yard(desk)


def test_jobs_are_seen_cancelled_and_tried_again(yard: Yard) -> None:
    desk = yard.desk
    yard.submit("a", "b")
    yard.submit("c", kind="careless", max_attempts=1)
    assert [job["job_id"] for job in desk.document("jobs", "list")["jobs"]] == ["a", "b", "c"]
    assert "a  ready" in desk.ask("jobs", "status", "a").stdout
    assert desk.document("jobs", "cancel", "b", "--reason", "not wanted")["cause"] == "not wanted"
    worker = yard.work()
    until(lambda: yard.state("c") == "dead_letter", worker)
    end(worker, signal.SIGTERM)
    assert [job["job_id"] for job in desk.document("jobs", "dead")["dead_letters"]] == ["c"]
    assert "FileNotFoundError" in desk.ask("jobs", "dead").stdout
    assert desk.document("jobs", "requeue", "c")["state"] == "ready"
    found = desk.document("jobs", "list", "--state", "succeeded", "--state", "cancelled", "--limit", "1")
    assert ([job["job_id"] for job in found["jobs"]], found["next"]) == (["a"], "a")
    rest = desk.document("jobs", "list", "--after", "a", "--tenant", "t", "--session", "s-b", "--kind", "echo")
    assert [job["job_id"] for job in rest["jobs"]] == ["b"]
    assert desk.ask("jobs", "list").stdout.splitlines()[0] == "3 jobs"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "nobody"), "there is no work item 'nobody'; `slice-dispatch jobs list` shows"),
        (("status", "a", "--tenant", "other"), "no work item 'a'"),
        (("cancel", "nobody"), "no work item"),
        (("requeue", "a"), "cannot requeue work item 'a': it waits for a worker; only a dead letter is tried"),
        (("list", "--state", "merry"), "state: is none of"),
        (("list", "--limit", "0"), "--limit"),
        (("list", "--tenant", ""), "tenant: must not be empty"),
    ],
)
def test_what_cant_be_done_is_said_in_a_line(yard: Yard, words: tuple[str, ...], said: str) -> None:
    yard.submit("a")
    done = yard.desk.ask("jobs", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_a_doctor_sees_leases_that_nobody_recovers_and_a_worker_mends_it(yard: Yard) -> None:
    desk = yard.desk
    assert desk.ask("doctor").returncode == 1  # no worker, and nothing to do
    desk.env["AGENT_DISPATCH_CLAIM_TTL_S"] = "3"
    worker = yard.busy("a", "gate")
    del desk.env["AGENT_DISPATCH_CLAIM_TTL_S"]
    assert desk.ask("doctor").returncode == 0
    end(worker, signal.SIGKILL)
    yard.execute("UPDATE workers SET seen_at = seen_at - 1000")
    yard.execute("UPDATE items SET expires_at = expires_at - 1000 WHERE state = 'running'")
    done = desk.ask("doctor", "--json")
    assert done.returncode == 2
    found = json.loads(done.stdout)
    assert found["standing"] == "fail"
    failed = {each["name"]: each for each in found["checks"] if each["standing"] == "fail"}
    assert set(failed) == {"dispatch_lease_recovery"}
    assert "agent-dispatch-worker" in failed["dispatch_lease_recovery"]["mend"]
    again = yard.work()
    until(lambda: yard.item("a").attempt == 2, again)
    yard.open_gate()
    until(lambda: yard.state("a") == "succeeded", again)
    recovered = {each["name"]: each["standing"] for each in json.loads(desk.ask("doctor", "--json").stdout)["checks"]}
    assert recovered["dispatch_lease_recovery"] == "ok"
    outcomes = desk.document("jobs", "status", "a")["outcomes"]
    assert [(each["left"], each["lease_expired"]) for each in outcomes] == [("ready", True), ("succeeded", False)]


def test_a_doctor_sees_turns_that_nobody_can_run(yard: Yard) -> None:
    yard.submit("a", kind="unheard-of")
    done = yard.desk.ask("doctor")
    assert done.returncode == 2
    assert "1 of kind 'unheard-of'" in done.stdout


def test_a_doctor_is_not_stopped_by_what_is_wrong(yard: Yard) -> None:
    for name, value in (("STATE_DB_URI", "postgresql://ada@127.0.0.1:1/db"), ("AGENT_DISPATCH_MAX_DEPTH", "none")):
        done = yard.desk.run("doctor", "--json", **{name: value})
        assert (done.returncode, done.stderr) == (2, "")
        assert name in done.stdout
        assert "ada" not in done.stdout
