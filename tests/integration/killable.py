"""The process of `scheduler.py`, as a fixture: runs of a host that a test can kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.workshop import Repo

ROOT = Path(__file__).parents[2]
Work = tuple[str, int, str, tuple[str, ...]]  #: slice, attempt, script, verify command


class Scheduler:
    """Starts runs, one at a time."""

    def __init__(self) -> None:
        command = (sys.executable, "-m", "tests.integration.scheduler")
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, repo: Repo, out: Path, *work: Work, path: str = "", close: bool = True) -> int:
        """The pid of the run, which has begun."""
        assert self._process.stdin is not None
        order = {
            "repo": str(repo.path),
            "path": path or os.environ["PATH"],
            "out": str(out),
            "slices": work,
            "close": close,
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._number("pid")

    def end(self) -> int:
        """The exit status of the run: 0, or -9 if it was killed."""
        return self._number("exit")

    def run(self, repo: Repo, out: Path, *work: Work, path: str = "") -> int:
        self.start(repo, out, *work, path=path)
        return self.end()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def _number(self, what: str) -> int:
        """The next line's; anything but the line expected must not be taken for a pid to kill."""
        assert self._process.stdout is not None
        word, number = self._process.stdout.readline().split()
        assert word == what
        return int(number)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    process = Scheduler()
    yield process
    process.close()


def reports(out: Path) -> list[list[str]]:
    """`[assignment id, phase, detail]` of each end that was reported, in order."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
