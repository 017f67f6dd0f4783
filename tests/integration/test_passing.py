"""What is no fault of an attempt and passes: it is waited for, the attempt goes on, and its agent works once."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from harness.local import passing as passing_module
from harness.local.errors import GitError, RepositoryError
from harness.local.passing import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MAIN_LIMIT_S,
    ROOM_LIMIT_S,
    MainGoneError,
    Tries,
    passing,
)
from harness.session import SessionPhase, SessionState
from tests.integration.workshop import Repo, Workshop, assignment, make_repo, workshop

MERGED, CLOSED, CANCELED = SessionPhase.MERGED, SessionPhase.CLOSED, SessionPhase.CANCELED
SHIM = """#!/bin/sh
read -r words < "{full}" && case " $* " in *" $words "*)
    echo "error: unable to write file: No space left on device" >&2; exit 128 ;;
esac
exec {git} "$@"
"""
VERIFY = ("test", "-e", "b.txt")


class Disk:
    """One that is full for the git commands that have the given words."""

    def __init__(self, folder: Path) -> None:
        real = shutil.which("git")
        assert real is not None
        folder.mkdir()
        self._full, self.bin = folder / "full", folder / "bin"
        self._full.touch()
        self.bin.mkdir()
        (self.bin / "git").write_text(SHIM.format(full=self._full, git=real))
        (self.bin / "git").chmod(0o755)

    def fill(self, words: str) -> None:
        self._full.write_text(f"{words}\n")

    def make_room(self) -> None:
        self._full.write_text("")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(tmp_path / "disk")
    monkeypatch.setenv("PATH", f"{disk.bin}:{os.environ['PATH']}")
    monkeypatch.setattr(passing_module, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(passing_module, "LONGEST_PAUSE_S", 0.1)
    return disk


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo")


@pytest.fixture
def shop(repo: Repo):
    with workshop(repo) as open_shop:
        yield open_shop


def waiting(shop: Workshop) -> SessionState:
    return shop.reports.wait(lambda state: state.detail.startswith("waits: "))


STEPS = [
    "worktree add",
    "checkout -q -f --no-track",
    "add -A",
    "commit -q",
    "merge-tree",
    "commit-tree",
    "update-ref -m",
]


@pytest.mark.parametrize("verify", [(), VERIFY], ids=["plain", "verified"])
@pytest.mark.parametrize("words", STEPS)
def test_a_full_disk_is_waited_for_and_nothing_is_done_twice(
    shop: Workshop, disk: Disk, words: str, verify: tuple[str, ...]
) -> None:
    disk.fill(words)
    shop.submit(assignment("s1", "echo agent; echo hi > b.txt", verify=verify))
    state = waiting(shop)
    assert (state.phase, state.detail) == (
        SessionPhase.RUNNING,
        f"waits: no space left on {shop.repo.path}/.git",
    )
    assert [view.stage for view in shop.host.running()] == [state.detail]
    disk.make_room()
    assert shop.reports.end("s1@1").phase is MERGED
    assert len(shop.reports.all) == 2
    assert shop.log("s1").count("agent\n") == 1
    assert shop.repo.files() == ["a.txt", "b.txt"]
    assert shop.repo.refs() == ["refs/heads/main"]
    shop.repo.check_sound()


@pytest.mark.parametrize("words", ["add -A", "commit-tree"])
def test_work_is_kept_once_there_is_room(shop: Workshop, disk: Disk, words: str) -> None:
    disk.fill(words)
    shop.submit(assignment("s1", "echo hi > b.txt; exit 1"))
    waiting(shop)
    disk.make_room()
    state = shop.reports.end("s1@1")
    assert (state.phase, state.detail) == (CLOSED, "exit 1")
    assert shop.repo.show("refs/dispatch/keep/s1/1", "b.txt") == "hi"


@pytest.mark.parametrize(("words", "phase"), [("worktree add", CANCELED), ("merge-tree", CANCELED), ("add -A", CLOSED)])
def test_a_session_that_waits_for_room_heeds_a_cancel(
    shop: Workshop, disk: Disk, words: str, phase: SessionPhase
) -> None:
    disk.fill(words)
    shop.submit(assignment("s1", "echo hi > b.txt"))
    waiting(shop)
    shop.cancel("s1@1")
    assert shop.reports.end("s1@1", 5.0).phase is phase
    disk.make_room()
    [again] = shop.run(assignment("s1", "echo hi > b.txt", attempt=2))
    assert again.phase is MERGED
    assert shop.repo.files() == ["a.txt", "b.txt"]


def test_a_session_that_waits_for_room_keeps_no_host_from_closing(repo: Repo, disk: Disk) -> None:
    shop = Workshop(repo)
    disk.fill("worktree add")
    shop.submit(assignment("s1", "echo hi > b.txt"))
    waiting(shop)
    assert shop.host.close(5.0)


@pytest.mark.parametrize("words", ["worktree add", "merge-tree"])
def test_a_disk_that_stays_full_closes(shop: Workshop, disk: Disk, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing_module, "ROOM_LIMIT_S", 0.5)
    disk.fill(words)
    [state] = shop.run(assignment("s1", "echo hi > b.txt"))
    assert state.phase is CLOSED
    assert "No space left on device" in state.detail
    assert waiting(shop).phase is SessionPhase.RUNNING


def test_main_that_is_away_for_a_moment_is_waited_for(repo: Repo, disk: Disk) -> None:
    repo.git("branch", "trunk")
    with workshop(repo, main="trunk") as shop:
        repo.git("branch", "-m", "trunk", "away")
        shop.submit(assignment("s1", "echo hi > b.txt"))
        assert waiting(shop).detail == "waits: branch 'trunk' is gone; make it again with: git branch"
        repo.git("branch", "-m", "away", "trunk")
        assert shop.reports.end("s1@1").phase is MERGED


@pytest.mark.parametrize(
    ("error", "words", "limit_s"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), "waits: no space left on /x/y", ROOM_LIMIT_S),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "waits: no space left on /r", ROOM_LIMIT_S),
        (GitError("add", 128, "error: x: Disk quota exceeded"), "waits: no space left on /r", ROOM_LIMIT_S),
        (MainGoneError("m"), "waits: branch 'm' is gone; make it again with: git branch", MAIN_LIMIT_S),
    ],
)
def test_what_passes(error: Exception, words: str, limit_s: float) -> None:
    passes = passing(error, Path("/r"))
    assert passes is not None
    assert (passes.words, passes.limit_s) == (words, limit_s)


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "x"), GitError("add", 128, "fatal: x"), RepositoryError("x"), ValueError("x")]
)
def test_what_does_not_pass(error: Exception) -> None:
    assert passing(error, Path("/r")) is None


def test_tries_become_rarer_and_end() -> None:
    assert [Tries(5.0, count).pause_s(5.0, 600.0) for count in (0, 1, 2)] == [FIRST_PAUSE_S * n for n in (1, 2, 4)]
    assert Tries(5.0, 1000).pause_s(5.0, 600.0) == LONGEST_PAUSE_S
    assert Tries(5.0, 1000).pause_s(602.0, 600.0) == pytest.approx(3.0)
    assert Tries(5.0, 0).pause_s(605.0, 600.0) <= 0
