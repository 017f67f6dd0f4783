"""What tests of the command line work at: a throwaway repository, plans in it, and the program as it is typed."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dispatch.cli import serve

LIMIT_S = 60.0

# A shell that starts a program in the background ignores SIGINT for it, and for all that it starts in turn.
_HEEDING = (
    "import os, signal, sys\n"
    "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_DFL)\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)


class Desk:
    """A repository `repo` with one commit on main, and a state directory of its own, below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.repo, self.state = folder, folder / "repo", folder / "state"
        self._started: list[subprocess.Popen[str]] = []
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_STATE_HOME": str(self.state),
            "GIT_CONFIG_NOSYSTEM": "1",
            "COLUMNS": "100",
            "LANG": "C.UTF-8",
            "MARKS": str(folder / "marks"),
        }
        (folder / "marks").mkdir()
        self.repo.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Person")
        self.git("config", "user.email", "person@example.org")
        (self.repo / "a.txt").write_text("one\n")
        self.git("add", "a.txt")
        self.git("commit", "-q", "-m", "first")

    def git(self, *words: str) -> str:
        done = subprocess.run(("git", *words), cwd=self.repo, capture_output=True, text=True, check=True)
        return done.stdout.rstrip("\n")

    def plan(self, text: str, name: str = "plan.toml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def mark(self, name: str) -> Path:
        """A file by which an agent says that it got somewhere: `$MARKS/<name>`."""
        return self.folder / "marks" / name

    def run(self, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        """The program, to its end."""
        return subprocess.run(
            self._command(arguments),
            cwd=self.repo,
            env=self.env | env,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def ask(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """The same inside this process, which saves the start of an interpreter: for commands that are soon done."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.chdir(self.repo)
            for name, value in self.env.items():
                patch.setenv(name, value)
            patch.delenv("DISPATCH_STORE", raising=False)
            status = serve([str(argument) for argument in arguments])
        words = [str(argument) for argument in arguments]
        return subprocess.CompletedProcess(words, status, *(_text(stream) for stream in (out, err)))

    def start(self, *arguments: str | Path, **streams: Any) -> subprocess.Popen[str]:
        """The program, under way; it heeds signals whatever those who started us ignore."""
        command = [sys.executable, "-c", _HEEDING, *self._command(arguments)]
        given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        process = subprocess.Popen(command, cwd=self.repo, env=self.env, text=True, **given)
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what a failed test has left running."""
        for process in self._started:
            process.kill()
            process.wait(LIMIT_S)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        for pid in self.agents():
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(pid, signal.SIGKILL)

    def document(self, *arguments: str | Path) -> Any:
        """What the program prints as JSON."""
        done = self.ask(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
        return json.loads(done.stdout)

    def merged(self) -> list[str]:
        """The slices merged into main, first to last, by its history."""
        text = self.git("log", "--reverse", "--format=%(trailers:key=Dispatch-Slice,valueonly,separator=%x2C)", "main")
        return list(dict.fromkeys(line for line in text.splitlines() if line))

    def agents(self) -> list[int]:
        """The processes that still run for a session of this repository."""
        return list(self._carriers(f"MARKS={self.folder / 'marks'}".encode(), b"DISPATCH_SESSION="))

    def check_clean(self) -> None:
        """Nothing is left of a run: no process, no lock, no half merge, nothing in the user's way."""
        assert self.agents() == []
        assert self.git("status", "--porcelain") == ""
        git_dir = self.repo / ".git"
        assert list((git_dir / "dispatch" / "sessions").glob("*/*")) == []
        for path in git_dir.rglob("*lock"):
            assert (git_dir / "dispatch") in path.parents, f"{path} is left"
            with path.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not (git_dir / "MERGE_HEAD").exists()
        self.git("fsck", "--no-dangling")

    def _command(self, arguments: tuple[str | Path, ...]) -> list[str]:
        return [sys.executable, "-m", "dispatch", *map(str, arguments)]

    def _carriers(self, *variables: bytes) -> Iterator[int]:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                try:
                    environment = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if all(variable in environment for variable in variables):
                    yield int(entry.name)


def _text(stream: io.TextIOWrapper) -> str:
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined, no-any-return]


def until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait for something that `process`, or a child of its, does and sends no word of."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert process.poll() is None, f"it ended before: {process.communicate()}"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def end(process: subprocess.Popen[str], *signals: signal.Signals) -> tuple[int, str, str]:
    """Send the signals, wait for the end: status, stdout, stderr."""
    for number in signals:
        process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out or "", err or ""
