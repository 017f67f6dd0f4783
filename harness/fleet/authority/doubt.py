"""Whether a transaction took place whose answer was lost: found out by what it would have left, never guessed."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from harness.fleet.commands import Command, Requeue
from harness.fleet.ports import Result
from harness.fleet.work_item import Outcome, WorkItem

KEPT = 100  #: transactions in doubt that a client remembers


@attrs.frozen
class Doubt:
    """Of one transaction, which took place as a whole or not at all.

    `row` is the id of an item that it would have changed or removed, and the version of the row that this was based on:
    as long as that stands, it did not take place, and if somebody replaces it, it never will. After that one of its
    traces tells, which nobody else leaves: an outcome, word for word, or the token of a lease that it granted. Without
    either it does no harm again, save where it would be refused as done; `is_final`, then to find the row changed is to
    find it done.
    """

    results: tuple[Result, ...]
    row: tuple[str, int] | None = None
    outcome: Outcome | None = None
    claimed: WorkItem | None = None
    is_final: bool = False

    def is_dispelled(self, item: WorkItem | None, outcomes: Sequence[Outcome]) -> bool:
        """Whether it took place, by the item that the trace is about as it stands, and its outcomes."""
        if self.outcome is not None:
            return self.outcome in outcomes
        if self.claimed is not None:
            tokens = {outcome.token for outcome in outcomes} | {item.token if item is not None else 0}
            return self.claimed.token in tokens
        return self.is_final

    @property
    def about(self) -> str:
        """The id of the item that the trace is about."""
        if self.outcome is not None:
            return self.outcome.item_id
        return self.claimed.id if self.claimed is not None else ""


def is_final(commands: Sequence[Command], gone: Sequence[object]) -> bool:
    """Whether the commands, done again, would be refused because they are done."""
    return bool(gone) or any(isinstance(command, Requeue) for command in commands)
