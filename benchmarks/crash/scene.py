"""A round's place: a folder with a repository, a plan, the agents' ledger and the store; and what can be seen there.

Everything is looked at from outside: with git, in /proc, in the ledger. The product's own word is asked for at the end,
to be compared with what git says.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.crash import agent
from benchmarks.crash.evidence import Command, Evidence, Merge, Start, Stop
from benchmarks.crash.fates import SHIM
from benchmarks.crash.plan import SHARED, Plan, jobs_document, plan_text

GRAPH = "crash"
ROOT = Path(__file__).parents[2]
NOTHING = "0" * 40
MERGED = re.compile(r"^ +(?:[\d.:hms]+ +)?merged +(s\d\d)\b", re.MULTILINE)  #: how a run says so


class Scene:
    """`env` is what the product is started with; `CRASH_FOLDER` in it is how anything started here is found."""

    def __init__(self, folder: Path, plan: Plan, store: str) -> None:
        self.folder, self.plan = folder.resolve(), plan
        self.repo = self.folder / "repo"
        self.plan_file = self.folder / "plan.toml"
        real_git = shutil.which("git")
        assert real_git is not None, "git is needed"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT),  # the program beside this campaign, not one that is installed
            "XDG_STATE_HOME": str(self.folder / "state"),
            "DISPATCH_STORE": store,
            "GIT_CONFIG_NOSYSTEM": "1",
            "LANG": "C.UTF-8",
            "CRASH_FOLDER": str(self.folder),
        }
        self._lay_out(real_git)
        self.bell = os.open(self.folder / "bell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self) -> None:
        """Nothing of it runs any more, whatever the product has left."""
        os.close(self.bell)
        for pid, _ in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _lay_out(self, real_git: str) -> None:
        for name in ("repo/shared", "repo/out", "locks", "marks", "runs", "bin"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "ledger").touch()
        os.mkfifo(self.folder / "bell")
        (self.folder / "jobs.json").write_text(jobs_document(self.plan))
        command = [sys.executable, "-I", "-S", agent.__file__, str(self.folder)]
        self.plan_file.write_text(plan_text(self.plan, command))
        for name in self.plan.jobs:
            (self.folder / "locks" / name).touch()
        (self.folder / "bin" / "git").write_text(SHIM.format(git=real_git))
        (self.folder / "bin" / "git").chmod(0o755)
        for path in SHARED:
            (self.repo / path).touch()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Person")
        self.git("config", "user.email", "person@example.org")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")

    # --- looking ---------------------------------------------------------------------------------------------------

    def git(self, *words: str, given: str = "") -> str:
        done = subprocess.run(
            ("git", *words),
            cwd=self.repo,
            env=self.env_of_git(),
            input=given,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def env_of_git(self) -> dict[str, str]:
        return {name: value for name, value in self.env.items() if name != "CRASH_FOLDER"}

    def main(self) -> str:
        return self.git("rev-parse", "refs/heads/main").strip()

    def ledger(self, offset: int = 0) -> list[dict[str, Any]]:
        """The lines from a byte on. The last one is left out while it is being written."""
        with (self.folder / "ledger").open("rb") as file:
            file.seek(offset)
            return [json.loads(line) for line in file.read().split(b"\n")[:-1]]

    def ledger_size(self) -> int:
        return (self.folder / "ledger").stat().st_size

    def alive(self) -> list[str]:
        """The slices of which anything runs."""
        return agent.alive(self.folder)

    def processes(self) -> Iterator[tuple[int, str]]:
        """What runs of all that was ever started here: pid and command line."""
        mark = f"CRASH_FOLDER={self.folder}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()

    def left(self) -> Iterator[str]:
        """What should not be there once a run has ended by itself, in words."""
        yield from (f"process {pid} is left: {command}" for pid, command in self.processes())
        yield from (
            f"the user's checkout is not clean: {line}" for line in self.git("status", "--porcelain").splitlines()
        )
        if (self.repo / ".git/HEAD").read_text() != "ref: refs/heads/main\n":
            yield "the user's checkout is not on main any more"
        for ref in self.git("for-each-ref", "--format=%(refname)").splitlines():
            if ref != "refs/heads/main" and not ref.startswith("refs/dispatch/keep/"):
                yield f"ref {ref} is left"
        yield from self._left_in_git_dir(self.repo / ".git")

    def _left_in_git_dir(self, git_dir: Path) -> Iterator[str]:
        ours = git_dir / "dispatch"
        for path in git_dir.rglob("*.lock"):
            if ours not in path.parents:
                yield f"lock {path.relative_to(git_dir)} is left"
        yield from (f"{name} is left" for name in ("MERGE_HEAD", "dispatch/moving.json") if (git_dir / name).exists())
        yield from (f"lock {path.name} is held" for path in ours.rglob("*lock") if path.is_file() and _is_held(path))
        yield from (f"session {path.name} is left" for path in ours.glob("sessions/*/*"))
        yield from (f"worktree: {line}" for line in self.git("worktree", "prune", "-n", "-v").splitlines())
        listed = self.git("worktree", "list", "--porcelain").split("\n\n")[1:]
        registered = {text.split("\n")[0].removeprefix("worktree ") for text in listed if text.strip()}
        folders = {str(path) for path in (ours / "worktrees").iterdir() if path.is_dir()} if ours.exists() else set()
        yield from (f"worktree {path} is registered or there, not both" for path in sorted(registered ^ folders))
        if len(folders) > 2 * self.plan.cap:
            yield f"{len(folders)} worktrees are left, with a cap of {self.plan.cap}"

    def told(self) -> frozenset[str]:
        """The slices that any run has said to have merged, but for those whose last word was that it can't write that
        down: what it shows then is what it knows, and it says so."""
        outputs = [path.read_text("utf-8", "replace") for path in (self.folder / "runs").glob("*.out")]
        sure = [text for text in outputs if text.rfind(" is out of reach") <= text.rfind(" is in reach again")]
        return frozenset(name for text in sure for name in MERGED.findall(text))

    # --- the evidence ----------------------------------------------------------------------------------------------

    def evidence(
        self, commands: list[Command], seen: list[str], stored: dict[str, str], problems: list[str]
    ) -> Evidence:
        """All that is known of the round, once it is over. `problems` are those that were noticed on the way."""
        lines = self.ledger()
        merges = self.merges()
        mainline = self.git("rev-list", "--first-parent", "--reverse", "main").split()
        return Evidence(
            starts=tuple(map(_start, (line for line in lines if line["kind"] == "start"))),
            stops=tuple(map(_stop, (line for line in lines if line["kind"] == "stop"))),
            commands=tuple(commands),
            mainline=tuple(Merge(commit, merges.pop(commit, ""), self._files(commit)) for commit in mainline),
            strays=tuple(merges.values()),
            parents=self._parents(),
            moves=self._moves(),
            seen=tuple(seen),
            written=tuple(line["object"] for line in lines if line["kind"] == "wrote"),
            safe=frozenset(self._reachable()),
            lines={path: self._lines(path) for path in SHARED},
            stored=stored,
            left=(*problems, *self.left(), *self.broken()),
        )

    def merges(self) -> dict[str, str]:
        """By commit that main has, the slice that it says it merges."""
        log = self.git("log", "--format=%H %(trailers:key=Dispatch-Slice,valueonly,separator=%x2C)", "main")
        pairs = (line.partition(" ") for line in log.splitlines())
        return {commit: name for commit, _, name in pairs if name}

    def _files(self, commit: str) -> dict[str, str]:
        rows = (line.split("\t") for line in self.git("ls-tree", "-r", commit, "out/").splitlines())
        return {path: entry.split()[2] for entry, path in rows}

    def _lines(self, path: str) -> tuple[str, ...]:
        """Of a file on main; one that is gone has none."""
        there = self.git("ls-tree", "--name-only", "main", path)
        return tuple(self.git("show", f"main:{path}").splitlines()) if there else ()

    def _parents(self) -> dict[str, tuple[str, ...]]:
        """Of every commit in the object store, whether a ref has it or not."""
        objects = self.git("cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)").split("\n")
        commits = [line.removeprefix("commit ") for line in objects if line.startswith("commit ")]
        log = self.git("log", "--no-walk=unsorted", "--stdin", "--format=%H %P", given="\n".join(commits) + "\n")
        return {fields[0]: tuple(fields[1:]) for fields in map(str.split, log.splitlines())}

    def _moves(self) -> tuple[tuple[str, str], ...]:
        rows = (line.split(" ", 2) for line in (self.repo / ".git/logs/refs/heads/main").read_text().splitlines())
        return tuple((old, new) for old, new, _ in rows if old != NOTHING)

    def _reachable(self) -> Iterator[str]:
        listing = self.git("rev-list", "--objects", "main", "--glob=refs/dispatch/keep/*")
        yield from (line.split(" ", 1)[0] for line in listing.splitlines())

    def broken(self) -> Iterator[str]:
        done = subprocess.run(
            ("git", "fsck", "--no-dangling", "--no-progress"),
            cwd=self.repo, env=self.env_of_git(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        yield from (f"git fsck: {line}" for line in (done.stdout + done.stderr).splitlines())


def _is_held(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _start(line: dict[str, Any]) -> Start:
    return Start(
        line["slice"], line["attempt"], line["role"], line["pid"], line["at"], line["free"], frozenset(line["alive"]),
        line["head"],
    )  # fmt: skip


def _stop(line: dict[str, Any]) -> Stop:
    head = line.get("head", "")
    return Stop(line["slice"], line["attempt"], line["role"], line["pid"], line["at"], line["how"], head)
