"""Locks on sessions between all machines, as session-level advisory locks of a connection of their own, which end with
it; and a look-out for changes, on another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from harness.database.postgres_wire import BrokenError, RefusedError, Statement, Wire, statement
from harness.fleet.authority.postgres_client import PATIENCE_S, SQL, PostgresClient
from harness.fleet.authority.terms import TERMS
from harness.fleet.errors import FleetError
from harness.fleet.ledger import Session

STEP_S = 0.1  #: between two looks whether a look-out is to be closed; they ask the server nothing
AGAIN_S = 0.5  #: before another attempt to listen
Answer = TypeVar("Answer")


class PostgresSessionLocks:
    """Those of one client. A connection that was lost has freed its locks: they are taken again, if nobody else was
    quicker, when the client is used next. Belongs to one thread at a time."""

    def __init__(self, client: PostgresClient) -> None:
        self._client = client
        self._mine: set[Session] = set()
        self._wire: Wire | None = None  # on which `_mine` are locked

    def lock(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        return self._client.lasting(lambda: self._try(sessions))

    def seize(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        return self._client.lasting(lambda: tuple([self._seize(session) for session in sessions]))

    def unlock(self, sessions: Sequence[Session]) -> None:
        self._client.lasting(lambda: self._unlock(sessions))

    def close(self) -> None:
        self._mine.clear()
        self._client.close()

    def _try(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        """Of one that is named twice, the first is asked for."""
        self._lock_again()
        answers = [False] * len(sessions)
        others = {session: place for place, session in reversed([*enumerate(sessions)]) if session not in self._mine}
        pid = self._client.wire.server_pid
        for session, answer in zip(others, self._ask("lock_session", [(pid, *each) for each in others]), strict=True):
            if not answer[0]:
                raise TERMS.error(
                    f"{self._client.location.url} hands out connections by transaction, which locks don't outlive; name"
                    " the server itself in STATE_DB_URI"
                )
            if answer[1]:
                self._mine.add(session)
                answers[others[session]] = True
        return tuple(answers)

    def _seize(self, session: Session) -> bool:
        if self._try([session])[0]:
            return True
        if session in self._mine:
            return False
        self._ask("cut_off_holder", [session])
        return self._try([session])[0]

    def _unlock(self, sessions: Sequence[Session]) -> None:
        self._lock_again()
        ours = [session for session in dict.fromkeys(sessions) if session in self._mine]
        self._mine.difference_update(ours)
        answers = self._ask("unlock_session", ours)
        assert all(answer[0] for answer in answers), "they were locked on this connection"

    def _lock_again(self) -> None:
        if self._client.wire is not self._wire:
            mine, self._mine, self._wire = self._mine, set(), self._client.wire
            self._try(sorted(mine))

    def _ask(self, block: str, asked: Sequence[tuple[str | int, ...]]) -> list[tuple[bool, ...]]:
        """The same of each, in one exchange; the first row of each answer, empty if there is none."""
        if not asked:
            return []
        try:
            results = self._client.run([statement(SQL[block], *values) for values in asked])
        except RefusedError:
            if len(asked) > 1:
                self._client.close()  # nobody knows which of them were locked: none, then, and again what was before
            raise
        return [next(iter(self._client.wire.rows(result)), ()) for result in results]


class PostgresWatch:
    """Listens for the hints of those who end items. While there is no way to listen, it hints at nothing."""

    def __init__(self, client: PostgresClient) -> None:
        self._connection: Callable[[], Wire] = client.connection
        self._closed = threading.Event()
        self._mutex = threading.Lock()
        self._wire: Wire | None = None
        self._listen()

    def wait(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self._closed.is_set():
            left = end - time.monotonic()
            if left <= 0:
                return False
            if self._wire is None:
                self._closed.wait(min(AGAIN_S, left))
                if self._listens_again():
                    return True  # who knows what went by meanwhile
            elif self._is_told(min(STEP_S, left)):
                return not self._closed.is_set()
        return False

    def close(self) -> None:
        self._closed.set()
        with self._mutex:
            self._hang_up()

    def _is_told(self, seconds: float) -> bool:
        with self._mutex:
            try:
                return self._wire is not None and self._wire.notified(seconds, b"")
            except BrokenError:
                self._hang_up()
                return False

    def _listens_again(self) -> bool:
        try:
            self._listen()
        except FleetError:
            return False
        return True

    def _listen(self) -> None:
        """Raises the fleet's errors."""
        with self._mutex:
            if self._closed.is_set():
                return
            wire = self._connection()
            try:
                wire.run([Statement(SQL["listen"]), Statement(SQL["say_that_somebody_listens"])], PATIENCE_S)
            except (BrokenError, RefusedError) as error:
                wire.close()
                raise TERMS.unavailable(
                    f"nobody listens to the authority for now ({error}); see that it is well"
                ) from error
            self._wire = wire

    def _hang_up(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
