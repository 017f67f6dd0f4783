"""A host whose sessions take no time: what is left is the scheduler's own cost."""

from __future__ import annotations

import threading
from collections.abc import Callable

from harness import Assignment, SessionPhase, SessionState


class InstantHost:
    """Reports every session as merged from `submit`. `all_submitted` is set at the `expected`-th."""

    def __init__(self, expected: int) -> None:
        self.submitted = 0
        self.all_submitted = threading.Event()
        self._expected = expected
        self._report: Callable[[SessionState], None]

    def connect(self, report: Callable[[SessionState], None]) -> None:
        self._report = report

    async def submit(self, assignment: Assignment) -> None:
        self.submit_nowait(assignment)

    def submit_nowait(self, assignment: Assignment) -> None:
        self._report(SessionState(assignment.assignment_id, SessionPhase.MERGED))
        self.submitted += 1
        if self.submitted == self._expected:
            self.all_submitted.set()

    async def send(self, assignment_id: str, message: str) -> str:
        raise ProcessLookupError(f"{assignment_id} has ended: a session here takes no time")

    async def cancel(self, assignment_id: str) -> None:
        """It has ended."""
