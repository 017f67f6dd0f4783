"""What all sessions of a host share, and the queue in which they merge."""

from __future__ import annotations

import collections
import functools
import os
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from harness.local.binding import Bindings
from harness.local.errors import InvalidAssignmentError, NotOwnedError
from harness.local.git import scrubbed
from harness.local.log import log_path
from harness.local.process import ProcessWatcher
from harness.local.record import NAME, Records
from harness.local.repository import Repository
from harness.local.worktree import Pool
from harness.session import Assignment, SessionState

BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,199}")


class MergeQueue:
    """Whose turn it is to merge: one at a time, first come, first served. Safe to use from many threads.

    Who waits is called back when the turn comes, and must then `leave`.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: collections.deque[Callable[[], None]] = collections.deque()

    def join(self, turn: Callable[[], None]) -> None:
        """`turn` is called once: now if nobody is before, else when those before have left. It must not block."""
        with self._mutex:
            self._waiting.append(turn)
            first = len(self._waiting) == 1
        if first:
            turn()

    def leave(self, turn: Callable[[], None]) -> None:
        """Gives the turn up, or the place in the queue; the next one's turn may come by it."""
        with self._mutex:
            had_turn = self._waiting[0] is turn
            self._waiting.remove(turn)
            following = self._waiting[0] if had_turn and self._waiting else None
        if following is not None:
            following()


class Claim:
    """Whether the graphs that this host runs are its own; without a fence they are. Safe to use from many threads.

    A graph is taken up once for each claim on it.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._taking: dict[str, threading.Lock] = {}
        self._taken_up: set[str] = set()
        self.owned: Callable[[], bool] = always

    def fence(self, owned: Callable[[], bool]) -> None:
        """A new claim: `owned` says whether it certainly still holds."""
        with self._mutex:
            self.owned = owned
            self._taking, self._taken_up = {}, set()

    def check(self) -> None:
        """Raises `NotOwnedError` if the graph may be another process's by now."""
        if not self.owned():
            raise NotOwnedError

    def take_up(self, graph_id: str, take: Callable[[str], None]) -> None:
        """Returns once `take` was done for the graph. What it raises leaves it to be done by the next who asks."""
        with self._mutex:
            taking, taken_up = self._taking.setdefault(graph_id, threading.Lock()), self._taken_up
        with taking:
            if graph_id not in taken_up:
                take(graph_id)
                taken_up.add(graph_id)


def always() -> bool:
    return True


@attrs.frozen
class Site:
    """A repository with all that its sessions need. `report` is where their states go, from any thread.

    `host` is a random name that tells the sessions of this host from all others.
    """

    repository: Repository
    pool: Pool
    records: Records
    bindings: Bindings
    watcher: ProcessWatcher
    merges: MergeQueue
    state_dir: Path
    report: Callable[[SessionState], None]
    claim: Claim = attrs.field(factory=Claim)
    host: str = attrs.field(factory=lambda: secrets.token_hex(8))

    def log_of(self, graph_id: str, slice_id: str, attempt: int) -> Path:
        return log_path(self.state_dir, graph_id, slice_id, attempt)

    def environment(self, worktree: Path, own: Mapping[str, str], contract: Mapping[str, str]) -> dict[str, str]:
        """An agent's: the host's, without ties to another repository, then the recipe's `own`, then the contract's.

        The ceiling keeps git, in a worktree that lost its `.git` file, from taking the repository around it instead.
        """
        ceiling = str(worktree.parent)
        inherited = os.environ.get("GIT_CEILING_DIRECTORIES")
        host = scrubbed(os.environ) | {
            "GIT_CEILING_DIRECTORIES": f"{ceiling}:{inherited}" if inherited else ceiling,
            "PWD": str(worktree),
        }
        return {**host, **self.repository.identity, **own, **contract}


def check(assignment: Assignment) -> None:
    """Raises `InvalidAssignmentError` if a field could name a place outside of ours, or nothing that git accepts."""
    for field in ("graph_id", "slice_id"):
        check_name(field, getattr(assignment, field))
    if assignment.assignment_id != f"{assignment.slice_id}@{assignment.attempt}" or assignment.attempt < 1:
        raise InvalidAssignmentError("assignment_id", assignment.assignment_id)
    if not is_branch_name(assignment.branch):
        raise InvalidAssignmentError("branch", assignment.branch)


def check_name(field: str, value: str) -> None:
    """Raises `InvalidAssignmentError` if it could name a place outside of ours."""
    if not NAME.fullmatch(value) or ".." in value or value.endswith((".", ".lock")):
        raise InvalidAssignmentError(field, value)


@functools.lru_cache(maxsize=64)
def is_branch_name(name: str) -> bool:
    """A stricter grammar than that of `git check-ref-format`: nothing here needs quoting anywhere."""
    parts = name.split("/")
    return bool(BRANCH.fullmatch(name)) and not any(
        part == "" or part.startswith((".", "-")) or part.endswith((".", ".lock")) or ".." in part for part in parts
    )
