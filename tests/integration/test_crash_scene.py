"""The crash campaign's eyes: what is planted in a scene is seen, and the history of its main is read right."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.crash import agent
from benchmarks.crash.checker import judge
from benchmarks.crash.plan import plan_of
from benchmarks.crash.scene import Scene

LIMIT_S = 30.0
HELD: list[int] = []  #: descriptors of locks, until the test is over
STRAYS: list[subprocess.Popen[bytes]] = []  #: ended by the scene, and reaped when the test is over


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "scene", plan_of(1), f"sqlite:///{tmp_path}/graphs.db")
    yield scene
    scene.close()
    while HELD:
        os.close(HELD.pop())
    while STRAYS:
        STRAYS.pop().wait(LIMIT_S)


def commit(scene: Scene, message: str) -> str:
    scene.git("commit", "-q", "--allow-empty", "-m", message)
    return scene.main()


def stray_process(scene: Scene) -> None:
    """One that is there under its own name: the environment of a fork shows before the program does."""
    process = subprocess.Popen(("sleep", "60"), env=scene.env, start_new_session=True)
    STRAYS.append(process)
    end = time.monotonic() + LIMIT_S
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"sleep"):
        assert time.monotonic() < end


def ours(scene: Scene, name: str) -> Path:
    path = scene.repo / ".git" / "dispatch" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def held_lock(scene: Scene) -> None:
    HELD.append(os.open(ours(scene, "lock"), os.O_RDWR | os.O_CREAT))
    fcntl.flock(HELD[-1], fcntl.LOCK_EX)


def lost_worktree(scene: Scene) -> None:
    scene.git("worktree", "add", "-q", "--detach", str(ours(scene, "worktrees/1")))
    (scene.repo / ".git/worktrees/1").rename(scene.folder / "elsewhere")


PLANTED: dict[str, tuple[Callable[[Scene], object], str]] = {
    "process": (stray_process, "is left: sleep 60"),
    "change": (lambda scene: (scene.repo / "shared/api.txt").write_text("mine\n"), "is not clean:  M shared/api.txt"),
    "file": (lambda scene: (scene.repo / "more.txt").write_text("x"), "is not clean: ?? more.txt"),
    "detached": (lambda scene: scene.git("checkout", "-q", "--detach"), "not on main"),
    "branch": (lambda scene: scene.git("branch", "dispatch/s00/1"), "ref refs/heads/dispatch/s00/1 is left"),
    "index.lock": (lambda scene: (scene.repo / ".git/index.lock").touch(), "lock index.lock is left"),
    "ref lock": (lambda scene: (scene.repo / ".git/refs/heads/main.lock").touch(), "main.lock is left"),
    "merge": (lambda scene: (scene.repo / ".git/MERGE_HEAD").write_text(scene.main() + "\n"), "MERGE_HEAD is left"),
    "journal": (lambda scene: ours(scene, "moving.json").write_text("{}"), "dispatch/moving.json is left"),
    "held lock": (held_lock, "lock lock is held"),
    "session": (lambda scene: ours(scene, "sessions/g/s00@1").mkdir(parents=True), "session s00@1 is left"),
    "folder": (lambda scene: ours(scene, "worktrees/7").mkdir(parents=True), "worktrees/7 is registered or there"),
    "registration": (lost_worktree, "worktrees/1 is registered or there, not both"),
}


def test_nothing_is_left_of_nothing(scene: Scene) -> None:
    ours(scene, "worktrees").mkdir()
    assert list(scene.left()) == []


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_left_is_seen(scene: Scene, what: str) -> None:
    ours(scene, "worktrees").mkdir(exist_ok=True)
    plant, words = PLANTED[what]
    plant(scene)
    seen = list(scene.left())
    assert any(words in each for each in seen), seen


def codes_of(scene: Scene) -> set[str]:
    ours(scene, "worktrees").mkdir(exist_ok=True)
    evidence = scene.evidence([], [scene.main()], dict.fromkeys(scene.plan.jobs, "merged"), [])
    return {violation.code for violation in judge(scene.plan, evidence)}


def test_a_second_merge_is_read_from_history(scene: Scene) -> None:
    for _ in range(2):
        commit(scene, "merge\n\nDispatch-Slice: s00")
    evidence = scene.evidence([], [], {}, [])
    assert [merge.slice for merge in evidence.mainline] == ["", "s00", "s00"]
    assert "s00 merged 2 times" in {violation.text for violation in judge(scene.plan, evidence)}


def test_a_merge_beside_mains_line_is_read_from_history(scene: Scene) -> None:
    scene.git("checkout", "-q", "-b", "aside")
    scene.git("commit", "-q", "--allow-empty", "-m", "merge\n\nDispatch-Slice: s01")
    scene.git("checkout", "-q", "main")
    commit(scene, "something else")
    scene.git("merge", "-q", "--no-ff", "-m", "both", "aside")
    assert scene.evidence([], [], {}, []).strays == ("s01",)


def test_main_that_went_back_is_read_from_its_reflog(scene: Scene) -> None:
    assert "forward" not in codes_of(scene)
    before = scene.main()
    commit(scene, "more")
    scene.git("reset", "-q", "--hard", before)
    assert "forward" in codes_of(scene)


def test_what_no_ref_has_is_lost(scene: Scene) -> None:
    (scene.repo / "note").write_text("a note\n")
    scene.git("add", "note")
    tree = scene.git("write-tree").strip()
    work = scene.git("commit-tree", tree, "-m", "work").strip()
    assert agent.blob_id("a note\n") not in scene.evidence([], [], {}, []).safe
    scene.git("update-ref", "refs/dispatch/keep/s00/1", work)
    evidence = scene.evidence([], [], {}, [])
    assert agent.blob_id("a note\n") in evidence.safe
    assert work in evidence.parents


def test_a_damaged_object_is_reported(scene: Scene) -> None:
    commit(scene, "more")
    name = scene.main()
    path = scene.repo / ".git/objects" / name[:2] / name[2:]
    path.chmod(0o644)
    path.unlink()
    assert any(line.startswith("git fsck: ") for line in scene.broken())


def test_a_lock_tells_who_lives_until_the_last_of_its_holders_is_gone(scene: Scene) -> None:
    descriptor, free = agent.take(scene.folder, "s00")
    assert free
    assert scene.alive() == ["s00"]
    assert agent.alive(scene.folder, but="s00") == []
    other, free = agent.take(scene.folder, "s00")
    assert not free
    child = subprocess.Popen(("cat",), stdin=subprocess.PIPE, pass_fds=(descriptor,))
    os.close(descriptor)
    os.close(other)
    assert scene.alive() == ["s00"]
    child.communicate(timeout=LIMIT_S)
    assert scene.alive() == []
