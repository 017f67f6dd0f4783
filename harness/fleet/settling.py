"""Turns that end and turns that begin, to be settled together: what that means for whoever does it, and however."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from harness.fleet.commands import Command
from harness.fleet.ports import Ending, Opening, Receipt, Result, Settlement
from harness.fleet.work_item import WorkItem


@attrs.frozen
class Settling:
    """`results` are always those of `commands`, in this order; `locked` is of each opening whether its session's lock
    is held now, and was not before."""

    endings: Sequence[Ending]
    openings: Sequence[Opening]

    @property
    def commands(self) -> list[Command]:
        return [*(each.command for each in self.endings), *(each.claim for each in self.openings)]

    @property
    def sessions(self) -> list[tuple[str, str]]:
        """Those of the openings, whose locks are to be tried."""
        return [each.session for each in self.openings]

    def acknowledged(self, results: Sequence[Result]) -> list[Receipt]:
        """Of the endings that are written down. Whose lease was lost acknowledges nothing."""
        pairs = zip(self.endings, results[: len(self.endings)], strict=True)
        return [each.receipt for each, result in pairs if isinstance(result, WorkItem)]

    def done_with(self, results: Sequence[Result], locked: Sequence[bool]) -> list[tuple[str, str]]:
        """The sessions whose locks are to be freed: of all that ended, and of what could not begin."""
        opened = zip(self.openings, locked, results[len(self.endings) :], strict=True)
        refused = [each.session for each, is_ours, result in opened if is_ours and not isinstance(result, WorkItem)]
        return [*(each.session for each in self.endings), *refused]

    def settlement(self, results: Sequence[Result], locked: Sequence[bool]) -> Settlement:
        number = len(self.endings)
        return Settlement(tuple(results[:number]), tuple(results[number:]), tuple(locked))
