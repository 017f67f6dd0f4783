"""A graph's turns on a fleet when something comes between: a word, a stop, a lost worker, a scheduler that restarts."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fleet import agent, follower
from harness.fleet.agent import AgentExecutor
from harness.fleet.agent_turn import work_branch
from harness.fleet.authority.memory import MemoryWatch, MemoryWorkItems
from harness.fleet.clone import Clone
from harness.fleet.commands import Fail
from harness.fleet.errors import InvalidSettingError
from harness.fleet.executors import NotNowError, TurnFailedError
from harness.fleet.lease import WorkItemLeaseGuard
from harness.fleet.remote import Remote
from harness.fleet.work_item import WorkItemState
from harness.local import GitError, NoSessionError
from harness.local.repository import Repository
from harness.session import SessionPhase
from tests.integration.fleet_shop import FleetShop, fleet_shop
from tests.integration.workshop import GRAPH, Repo, Reports, assignment, in_environment, install_hook, until


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[FleetShop]:
    with fleet_shop(tmp_path) as made:
        yield made


def counted(shop: FleetShop) -> str:
    """The beginning of a script that notes that it was run."""
    return f"echo run >>{shop.marks}/runs; "


def runs(shop: FleetShop) -> int:
    path = shop.marks / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


# -- words -------------------------------------------------------------------------------------------------------------


def test_a_message_reaches_the_agent_wherever_it_runs(shop: FleetShop) -> None:
    shop.worker()
    shop.submit(
        assignment(
            "one",
            f'touch {shop.marks}/up; until test -s "$DISPATCH_INBOX"; do sleep 0.02; done; cat "$DISPATCH_INBOX" >got',
        )
    )
    shop.reached("up")
    assert shop.send("one@1", 'mind the "gap"\n') == "turn-2"
    state = shop.reports.end("one@1")
    assert (state.phase, state.turns) == (SessionPhase.MERGED, 2)
    assert json.loads(shop.repo.show("main", "got")) == {"turn": "turn-2", "message": 'mind the "gap"\n'}
    with pytest.raises(NoSessionError):
        shop.send("one@1", "too late")


# -- stops -------------------------------------------------------------------------------------------------------------


def test_a_turn_that_no_worker_took_is_canceled_at_once(shop: FleetShop) -> None:
    shop.submit(assignment("one", "true"))
    shop.until("one@1", WorkItemState.READY)
    shop.cancel("one@1")
    state = shop.reports.end("one@1")
    assert (state.phase, state.detail) == (SessionPhase.CANCELED, "its scheduler asked it to stop")
    shop.cancel("one@1")


def test_one_that_has_not_reached_the_fleet_is_canceled_without_it(shop: FleetShop) -> None:
    shop.remote.path.rename(shop.remote.path.with_name("away"))
    shop.submit(assignment("one", "true"))
    shop.reports.wait(lambda state: state.detail.startswith("waits: git push"))
    shop.cancel("one@1")
    state = shop.reports.end("one@1")
    assert (state.phase, state.detail) == (SessionPhase.CANCELED, "stopped at a safepoint")
    assert not shop.has("one@1")


SAVING = 'trap \'echo 1 >one.txt; echo "half done" >"$DISPATCH_CHECKPOINT"; exit 0\' TERM; '


def test_a_stop_reaches_the_agent_and_its_work_is_gone_on_with_elsewhere(shop: FleetShop) -> None:
    first = shop.worker(clone="a.git")
    shop.submit(assignment("one", SAVING + shop.gate("up", "never")))
    shop.reached("up")
    shop.cancel("one@1")
    state = shop.reports.end("one@1")
    assert (state.phase, state.detail) == (SessionPhase.CANCELED, "stopped at a safepoint")
    assert state.checkpoint.startswith("The previous attempt ended: stopped at a safepoint.")
    assert state.checkpoint.endswith("It left this note:\nhalf done")
    assert shop.repo.refs("refs/dispatch/keep") == ["refs/dispatch/keep/one/1"]
    assert shop.item("one@1").state is WorkItemState.CANCELLED

    first.drain(5.0)
    shop.worker(clone="b.git")
    (state,) = shop.run(assignment("one", "echo 2 >>one.txt", attempt=2))
    assert state.phase is SessionPhase.MERGED
    assert shop.repo.show("main", "one.txt") == "1\n2"


def test_work_that_a_stop_came_too_late_for_is_kept_all_the_same(shop: FleetShop) -> None:
    def late(payload: bytes, guard: WorkItemLeaseGuard) -> str:
        report = AgentExecutor(shop.clone())(payload, guard)
        shop.open("done")
        while not guard.wait(0.02):
            guard.look()
        return report

    first = shop.worker(late)
    shop.submit(assignment("one", "echo 1 >one.txt"))
    shop.reached("done")
    shop.cancel("one@1")
    state = shop.reports.end("one@1")
    assert state.phase is SessionPhase.CANCELED
    assert shop.repo.show("refs/dispatch/keep/one/1", "one.txt") == "1"
    assert shop.repo.files() == ["a.txt"]
    first.drain(5.0)
    shop.worker()
    (state,) = shop.run(assignment("one", "test -e one.txt", attempt=2))
    assert state.phase is SessionPhase.MERGED, "the next attempt begins with it"
    assert shop.repo.show("main", "one.txt") == "1"


def test_a_worker_that_drains_leaves_its_turn_to_another_with_its_work_and_its_note(shop: FleetShop) -> None:
    first = shop.worker(clone="a.git")
    script = SAVING + 'test -e one.txt && cat one.txt "$DISPATCH_TASK" >two.txt && exit 0; ' + shop.gate("up", "never")
    shop.submit(assignment("one", script))
    shop.reached("up")
    assert first.drain(0.0)
    assert shop.item("one@1").state is WorkItemState.READY
    assert shop.branches() == [f"refs/heads/dispatch/{GRAPH}/work/one/1"]
    shop.worker(clone="b.git")
    state = shop.reports.end("one@1")
    assert state.phase is SessionPhase.MERGED
    assert shop.repo.show("main", "one.txt") == "1"
    assert "left this note:\nhalf done" in shop.repo.show("main", "two.txt")
    assert (shop.item("one@1").attempt, shop.item("one@1").failures) == (2, 0)


def test_work_of_a_turn_that_fails_in_the_end_is_kept_all_the_same(shop: FleetShop) -> None:
    first = shop.worker()
    shop.submit(assignment("one", SAVING + shop.gate("up", "never")))
    shop.reached("up")
    assert first.drain(0.0)

    def refuse(payload: bytes, guard: WorkItemLeaseGuard) -> str:
        raise TurnFailedError("nothing goes here")

    shop.worker(refuse)
    state = shop.reports.end("one@1")
    assert (state.phase, state.error) == (SessionPhase.FAILED, "nothing goes here")
    assert shop.repo.show("refs/dispatch/keep/one/1", "one.txt") == "1"
    until(lambda: shop.branches() == [])


def test_a_later_attempt_stops_the_one_before(shop: FleetShop) -> None:
    shop.worker()
    shop.submit(assignment("one", shop.gate("up", "never")))
    shop.reached("up")
    shop.submit(assignment("one", "echo 2 >one.txt", attempt=2))
    assert shop.reports.end("one@2").phase is SessionPhase.MERGED
    assert shop.reports.end("one@1").phase is SessionPhase.CANCELED
    assert shop.item("one@1").state is WorkItemState.CANCELLED


# -- lost leases -------------------------------------------------------------------------------------------------------


def test_a_lost_lease_ends_the_agent_and_pushes_nothing(shop: FleetShop) -> None:
    shop.worker()
    shop.submit(assignment("one", "trap '' TERM; echo 1 >one.txt; " + shop.gate("up", "never")))
    shop.reached("up")
    assert in_environment("DISPATCH_SLICE=one") != []
    theirs = shop.seized("one@1")
    until(lambda: in_environment("DISPATCH_SLICE=one") == [])
    assert shop.branches() == []
    shop.authority.perform([Fail(theirs.lease, "it was theirs to end")])
    state = shop.reports.end("one@1")
    assert (state.phase, state.error) == (SessionPhase.FAILED, "it was theirs to end")
    assert shop.branches() == []


def test_an_agent_that_ends_after_its_lease_was_lost_pushes_nothing(shop: FleetShop) -> None:
    """It is done before anybody has told its worker."""
    ended: list[str] = []

    class Clones(Clone):
        def push(self, *words: object) -> str:
            ended.append("pushed")
            return ""

    clone = shop.clone()
    executor = AgentExecutor(Clones(clone.folder, clone.remote, clone.git))

    def seized(payload: bytes, guard: WorkItemLeaseGuard) -> str:
        theirs.append(shop.seized("one@1"))
        try:
            return executor(payload, guard)
        finally:
            ended.append("ended")

    theirs: list[object] = []
    shop.worker(seized)
    shop.submit(assignment("one", "echo 1 >one.txt"))
    until(lambda: "ended" in ended)
    assert ended == ["ended"]


def test_the_holder_outdoes_whoever_pushed_late(shop: FleetShop) -> None:
    one = assignment("one", "true")
    clone, late = shop.clone("a.git"), shop.clone("b.git")
    shop.repo.git("push", "-q", str(shop.remote.path), f"main:refs/heads/dispatch/{GRAPH}/main")
    start, start_of_late = clone.begin(one), late.begin(one)
    ours, theirs = (shop.repo.git("commit-tree", "-m", name, "-p", "main", "main^{tree}") for name in ("a", "b"))
    shop.repo.git("push", "-q", str(clone.folder), f"{ours}:refs/heads/x")
    shop.repo.git("push", "-q", str(late.folder), f"{theirs}:refs/heads/x")
    assert late.push(one, theirs, start_of_late.begun) == ""
    assert clone.push(one, ours, start.begun) == theirs, "refused, and told what is there"
    assert clone.push(one, ours, theirs) == ""
    assert late.push(one, theirs, start_of_late.begun) == ours, "who lost the lease has nothing newer to expect"
    assert shop.remote.git("rev-parse", work_branch(one)) == ours
    assert clone.push(one, ours, "") == "", "again, no harm"


def test_a_turn_whose_branch_was_moved_by_somebody_late_is_merged_as_its_holder_left_it(shop: FleetShop) -> None:
    late = (
        "echo late >late.txt && git add . && git commit -qm late"
        f" && git push -q {shop.remote.path} HEAD:refs/heads/dispatch/{GRAPH}/work/one/1 && git reset -q --hard HEAD~1"
    )
    shop.worker()
    (state,) = shop.run(assignment("one", f"{late} && echo 1 >one.txt"))
    assert state.phase is SessionPhase.MERGED
    assert shop.repo.files() == ["a.txt", "one.txt"]


# -- lost workers ------------------------------------------------------------------------------------------------------


def test_work_that_was_pushed_is_not_done_again_when_its_worker_is_lost(shop: FleetShop) -> None:
    lost: list[str] = []

    def losing(payload: bytes, guard: WorkItemLeaseGuard) -> str:
        report = AgentExecutor(shop.clone(f"{len(lost)}.git"))(payload, guard)
        if not lost:
            lost.append(report)
            raise NotNowError("as if it had been lost", 0.0)
        return report

    shop.worker(losing)
    (state,) = shop.run(assignment("one", counted(shop) + "echo 1 >one.txt"))
    assert state.phase is SessionPhase.MERGED
    assert lost
    assert runs(shop) == 1
    assert shop.repo.show("main", "one.txt") == "1"


def test_finished_work_that_could_not_be_pushed_is_pushed_by_the_next_attempt(
    shop: FleetShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "PUSH_LIMIT_S", 0.0)
    install_hook(shop.remote, "pre-receive", f"grep -q /main || test -e {shop.marks}/open")
    shop.worker()
    shop.submit(assignment("one", counted(shop) + "echo 1 >one.txt"))
    shop.wait(lambda: runs(shop) == 1 and shop.item("one@1").state is WorkItemState.READY)
    assert shop.item("one@1").cause.startswith("its work can't be pushed: git push")
    until(lambda: shop.host.running()[0].stage.startswith("waits for a worker: its work can't be pushed"))
    shop.open("open")
    shop.ahead_s += 60.0
    assert shop.reports.end("one@1").phase is SessionPhase.MERGED
    assert runs(shop) == 1
    assert shop.repo.show("main", "one.txt") == "1"


# -- workers that are not set up ---------------------------------------------------------------------------------------


def test_a_worker_with_another_remote_leaves_the_turn_to_others(shop: FleetShop) -> None:
    other = Repo(shop.folder / "other.git", bare=True)
    wrong = shop.worker(AgentExecutor(Clone.open(shop.folder / "wrong.git", str(other.path))))
    shop.submit(assignment("one", "echo 1 >one.txt"))
    shop.wait(lambda: shop.has("one@1") and "AGENT_DISPATCH_REMOTE" in shop.item("one@1").cause)
    assert (shop.item("one@1").state, shop.item("one@1").failures) == (WorkItemState.READY, 0)
    wrong.drain(5.0)
    shop.worker()
    shop.ahead_s += 60.0
    assert shop.reports.end("one@1").phase is SessionPhase.MERGED


def test_a_worker_without_a_remote_says_so(shop: FleetShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_DISPATCH_REMOTE", raising=False)
    shop.worker(agent.run)
    shop.submit(assignment("one", "true"))
    shop.wait(lambda: shop.has("one@1") and "AGENT_DISPATCH_REMOTE: is not set" in shop.item("one@1").cause)
    assert (shop.item("one@1").state, shop.item("one@1").failures) == (WorkItemState.READY, 0)


def test_a_clone_is_made_once_and_belongs_to_its_remote(shop: FleetShop, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shop.folder / "data" / "clone.git"
    environ = {"AGENT_DISPATCH_REMOTE": str(shop.remote.path), "AGENT_DISPATCH_CLONE": str(folder)}
    assert Clone.of(environ).folder == folder
    assert Clone.of(environ).git("rev-parse", "--is-bare-repository").line == "true"
    with pytest.raises(InvalidSettingError, match="is a clone of another remote"):
        Clone.of(environ | {"AGENT_DISPATCH_REMOTE": "https://example.org/x.git"})
    for bad in ("", "--upload-pack=x", "a\nb"):
        with pytest.raises(InvalidSettingError, match="AGENT_DISPATCH_REMOTE"):
            Clone.of(environ | {"AGENT_DISPATCH_REMOTE": bad})
    monkeypatch.setattr("platformdirs.user_data_path", lambda name: shop.folder / "xdg" / name)
    default = Clone.of({"AGENT_DISPATCH_REMOTE": str(shop.remote.path)}).folder
    assert default.parent == shop.folder / "xdg" / "slice-dispatch" / "fleet"


def test_ssh_asks_nobody_unless_it_was_told_how(shop: FleetShop, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = shop.folder / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\necho "$@" >>{shop.marks}/asked; exit 1\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("GIT_SSH", raising=False)
    monkeypatch.delenv("GIT_SSH_COMMAND", raising=False)
    address = "ssh://example.invalid/shop.git"
    with pytest.raises(GitError):
        Clone.open(shop.folder / "ssh.git", address).begin(assignment("one", "true"))
    with pytest.raises(GitError):
        Remote(Repository.open(shop.repo.path), address).publish_main(GRAPH)
    monkeypatch.setenv("GIT_SSH_COMMAND", f"{ssh} -v")
    with pytest.raises(GitError):
        Clone.open(shop.folder / "ssh.git", address).begin(assignment("one", "true"))
    asked = (shop.marks / "asked").read_text().splitlines()
    assert ["BatchMode=yes" in line for line in asked if "shop.git" in line] == [True, True, False]


# -- hints -------------------------------------------------------------------------------------------------------------


class Deaf(MemoryWorkItems):
    """Tells nobody of anything."""

    def watch(self) -> MemoryWatch:
        return MemoryWatch(MemoryWorkItems())


def test_what_nothing_tells_of_is_found_by_a_look(tmp_path: Path) -> None:
    with fleet_shop(tmp_path, Deaf()) as shop, pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower, "LOOK_S", 0.05)
        shop.restart()
        shop.worker()
        (state,) = shop.run(assignment("one", "echo 1 >one.txt"))
        assert state.phase is SessionPhase.MERGED


# -- schedulers that restart -------------------------------------------------------------------------------------------


def test_a_scheduler_that_restarts_takes_its_turns_up_and_starts_none_again(shop: FleetShop) -> None:
    shop.worker(slots=3)
    shop.submit(
        assignment("one", counted(shop) + shop.gate("up", "go") + "echo 1 >one.txt"),
        assignment("two", counted(shop) + shop.gate("there", "go") + "echo 2 >two.txt"),
    )
    shop.reached("up")
    shop.reached("there")
    assert sorted(shop.restart("one@1", "two@1", "three@1", "one@2")) == ["one@1", "two@1"]
    shop.open("go")
    assert shop.reports.end("one@1").phase is SessionPhase.MERGED
    assert shop.reports.end("two@1").phase is SessionPhase.MERGED
    assert runs(shop) == 2
    assert sorted(shop.repo.merges()) == ["one", "two"]


def test_what_ended_while_no_scheduler_was_there_is_merged_by_the_next_one(shop: FleetShop) -> None:
    shop.submit(assignment("one", counted(shop) + "echo 1 >one.txt"), assignment("two", "no-such-agent", "x"))
    shop.until("one@1", WorkItemState.READY)
    shop.until("two@1", WorkItemState.READY)
    assert shop.host.close(20.0)
    shop.worker()
    shop.until("one@1", WorkItemState.SUCCEEDED)
    shop.until("two@1", WorkItemState.FAILED)
    assert shop.repo.merges() == []
    assert shop.restart("one@1", "two@1") == ["one@1", "two@1"]
    assert shop.reports.end("one@1").phase is SessionPhase.MERGED
    assert shop.reports.end("two@1").phase is SessionPhase.FAILED
    assert shop.restart("one@1") == ["one@1"], "its merge may not have been noted"
    assert shop.reports.end("one@1").phase is SessionPhase.MERGED
    assert (runs(shop), shop.repo.merges()) == (1, ["one"])


def test_a_landing_that_was_broken_off_is_gone_on_with(shop: FleetShop) -> None:
    shop.worker()
    verify = ("sh", "-c", shop.gate("verifying", "go"))
    shop.submit(assignment("one", counted(shop) + "echo 1 >one.txt", verify=verify))
    shop.reached("verifying")
    assert shop.restart("one@1") == ["one@1"]
    shop.open("go")
    assert shop.reports.end("one@1").phase is SessionPhase.MERGED
    assert (runs(shop), shop.repo.merges()) == (1, ["one"])


def test_turns_of_another_graph_are_not_adopted(shop: FleetShop) -> None:
    shop.submit(assignment("one", "true", graph="graph2"))
    shop.wait(lambda: bool(shop.authority.find(["graph2/one@1"])))
    assert shop.restart("one@1") == []


def test_two_graphs_that_use_the_same_ids_keep_apart(shop: FleetShop) -> None:
    shop.worker()
    shop.submit(assignment("one", shop.gate("up", "go") + "echo 1 >one.txt"))
    shop.reached("up")
    reports = Reports()
    with shop.another_host(reports) as host:
        asyncio.run(host.submit(assignment("one", "echo 2 >two.txt", graph="graph2")))
        assert reports.end("one@1").phase is SessionPhase.MERGED
    shop.open("go")
    assert shop.reports.end("one@1").phase is SessionPhase.MERGED
    assert set(shop.repo.files()) == {"a.txt", "one.txt", "two.txt"}
