"""Looking at work items and changing their course from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.fleet.commands import Fail, Retry, Stop, Submit
from harness.fleet.errors import FleetError, InvalidTurnError, UnknownItemError, WrongStateError
from harness.fleet.jobs import BY_HAND, graph_jobs
from harness.fleet.opening import open_authority
from harness.fleet.ports import Buried
from harness.fleet.settings import FleetSettings
from harness.fleet.work_item import Submission, WorkItemState
from tests.unit.fleet_desk import WORKER, FleetDesk


@pytest.fixture
def desk() -> FleetDesk:
    return FleetDesk()


def test_the_status_of_a_job_is_all_there_is_to_say_of_it(desk: FleetDesk) -> None:
    desk.submit("a", deadline=5000.0, priority=1)
    desk.now = 1010.0
    desk.begin("a")
    found = graph_jobs("status", "a", authority=desk.authority)
    assert found == {
        "job_id": "a", "tenant": "t", "session_id": "s-a", "kind": "k", "priority": 1, "deadline": 5000.0,
        "depends_on": [], "state": "running", "cancel_requested": False, "cause": "", "result": "", "attempt": 1,
        "failures": 0, "max_attempts": 1, "epoch": 1, "worker": WORKER.token, "lease_expires_at": 1070.0,
        "not_before": None, "submitted_at": 1000.0, "started_at": 1010.0, "changed_at": 1010.0, "outcomes": [],
    }  # fmt: skip


def test_how_attempts_ended_is_told_in_order(desk: FleetDesk) -> None:
    desk.submit("a", max_attempts=3)
    desk.perform(Retry(desk.begin("a"), "no luck"))
    desk.now += 10.0
    desk.begin("a", ttl_s=5.0)
    desk.now += 10.0
    desk.finish("a", "done")  # the claim puts the dead attempt in order
    outcomes = graph_jobs("status", "a", authority=desk.authority)["outcomes"]
    assert [(each["attempt"], each["left"], each["lease_expired"], each["text"]) for each in outcomes] == [
        (1, "ready", False, "no luck"),
        (2, "ready", True, "its worker was lost in attempt 2"),
        (3, "succeeded", False, "done"),
    ]
    assert {each["worker"] for each in outcomes} == {WORKER.token}


def test_what_waits_is_cancelled_at_once_and_what_runs_is_asked_to_stop(desk: FleetDesk) -> None:
    desk.submit("a")
    desk.submit("b")
    lease = desk.begin("b")
    waiting = graph_jobs("cancel", "a", authority=desk.authority)
    assert (waiting["state"], waiting["cause"], waiting["cancel_requested"]) == ("cancelled", BY_HAND, False)
    running = graph_jobs("cancel", "b", reason=" not wanted ", authority=desk.authority)
    assert (running["state"], running["cause"], running["cancel_requested"]) == ("running", "not wanted", True)
    desk.perform(Stop(lease))
    assert graph_jobs("cancel", "b", authority=desk.authority)["state"] == "cancelled"  # again, no change


def test_what_has_ended_is_not_cancelled(desk: FleetDesk) -> None:
    desk.submit("a")
    desk.finish("a")
    with pytest.raises(WrongStateError, match=r"cannot cancel work item 'a': it has succeeded$"):
        graph_jobs("cancel", "a", authority=desk.authority)


def test_a_dead_letter_is_tried_again_and_nothing_else(desk: FleetDesk) -> None:
    desk.submit("a")
    desk.submit("b")
    desk.perform(Retry(desk.begin("a"), "no luck"))
    assert graph_jobs("status", "a", authority=desk.authority)["state"] == "dead_letter"
    again = graph_jobs("requeue", "a", authority=desk.authority)
    assert (again["state"], again["failures"], again["attempt"]) == ("ready", 0, 1)
    (handed,) = (item for item in desk.authority.undelivered(10, 0.0) if item.id == "a")
    assert handed.state is WorkItemState.READY  # a pump delivers it
    desk.perform(Fail(desk.begin("b"), "for good"))
    with pytest.raises(WrongStateError, match="it has failed; only a dead letter is tried again"):
        graph_jobs("requeue", "b", authority=desk.authority)


def test_every_state_is_told_in_words_of_its_own() -> None:
    told = {state: str(WrongStateError("end", "a", state.value)).partition(": ")[2] for state in WorkItemState}
    assert len(set(told.values())) == len(WorkItemState)
    assert not [words for words in told.values() if "_" in words]
    assert [state.value for state, words in told.items() if words == f"it is {state.value}"] == ["running"]


@pytest.mark.parametrize("action", ["status", "cancel", "requeue"])
def test_another_tenants_job_does_not_exist(desk: FleetDesk, action: str) -> None:
    desk.submit("a", tenant="t")
    with pytest.raises(UnknownItemError):
        graph_jobs(action, "a", tenant="other", authority=desk.authority)
    with pytest.raises(UnknownItemError):
        graph_jobs(action, "nothing", authority=desk.authority)
    assert desk.authority.find(["a"])["a"].state is WorkItemState.READY


def test_a_list_is_read_page_by_page(desk: FleetDesk) -> None:
    for number in range(7):
        desk.submit(f"j{number}", tenant="t" if number % 2 else "u")
    seen, after = [], ""
    for _ in range(3):
        page = graph_jobs("list", after=after, limit=3, authority=desk.authority)
        seen += [job["job_id"] for job in page["jobs"]]
        after = page["next"] or ""
    assert (seen, after) == ([f"j{number}" for number in range(7)], "")
    with pytest.raises(UnknownItemError, match="'nosuch'"):  # not all anew
        graph_jobs("list", after="nosuch", authority=desk.authority)
    theirs = graph_jobs("list", tenant="u", states=["ready"], limit=4, authority=desk.authority)
    assert ([job["job_id"] for job in theirs["jobs"]], theirs["next"]) == (["j0", "j2", "j4", "j6"], None)
    assert graph_jobs("list", states=["running"], authority=desk.authority) == {"jobs": [], "next": None}


def test_the_dead_are_letters_and_deliveries_of_nobody(desk: FleetDesk) -> None:
    for name in ("a", "b"):
        desk.submit(name, tenant=name)
        desk.perform(Retry(desk.begin(name, name), "no luck"))
    desk.submit("c")
    desk.perform(Fail(desk.begin("c"), "bad"))
    desk.authority.bury([Buried("d1", "not JSON"), Buried("d2", "no such job", "x", "a"), Buried("d1", "not JSON")])
    every = graph_jobs("dead", authority=desk.authority)
    assert [job["job_id"] for job in every["dead_letters"]] == ["a", "b"]
    assert [(each["digest"], each["count"], each["job_id"]) for each in every["buried"]] == [
        ("d1", 2, None), ("d2", 1, "x"),
    ]  # fmt: skip
    own = graph_jobs("dead", tenant="a", authority=desk.authority)
    assert [job["job_id"] for job in own["dead_letters"]] == ["a"]
    assert [each["digest"] for each in own["buried"]] == ["d2"]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"action": "drop"}, "action"),
        ({"action": "status", "job_id": ""}, "job_id"),
        ({"action": "status", "job_id": "x" * 513}, "job_id"),
        ({"action": "status", "job_id": "a\x00"}, "job_id"),
        ({"action": "cancel", "job_id": "a", "reason": "x" * 2001}, "reason"),
        ({"action": "list", "limit": 0}, "limit"),
        ({"action": "list", "limit": 1001}, "limit"),
        ({"action": "list", "states": ["merry"]}, "state"),
        ({"action": "list", "tenant": ""}, "tenant"),
        ({"action": "list", "after": "\x1b"}, "after"),
        ({"action": "dead", "limit": 10**9}, "limit"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(desk: FleetDesk, words: dict[str, object], field: str) -> None:
    desk.submit("a")
    with pytest.raises(InvalidTurnError) as refused:
        graph_jobs(authority=desk.authority, **words)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_without_an_authority_it_is_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DB_URI", f"sqlite:///{tmp_path / 'state.db'}")
    authority = open_authority(FleetSettings.of({"STATE_DB_URI": f"sqlite:///{tmp_path / 'state.db'}"}))
    authority.perform([Submit(Submission("a", "t", "s", "k"))])
    authority.close()
    assert graph_jobs("cancel", "a")["state"] == "cancelled"
    assert graph_jobs(job_id="a")["state"] == "cancelled"
    monkeypatch.setenv("STATE_DB_URI", "mysql://nowhere")
    with pytest.raises(FleetError, match="STATE_DB_URI"):
        graph_jobs("list")
