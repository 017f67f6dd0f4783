"""Products with one defence taken out: a campaign that passes them proves nothing.

Applied in a worker's process, by the name that ENVELOPES_SABOTAGE gives, when it loads the campaign's executor. What is
replaced is a method of a port, or a rule of the ledger or the lifecycle, on SQLite.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import attrs

from harness.fleet import ledger, lifecycle
from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.commands import Claim, Command
from harness.fleet.ports import Buried, Receipt, Result
from harness.fleet.transport.sqlite import SqliteTransport
from harness.fleet.work_item import ENDED, TRANSITIONS, State, WorkItem

NAME = "ENVELOPES_SABOTAGE"


def credulous() -> None:
    """Whose an item is, is not looked at."""
    attempt = ledger._Book.attempt

    def credulously(self: ledger._Book, command: Command) -> Result:
        if isinstance(command, Claim) and command.item_id in self.items:
            command = attrs.evolve(command, tenant=self.items[command.item_id].tenant)
        return attempt(self, command)

    setattr(ledger._Book, "attempt", credulously)  # noqa: B010 - it is another product from here on


def forgetful() -> None:
    """What is nobody's is dropped."""

    def bury(_: SqliteWorkItems, __: Sequence[Buried]) -> None:
        return

    setattr(SqliteWorkItems, "bury", bury)  # noqa: B010


def twice() -> None:
    """What has ended is run again, if it comes again."""
    refusal = lifecycle._refusal

    def lenient(item: WorkItem, command: Claim, now: float) -> Exception | None:
        return None if item.state in ENDED else refusal(item, command, now)

    lifecycle._refusal = lenient
    for state in ENDED:
        TRANSITIONS[state] |= {State.LEASED}


def patient() -> None:
    """No deadline passes."""
    lifecycle.is_lapsed = lambda item, now: False


def clinging() -> None:
    """What is no item's is never let go of: only what has a session is acknowledged."""
    acknowledge = SqliteTransport.acknowledge

    def cling(self: SqliteTransport, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        kept = [each for each in receipts if "poison" not in each.place]
        answers = iter(acknowledge(self, kept))
        return tuple(next(answers) if each in kept else None for each in receipts)

    setattr(SqliteTransport, "acknowledge", cling)  # noqa: B010


SABOTAGES: dict[str, Callable[[], None]] = {
    "credulous": credulous, "forgetful": forgetful, "twice": twice, "patient": patient, "clinging": clinging,
}  # fmt: skip


def apply() -> None:
    """The one that is named, if one is."""
    name = os.environ.get(NAME)
    if name:
        SABOTAGES[name]()
