"""Every git command that a session runs goes wrong once: nothing is lost, nothing merged twice, main stays whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.local import LocalHostError, LocalSessionHost
from harness.session import SessionPhase
from tests.integration.git_faults import FaultyGit
from tests.integration.killable import Scheduler, reports, scheduler
from tests.integration.workshop import Repo, assignment, in_environment, make_repo, workshop

__all__ = ["scheduler"]  # the fixture

EVERY = os.environ.get("EVERY_FAULT") == "1"  # the long form: each mode at each step, about three minutes
VERIFY = ("sh", "-c", "test -f work.txt")


@pytest.fixture
def faulty(tmp_path: Path) -> FaultyGit:
    return FaultyGit(tmp_path / "faulty")


def check_after(repo: Repo, faulty: FaultyGit, step: str) -> None:
    """What must hold once the slice has been reported merged, whatever went wrong before."""
    assert repo.merges() == ["s1"], step
    assert repo.files() == ["a.txt", "work.txt"], step
    assert repo.show("main", "work.txt") == "done", step
    assert repo.files("main") == ["a.txt", "work.txt"], f"{step}: a worktree without files was taken for work"
    repo.check_sound()
    assert repo.refs("refs/heads") == ["refs/heads/main"], step
    assert in_environment(f"DISPATCH_DIR={repo.root}") == [], step
    assert len(repo.git("worktree", "list").splitlines()) <= 3, step
    assert "prunable" not in repo.git("worktree", "list", "--porcelain"), step
    assert list((repo.root / "sessions").glob("*/*")) == [], step
    assert not (repo.root / "moving.json").exists(), step


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["killed-before", "killed-during", "killed-after"])
def test_killed_at_any_git_command_it_merges_exactly_once(
    tmp_path: Path, faulty: FaultyGit, scheduler: Scheduler, mode: str
) -> None:
    path = f"{faulty.bin}:{os.environ['PATH']}"
    script = "echo done > work.txt"
    rehearsal = make_repo(tmp_path / "rehearsal")
    assert scheduler.run(rehearsal, tmp_path / "out", ("s1", 1, script, VERIFY), path=path) == 0
    steps = faulty.calls()
    assert len(steps) > 15
    offset = ("killed-before", "killed-during", "killed-after").index(mode)
    killed = 0
    for at in range(1, len(steps) + 1):
        if not EVERY and at % 3 != offset:
            continue
        step = f"{mode} {at}: {steps[at - 1]}"
        repo, out = make_repo(tmp_path / f"repo{at}"), tmp_path / f"out{at}"
        faulty.arm(at, mode)
        killed += scheduler.run(repo, out, ("s1", 1, script, VERIFY), path=path) == -9
        faulty.arm(0, mode)
        assert scheduler.run(repo, out, ("s1", 2, script, VERIFY), path=path) == 0, step
        assert reports(out)[-1][:2] == ["s1@2", "merged"], step
        check_after(repo, faulty, step)
    assert killed >= (len(steps) if EVERY else len(steps) // 3)


@pytest.mark.timeout(600)
def test_when_any_git_command_fails_the_work_is_kept_and_the_next_attempt_merges(
    tmp_path: Path, faulty: FaultyGit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{faulty.bin}:{os.environ['PATH']}")
    with workshop(make_repo(tmp_path / "rehearsal")) as shop:
        faulty.arm(0, "fails")
        shop.run(assignment("s1", "echo done > work.txt", verify=VERIFY))
        steps = faulty.calls()
    assert len(steps) > 10
    outcomes = set()
    for at in range(1, len(steps) + 1, 1 if EVERY else 3):
        step = f"{at}: {steps[at - 1]}"
        repo = make_repo(tmp_path / f"repo{at}")
        with workshop(repo) as shop:
            faulty.arm(at, "fails")
            [state] = shop.run(assignment("s1", "echo done > work.txt", verify=VERIFY))
            outcomes.add(state.phase)
            faulty.arm(0, "fails")
            repo.check_sound()
            if state.phase is not SessionPhase.MERGED:
                assert "injected fault" in state.detail + state.error, step
                assert repo.files() == ["a.txt"], step
                [state] = shop.run(assignment("s1", "cat work.txt; echo done > work.txt", attempt=2, verify=VERIFY))
            assert state.phase is SessionPhase.MERGED, step
        check_after(repo, faulty, step)
    assert SessionPhase.CLOSED in outcomes


def test_when_any_git_command_of_the_opening_fails_it_says_so_in_one_line(
    tmp_path: Path, faulty: FaultyGit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{faulty.bin}:{os.environ['PATH']}")
    repo = make_repo(tmp_path / "repo")
    faulty.arm(0, "fails")
    LocalSessionHost(repo.path)
    steps = len(faulty.calls())
    said = []
    for at in range(1, steps + 1):
        faulty.arm(at, "fails")
        try:
            LocalSessionHost(repo.path)
        except LocalHostError as error:
            said.append(str(error))
    faulty.arm(0, "fails")
    assert len(said) >= steps - 1  # where the main work tree is can be told in two ways
    assert all("\n" not in line and "injected fault" in line for line in said)
    repo.check_sound()
