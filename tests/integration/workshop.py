"""What tests of the local host work with: a throwaway repository, a host on it, and the reports it makes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.local import LocalSessionHost
from harness.session import Assignment, Recipe, SessionPhase, SessionState

ROOT_OF_TESTS = Path(__file__).parents[2]
LIMIT_S = 30.0
GRAPH = "graph1"


class Repo:
    """A repository with one commit on main and a configured author."""

    def __init__(self, path: Path, *, bare: bool = False) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main", *(["--bare"] if bare else []))
        self.git("config", "user.name", "Person")
        self.git("config", "user.email", "person@example.org")

    def git(self, *words: str, ok: bool = True) -> str:
        done = subprocess.run(("git", *words), cwd=self.path, capture_output=True, check=False)
        assert not ok or done.returncode == 0, f"git {' '.join(words)}: {os.fsdecode(done.stderr)}"
        return os.fsdecode(done.stdout).rstrip("\n")

    def write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self, name: str, text: str, message: str = "by hand") -> str:
        self.write(name, text)
        self.git("add", "--", name)
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    @property
    def root(self) -> Path:
        return Path(self.git("rev-parse", "--path-format=absolute", "--git-common-dir")) / "dispatch"

    def show(self, rev: str, name: str) -> str:
        return self.git("show", f"{rev}:{name}")

    def files(self, rev: str = "main") -> list[str]:
        return self.git("ls-tree", "-r", "--name-only", rev).splitlines()

    def refs(self, *patterns: str) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname)", *patterns).splitlines()

    def merges(self) -> list[str]:
        """The slices merged, oldest first, told by the trailers of main's history."""
        text = self.git("log", "--reverse", "--format=%(trailers:key=Dispatch-Slice,valueonly,separator=%x2C)", "main")
        return [line for line in text.splitlines() if line]

    def check_sound(self) -> None:
        """main is whole, nothing is half merged, and the user's checkout holds exactly what it says."""
        self.git("fsck", "--strict", "--no-dangling")
        assert not (Path(self.git("rev-parse", "--absolute-git-dir")) / "MERGE_HEAD").exists()
        assert self.git("status", "--porcelain") == ""


def make_repo(path: Path) -> Repo:
    repo = Repo(path)
    repo.commit("a.txt", "one\ntwo\nthree\n", "first")
    return repo


class Reports:
    """Collects the states a host reports; a test waits for the one it is after."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.all: list[SessionState] = []

    def __call__(self, state: SessionState) -> None:
        with self._changed:
            self.all.append(state)
            self._changed.notify_all()

    def wait(self, matches: Callable[[SessionState], bool], limit_s: float = LIMIT_S) -> SessionState:
        """The first state, of those so far or to come, that matches."""
        with self._changed:
            found: list[SessionState] = []

            def look() -> bool:
                found[:] = [state for state in self.all if matches(state)]
                return bool(found)

            assert self._changed.wait_for(look, limit_s), f"not reported in {limit_s} s; so far: {self.all}"
            return found[0]

    def end(self, assignment_id: str, limit_s: float = LIMIT_S) -> SessionState:
        """How the session ended."""
        return self.wait(lambda s: s.assignment_id == assignment_id and s.phase is not SessionPhase.RUNNING, limit_s)


class Driven:
    """A host that is driven from a test, and what it reports."""

    host: Any
    reports: Reports

    def submit(self, *assignments: Assignment) -> None:
        async def all_of_them() -> None:
            for one in assignments:
                await self.host.submit(one)

        asyncio.run(all_of_them())

    def run(self, *assignments: Assignment) -> list[SessionState]:
        """Submits them at once; how each ended."""
        self.submit(*assignments)
        return [self.reports.end(one.assignment_id) for one in assignments]

    def cancel(self, assignment_id: str) -> None:
        asyncio.run(self.host.cancel(assignment_id))

    def send(self, assignment_id: str, message: str) -> str:
        return str(asyncio.run(self.host.send(assignment_id, message)))


class Workshop(Driven):
    """A host on a repository."""

    def __init__(self, repo: Repo, *, folder: Path | None = None, **options: object) -> None:
        self.repo, self.reports = repo, Reports()
        self.host = LocalSessionHost(folder or repo.path, **options)  # type: ignore[arg-type]
        self.host.connect(self.reports)

    def log(self, slice_id: str, attempt: int = 1, graph: str = GRAPH) -> str:
        return self.host.log_path(graph, slice_id, attempt).read_text(errors="replace")


@contextlib.contextmanager
def workshop(repo: Repo, *, folder: Path | None = None, **options: object) -> Iterator[Workshop]:
    shop = Workshop(repo, folder=folder, **options)
    try:
        yield shop
    finally:
        assert shop.host.close(20.0)


def assignment(
    slice_id: str,
    *command: str,
    attempt: int = 1,
    graph: str = GRAPH,
    title: str = "",
    task: str = "",
    **recipe: object,
) -> Assignment:
    """One attempt. A single word of a command is a script for sh."""
    argv = ("sh", "-c", command[0]) if len(command) == 1 else command
    return Assignment(
        assignment_id=f"{slice_id}@{attempt}",
        slice_id=slice_id,
        attempt=attempt,
        recipe=Recipe(command=argv, **recipe),  # type: ignore[arg-type]
        title=title or f"Do {slice_id}",
        task=task or f"The task of {slice_id}.",
        checkpoint="",
        branch=f"dispatch/{slice_id}/{attempt}",
        graph_id=graph,
    )


def until(holds: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Waits for something that a process outside of ours does, of which no event tells."""
    give_up_at = time.monotonic() + limit_s
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < give_up_at, "it did not come true in time"
        pause.wait(0.01)


def install_hook(repo: Repo, name: str, script: str) -> Path:
    hook = Path(repo.git("rev-parse", "--path-format=absolute", "--git-common-dir")) / "hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o755)
    return hook


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def in_environment(fragment: str) -> list[int]:
    """The processes whose environment has the text."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if fragment.encode() in (process / "environ").read_bytes() and alive(int(process.name)):
                found.append(int(process.name))
    return found
