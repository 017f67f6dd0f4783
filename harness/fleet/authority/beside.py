"""What takes place in the transaction of some commands on a PostgreSQL authority, beside them."""

from __future__ import annotations

from collections.abc import Sequence

from harness.database.postgres_wire import Result as Reply
from harness.database.postgres_wire import Statement
from harness.fleet.authority.postgres_rows import PostgresRows
from harness.fleet.ports import Result


class Beside:
    """Here, nothing. Belongs to the thread that performs the commands.

    Each try at the transaction goes from `ask` to `told`, until one succeeds; whatever these raise ends all tries. Then
    `end` or `fail` is called, once. Where the commands turn out to be done already, no try is made.

    With `presumes_new` nothing is looked at, and nothing asked: the commands are about items that are not there yet, or
    the transaction fails. For these it is 0 o'clock as it begins, unless the authority's clock was given.
    """

    presumes_new = False

    def ask(self) -> Sequence[Statement]:
        """In the exchange that looks."""
        return ()

    def hear(self, rows: PostgresRows, answers: Sequence[Reply]) -> None:
        """To what was asked."""

    def add(self, rows: PostgresRows, results: Sequence[Result]) -> Sequence[Statement]:
        """In the exchange that commits, after what the commands came to."""
        return ()

    def follow(self, results: Sequence[Result]) -> Sequence[Statement]:
        """After the commit. They may be lost."""
        return ()

    def told(self, rows: PostgresRows, answers: Sequence[Reply]) -> None:
        """To what was added, which is committed."""

    def end(self, results: Sequence[Result]) -> None:
        """The commands are done."""

    def fail(self) -> None:
        """Nobody knows yet whether they are."""
