"""The remote as a graph's scheduler uses it: main goes there for workers to begin with; their work comes from it."""

from __future__ import annotations

import threading

from harness.fleet.agent_turn import AgentReport, main_branch, work_branch
from harness.fleet.clone import ABSENT, STALE, unattended
from harness.fleet.errors import InvalidTurnError
from harness.local.errors import GitError
from harness.local.record import Record, Records
from harness.local.repository import Repository
from harness.session import Assignment


class Remote:
    """`repository` is the scheduler's own, `address` what its git knows the remote by. May be used from any thread;
    each method takes as long as the network does, and raises `GitError` for what is in the way."""

    def __init__(self, repository: Repository, address: str) -> None:
        self._repository, self._address = repository, address
        self._git = unattended(repository.git)
        self._records = Records(repository.root)
        self._mutex = threading.Lock()
        self._published: dict[str, str] = {}

    def publish_main(self, graph_id: str) -> None:
        """Workers begin with main as it is now, or later."""
        with self._mutex:
            tip = self._repository.tip(self._repository.main_ref)
            if self._published.get(graph_id) != tip:
                self._push(f"+{tip}:refs/heads/{main_branch(graph_id)}")
                self._published[graph_id] = tip

    def publish_kept(self, assignment: Assignment) -> None:
        """The attempt goes on from what the one before left, if that was to be resumed. What is there stays: a worker
        may have gone on already."""
        record = self._records.read(assignment.graph_id, assignment.slice_id)
        kept = self._kept(record) if record is not None and record.resume else ""
        if not kept or self._repository.contains(kept, self._repository.main_ref):
            return
        ref = f"refs/heads/{work_branch(assignment)}"
        try:
            self._push(f"{kept}:{ref}", f"--force-with-lease={ref}:")
        except GitError as error:
            if not STALE.search(error.said):
                raise

    def fetch(self, assignment: Assignment, report: AgentReport) -> None:
        """Brings the reported work here. Raises `InvalidTurnError` if the branch doesn't have it as reported."""
        if not report.commit or self._has_come(assignment, report.commit):
            return
        branch, ref = work_branch(assignment), self.ref_of(assignment)
        words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", self._address)
        try:
            self._git(*words, f"+refs/heads/{branch}:{ref}")
        except GitError as error:
            if ABSENT.search(error.said):
                raise InvalidTurnError("commit", f"the remote has no branch {branch}") from error
            raise
        found = self._repository.tip(ref)
        if found != report.commit:
            raise InvalidTurnError("commit", f"{branch} is at {found[:12]}, not at {report.commit[:12]}")

    def is_safe(self, assignment: Assignment, commit: str) -> bool:
        """Whether main has the commit by now, or a ref that keeps the attempt's work."""
        if self._repository.contains(commit, self._repository.main_ref):
            return True
        kept = self._kept(self._records.read(assignment.graph_id, assignment.slice_id))
        return bool(kept) and self._repository.contains(commit, kept)

    def drop(self, assignment: Assignment) -> None:
        """Removes the attempt's branch, there and here: its work is safe."""
        if ref := self._repository.tip(self.ref_of(assignment)):
            self._repository.git("update-ref", "-d", self.ref_of(assignment), ref)
        try:
            self._push(f":refs/heads/{work_branch(assignment)}")
        except GitError as error:
            if "remote ref does not exist" not in error.said:
                raise

    def ref_of(self, assignment: Assignment) -> str:
        """Where the work is here until it is merged, or kept."""
        return f"refs/dispatch/fleet/{assignment.graph_id}/{assignment.slice_id}/{assignment.attempt}"

    def _has_come(self, assignment: Assignment, commit: str) -> bool:
        """Whether an earlier run had fetched it, and began to merge it: the attempt's own record says so."""
        record = self._records.read(assignment.graph_id, assignment.slice_id)
        if record is None or record.session != assignment.assignment_id:
            return False
        return commit in (record.work, self._kept(record)) and self._repository.has_ref_to(commit)

    def _kept(self, record: Record | None) -> str:
        return self._repository.tip(record.kept) if record is not None and record.kept else ""

    def _push(self, spec: str, *words: str) -> None:
        self._git("push", "--quiet", "--no-verify", *words, "--", self._address, spec)
