"""A graph's sessions on a fleet: what a worker does with them, and what comes to main."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fleet import host
from harness.fleet.agent_turn import AgentReport
from harness.fleet.commands import Claim, Retry
from harness.fleet.errors import InvalidTurnError
from harness.fleet.executors import TurnFailedError
from harness.fleet.ports import Query
from harness.fleet.remote import Remote
from harness.fleet.work_item import WorkItem, WorkItemState
from harness.local.repository import Repository
from harness.session import Assignment, SessionPhase
from tests.integration.fleet_shop import FleetShop, fleet_shop
from tests.integration.workshop import GRAPH, assignment, until


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[FleetShop]:
    with fleet_shop(tmp_path) as made:
        yield made


# -- work --------------------------------------------------------------------------------------------------------------


def test_what_a_worker_did_is_merged_here_once(shop: FleetShop) -> None:
    shop.worker()
    states = shop.run(
        assignment("one", "echo 1 >one.txt"),
        assignment("two", "echo 2 >two.txt && git add two.txt && git commit -qm two && echo 3 >three.txt"),
    )
    assert [state.phase for state in states] == [SessionPhase.MERGED] * 2
    assert sorted(shop.repo.merges()) == ["one", "two"]
    assert set(shop.repo.files()) == {"a.txt", "one.txt", "two.txt", "three.txt"}
    shop.repo.check_sound()
    until(lambda: shop.branches() == [])
    until(lambda: shop.repo.refs("refs/dispatch") == [])
    left = shop.clone().git("for-each-ref", "--format=%(refname)").line
    assert left == ""


def test_one_that_changes_nothing_is_merged_without_a_commit(shop: FleetShop) -> None:
    shop.worker()
    (state,) = shop.run(assignment("idle", "true"))
    assert (state.phase, state.detail, state.turns) == (SessionPhase.MERGED, "no change", 1)
    assert shop.repo.merges() == []
    assert shop.branches() == []


def test_an_attempt_begins_with_what_others_have_merged(shop: FleetShop) -> None:
    shop.worker()
    shop.run(assignment("one", "echo 1 >one.txt"))
    (state,) = shop.run(assignment("two", "cp one.txt two.txt"))
    assert state.phase is SessionPhase.MERGED
    assert shop.repo.show("main", "two.txt") == "1"


def test_two_that_conflict_are_told_so_by_the_merge(shop: FleetShop) -> None:
    shop.worker()
    states = shop.run(
        assignment("one", shop.gate("one", "two") + "echo 1 >a.txt"),
        assignment("two", shop.gate("two", "one") + "echo 2 >a.txt"),
    )
    assert sorted(state.phase.value for state in states) == ["closed", "merged"]
    (closed,) = [state for state in states if state.phase is SessionPhase.CLOSED]
    assert closed.detail == "merge conflict in a.txt"
    slice_id = closed.assignment_id.partition("@")[0]
    assert shop.repo.refs("refs/dispatch/keep") == [f"refs/dispatch/keep/{slice_id}/1"]
    until(lambda: shop.branches() == [])


def test_the_agent_gets_its_task_and_its_recipe_and_verify_runs_here_alone(shop: FleetShop) -> None:
    shop.worker()
    script = 'printf "%s %s %s" "$COLOR" "$DISPATCH_SLICE" "$DISPATCH_ATTEMPT" >told && cat "$DISPATCH_TASK" >>told'
    verify = ("sh", "-c", f'test -e told && printf "%s\\n" "$PWD" >>{shop.marks}/verified && test -e {shop.marks}/good')

    def attempt(number: int) -> Assignment:
        env = (("COLOR", "red"),)
        return assignment("one", script, attempt=number, task="Be quick.", env=env, verify=verify)

    (state,) = shop.run(attempt(1))
    assert (state.phase, state.detail) == (SessionPhase.CLOSED, "verify failed: exit 1")
    assert shop.repo.files() == ["a.txt"]
    shop.open("good")
    (state,) = shop.run(attempt(2))
    assert state.phase is SessionPhase.MERGED
    text = shop.repo.show("main", "told")
    assert text.startswith("red one 2Do one\n\nBe quick.")
    places = (shop.marks / "verified").read_text().splitlines()
    assert len(places) == 2
    assert all(str(shop.repo.root) in place for place in places)


@pytest.mark.parametrize(
    ("script", "detail", "kept"),
    [
        ("echo 1 >one.txt; echo boom; exit 1", "exit 1: boom", True),
        ("echo no; exit 3", "exit 3: no", False),
        ("kill -9 $$", "ended by SIGKILL", False),
    ],
)
def test_what_failed_there_is_closed_here_with_its_words_and_its_work(
    shop: FleetShop, script: str, detail: str, kept: bool
) -> None:
    shop.worker()
    (state,) = shop.run(assignment("one", script))
    assert (state.phase, state.detail) == (SessionPhase.CLOSED, detail)
    assert state.checkpoint.startswith(f"The previous attempt ended: {detail}.")
    assert shop.repo.refs("refs/dispatch/keep") == (["refs/dispatch/keep/one/1"] if kept else [])
    (state,) = shop.run(assignment("one", "test ! -e one.txt && echo 2 >two.txt", attempt=2))
    assert state.phase is SessionPhase.MERGED, "the next one begins from main"
    until(lambda: shop.branches() == [])


def test_one_that_could_not_go_on_is_gone_on_with_elsewhere(shop: FleetShop) -> None:
    first = shop.worker(clone="a.git")
    (state,) = shop.run(assignment("one", 'echo 1 >one.txt; echo "nearly" >"$DISPATCH_CHECKPOINT"; exit 75'))
    assert state.phase is SessionPhase.CLOSED
    assert "It left this note:\nnearly" in state.checkpoint
    first.drain(5.0)
    shop.worker(clone="b.git")
    (state,) = shop.run(assignment("one", "test -e one.txt && echo 2 >>one.txt", attempt=2, task=state.checkpoint))
    assert state.phase is SessionPhase.MERGED
    assert shop.repo.show("main", "one.txt") == "1\n2"
    until(lambda: shop.repo.refs("refs/dispatch") == [])


def test_kept_work_that_conflicts_with_main_stays_kept_and_the_agent_is_told(shop: FleetShop) -> None:
    shop.worker()
    (state,) = shop.run(assignment("one", "echo mine >a.txt; exit 75"))
    shop.repo.commit("a.txt", "theirs\n")
    script = 'cat "$DISPATCH_TASK" >told; git show $(grep -o "refs/dispatch/fleet/[^ ]*" "$DISPATCH_TASK"):a.txt >>told'
    (state,) = shop.run(assignment("one", script, attempt=2))
    assert state.phase is SessionPhase.MERGED
    told = shop.repo.show("main", "told")
    assert "Earlier work and main conflict, so this begins from main; see: git diff" in told
    assert told.endswith("\nmine"), "the work is there to be looked at"
    assert shop.repo.show("main", "a.txt") == "theirs"
    assert shop.repo.show("refs/dispatch/keep/one/1", "a.txt") == "mine"


def test_what_is_reported_names_no_place_of_the_worker(shop: FleetShop) -> None:
    shop.worker()
    (state,) = shop.run(assignment("one", 'pwd >"$DISPATCH_CHECKPOINT"; pwd; exit 75'))
    assert state.phase is SessionPhase.CLOSED
    item = shop.item("one@1")
    assert "exit 75" in item.result
    assert str(shop.folder) not in item.result + item.checkpoint + item.cause
    (state,) = shop.run(assignment("two", f"{shop.folder}/no-such-agent", "x"))
    item = shop.item("two@1")
    assert (state.phase, item.cause) == (SessionPhase.FAILED, state.error)
    assert str(shop.folder) not in item.cause


def test_work_that_could_not_be_landed_stays_on_the_remote(shop: FleetShop) -> None:
    shop.submit(assignment("one", "echo 1 >one.txt"))
    shop.until("one@1", WorkItemState.READY)
    (shop.repo.root / "graphs" / f"{GRAPH}.json").write_text("nonsense")
    shop.worker()
    state = shop.reports.end("one@1")
    assert state.phase is SessionPhase.FAILED
    assert "doesn't say which branch" in state.error
    branch = f"dispatch/{GRAPH}/work/one/1"
    assert shop.branches() == [f"refs/heads/{branch}"]
    remote = Remote(Repository.open(shop.repo.path), str(shop.remote.path))
    commit = shop.remote.git("rev-parse", branch)
    assert not remote.is_safe(assignment("one", ""), commit)
    shop.repo.git("merge", "-q", commit)
    assert remote.is_safe(assignment("one", ""), commit)


def test_a_pull_request_is_reported_and_its_branch_is_here(shop: FleetShop) -> None:
    shop.worker()
    url = "https://example.org/pull/7"
    (state,) = shop.run(
        assignment("one", f'echo 1 >one.txt; git add .; git commit -qm 1; echo {url} >"$DISPATCH_DIR/pull_request"')
    )
    assert (state.phase, state.pull_request_url) == (SessionPhase.CLOSED, url)
    assert state.detail == f"its pull request waits for review: {url}"
    assert shop.repo.show(state.branch, "one.txt") == "1"


def test_an_agent_is_not_told_the_way_to_the_fleets_databases(shop: FleetShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DB_URI", "postgresql://u:secret@db/x")
    monkeypatch.setenv("TASK_QUEUE_URI", "postgresql://u:secret@db/y")
    shop.worker()
    (state,) = shop.run(assignment("one", "env >told; ! grep secret told"))
    assert state.phase is SessionPhase.MERGED, state


# -- ends that are not work --------------------------------------------------------------------------------------------


def test_what_another_attempt_would_not_mend_has_failed(shop: FleetShop) -> None:
    shop.worker()
    (state,) = shop.run(assignment("one", "no-such-agent", "now"))
    assert state.phase is SessionPhase.FAILED
    assert state.error.startswith("command not found: 'no-such-agent'")
    assert shop.clone().git("for-each-ref").line == ""


def test_what_an_executor_gives_up_has_failed_with_its_cause(shop: FleetShop) -> None:
    def refuse(payload: bytes, guard: object) -> str:
        raise TurnFailedError("no such luck")

    shop.worker(refuse)
    (state,) = shop.run(assignment("one", "true"))
    assert (state.phase, state.error) == (SessionPhase.FAILED, "no such luck")


def test_a_dead_letter_has_failed_with_its_cause(shop: FleetShop) -> None:
    shop.submit(assignment("one", "true"))
    item = shop.until("one@1", WorkItemState.READY)
    for _ in range(3):
        (claimed,) = shop.authority.perform([Claim(item.id, GRAPH, "somebody", 10.0, starts=True)])
        assert isinstance(claimed, WorkItem)
        shop.authority.perform([Retry(claimed.lease, "it broke")])
        shop.ahead_s += 100.0
    state = shop.reports.end("one@1")
    assert (state.phase, state.error) == (SessionPhase.FAILED, "given up after 3 attempts on the fleet: it broke")


COMMIT = "0123456789" * 4
GOOD = {
    "v": 1, "phase": "merged", "commit": "", "branch": "", "turns": 1, "detail": "", "note": "", "resume": False,
    "pull_request_url": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ("", "report: is not JSON"),
        ({**GOOD, "commit": COMMIT, "branch": "main"}, f"branch: is not dispatch/{GRAPH}/work/one/1"),
        ({**GOOD, "commit": COMMIT, "branch": f"dispatch/{GRAPH}/work/one/1"}, "commit: the remote has no branch"),
    ],
)
def test_a_report_that_can_not_be_is_refused(shop: FleetShop, result: str | dict[str, object], problem: str) -> None:
    shop.worker(lambda payload, guard: result if isinstance(result, str) else json.dumps(result))
    (state,) = shop.run(assignment("one", "true"))
    assert state.phase is SessionPhase.FAILED
    assert state.error.startswith("the report of its worker can't be used: " + problem), state.error
    assert shop.repo.merges() == []


def test_a_commit_that_is_here_but_not_on_the_branch_is_not_merged(shop: FleetShop) -> None:
    branch = f"dispatch/{GRAPH}/work/one/1"
    shop.repo.git("checkout", "-q", "-b", "private")
    private = shop.repo.commit("secret.txt", "secret")
    shop.repo.git("checkout", "-q", "main")
    shop.repo.git("push", "-q", str(shop.remote.path), f"main:refs/heads/{branch}")
    shop.worker(lambda payload, guard: json.dumps({**GOOD, "commit": private, "branch": branch}))
    (state,) = shop.run(assignment("one", "true"))
    assert state.phase is SessionPhase.FAILED
    assert f"not at {private[:12]}" in state.error
    assert shop.repo.files() == ["a.txt"]


def test_what_was_landed_before_vouches_for_no_other_commit(shop: FleetShop) -> None:
    shop.worker()
    shop.run(assignment("one", "echo 1 >one.txt"))
    until(lambda: shop.branches() == [])
    remote = Remote(Repository.open(shop.repo.path), str(shop.remote.path))
    merged, main = shop.repo.git("rev-parse", "main^2"), shop.repo.git("rev-parse", "main")
    remote.fetch(assignment("one", "true"), AgentReport(SessionPhase.MERGED, merged))
    with pytest.raises(InvalidTurnError, match="the remote has no branch"):
        remote.fetch(assignment("one", "true"), AgentReport(SessionPhase.MERGED, main))


def test_contents_that_are_no_assignment_fail_their_item(shop: FleetShop) -> None:
    shop.worker()
    good = json.loads(shop.authority.contents(shop.payload(assignment("one", "true"))) or b"")
    for number, bad in enumerate(
        (b"", b"{}", json.dumps({**good, "slice_id": "../x"}).encode(), json.dumps({**good, "recipe": []}).encode())
    ):
        shop.enqueue(f"bad{number}", bad)
        shop.wait(lambda number=number: shop.state(f"bad{number}") is WorkItemState.FAILED)  # type: ignore[misc]
    assert shop.branches() == []


# -- what is in the way ------------------------------------------------------------------------------------------------


def test_a_remote_that_is_away_is_waited_for(shop: FleetShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "AGAIN_S", 0.05)
    away = shop.remote.path.with_name("away")
    shop.remote.path.rename(away)
    shop.submit(assignment("one", "echo 1 >one.txt"))
    shop.reports.wait(lambda state: state.phase is SessionPhase.RUNNING and state.detail.startswith("waits: git push"))
    (shown,) = shop.host.running()
    assert shown.stage.startswith("waits: git push")
    away.rename(shop.remote.path)
    shop.worker()
    assert shop.reports.end("one@1").phase is SessionPhase.MERGED


def test_a_remote_that_stays_away_fails_the_attempt(shop: FleetShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "REMOTE_LIMIT_S", 0.0)
    shop.remote.path.rename(shop.remote.path.with_name("away"))
    (state,) = shop.run(assignment("one", "true"))
    assert state.phase is SessionPhase.FAILED
    assert state.error.startswith("given up after 0 minutes: git push")


def test_a_full_queue_is_waited_for(shop: FleetShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "AGAIN_S", 0.05)
    shop.fill()
    shop.submit(assignment("one", "true"))
    shop.reports.wait(lambda state: state.detail.startswith("waits: the queue holds 100 turns"))
    shop.worker(lambda payload, guard: json.dumps(GOOD))
    assert shop.reports.end("one@1").phase is SessionPhase.MERGED


def test_nothing_is_submitted_while_the_graph_may_be_anothers(shop: FleetShop, monkeypatch: pytest.MonkeyPatch) -> None:
    owned = False
    shop.host.fence(lambda: owned)
    monkeypatch.setattr(host, "CLAIM_WAIT_S", 0.0)
    (state,) = shop.run(assignment("one", "true"))
    assert (state.phase, state.detail) == (SessionPhase.CLOSED, "another process owns the graph now")
    assert shop.authority.search(Query()) == ()
    assert shop.remote.refs() == []
    owned = True
    shop.worker()
    (state,) = shop.run(assignment("one", "true", attempt=2))
    assert state.phase is SessionPhase.MERGED
