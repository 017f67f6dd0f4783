"""Locks on sessions between all machines, as session-level advisory locks of a client's connection, which end with it;
and a look-out for changes, on another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from harness.database.postgres_wire import BrokenError, RefusedError, Result, Statement, Wire, array, statement
from harness.fleet.authority.postgres_client import PATIENCE_S, SQL, PostgresClient
from harness.fleet.authority.terms import TERMS
from harness.fleet.errors import FleetError
from harness.fleet.ledger import Session

STEP_S = 0.1  #: between two looks whether a look-out is to be closed; they ask the server nothing
AGAIN_S = 0.5  #: before another attempt to listen


class PostgresSessionLocks:
    """Those of one client, whose connection they live on. One that was lost has freed them: they are taken again, if
    nobody else was quicker, when they are used next. Belongs to one thread at a time."""

    def __init__(self, client: PostgresClient) -> None:
        self._client = client
        self._mine: set[Session] = set()
        self._wire: Wire | None = None  # on which `_mine` are locked

    def lock(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        return self._client.lasting(lambda: self._lock(sessions))

    def seize(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        return self._client.lasting(lambda: tuple([self._seize(session) for session in sessions]))

    def unlock(self, sessions: Sequence[Session]) -> None:
        def step() -> None:
            self.keep_up()
            freeing = self.freeing(sessions)
            if freeing is not None:
                self._client.run([freeing])

        self._client.lasting(step)
        self.forget(sessions)

    def close(self) -> None:
        self._mine.clear()

    # -- for who has more to say in the same exchange ------------------------------------------------------------------

    def keep_up(self) -> None:
        """On a new connection, take again what was held on the one before."""
        wire = self._client.wire
        if wire is self._wire:
            return
        mine, self._mine, self._wire = self._mine, set(), wire
        try:
            self._lock(sorted(mine))
        except BaseException:
            self._mine, self._wire = mine, None
            raise

    def asking(self, sessions: Sequence[Session]) -> Statement | None:
        """To try those that are not held already; None if all are. Its answer is to be `noted`."""
        others = self._others(sessions)
        if not others:
            return None
        return Statement(SQL["try_session_locks"], (str(self._client.wire.server_pid).encode(), *_columns(others)))

    def noted(self, sessions: Sequence[Session], answer: Result | None) -> tuple[bool, ...]:
        """Whether each was not held before, and is now. Of one that is named twice, the first was asked for."""
        rows = [] if answer is None else self._client.wire.rows(answer)
        if not all(is_ours for is_ours, _ in rows):
            raise TERMS.error(
                f"{self._client.location.url} hands out connections by transaction, which locks don't outlive; name"
                " the server itself in STATE_DB_URI"
            )
        taken = {session for session, (_, is_held) in zip(self._others(sessions), rows, strict=True) if is_held}
        self._mine |= taken
        answers = []
        for session in sessions:
            answers.append(session in taken)
            taken.discard(session)
        return tuple(answers)

    def freeing(self, sessions: Sequence[Session]) -> Statement | None:
        """To let go of those that are held, which are to be forgotten then; None if none is."""
        ours = [session for session in dict.fromkeys(sessions) if session in self._mine]
        return Statement(SQL["free_session_locks"], _columns(ours)) if ours else None

    def forget(self, sessions: Iterable[Session]) -> None:
        self._mine.difference_update(sessions)

    def lose(self) -> None:
        """All of them; those that were not forgotten are taken again when they are used next."""
        self._client.lose()

    def _lock(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        self.keep_up()
        asking = self.asking(sessions)
        return self.noted(sessions, self._told(asking) if asking is not None else None)

    def _seize(self, session: Session) -> bool:
        if self._lock([session])[0]:
            return True
        if session in self._mine:
            return False
        self._client.run([statement(SQL["cut_off_holder"], *session)])
        return self._lock([session])[0]

    def _others(self, sessions: Sequence[Session]) -> list[Session]:
        return [session for session in dict.fromkeys(sessions) if session not in self._mine]

    def _told(self, asking: Statement) -> Result:
        try:
            (result,) = self._client.run([asking])
        except RefusedError:
            self.lose()  # nobody knows which of them were locked: none, then, and again what was before
            raise
        return result


def _columns(sessions: Sequence[Session]) -> tuple[bytes, bytes]:
    return array([tenant for tenant, _ in sessions]), array([session_id for _, session_id in sessions])


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
