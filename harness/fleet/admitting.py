"""Turns that are submitted and delivered in one transaction, or not this way: what both joints make of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from harness.fleet.commands import Command, Deliver, Submit
from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.ports import Result
from harness.fleet.work_item import Submission, WorkItem, WorkItemState


class NotThisWayError(Exception):
    """Not all of them could be admitted in one transaction."""


@attrs.frozen
class Admitting:
    """`results` are always those of `commands`, in this order."""

    submissions: Sequence[Submission]

    @property
    def is_possible(self) -> bool:
        """Not where the time of one may not have come: whether it needs a delivery is for the database's clock."""
        return all(submission.not_before <= 0 for submission in self.submissions)

    @property
    def presumes_new(self) -> bool:
        """Whether nothing has to be looked at, if they are new."""
        return not any(submission.depends_on for submission in self.submissions)

    @property
    def commands(self) -> list[Command]:
        """Submitted first. Said to be delivered is only what turns out to be ready."""
        submits = [Submit(submission) for submission in self.submissions]
        return [*submits, *(Deliver(submission.id, submission.tenant) for submission in self.submissions)]

    def items(self, results: Sequence[Result], is_new: Callable[[str], bool]) -> tuple[WorkItem, ...]:
        """As they stand after it. Raises `NotThisWayError` if one was refused, or is not new."""
        delivered = results[len(self.submissions) :]
        items = tuple(each for each in delivered if isinstance(each, WorkItem))
        if len(items) < len(delivered) or not all(is_new(item.id) for item in items):
            raise NotThisWayError
        return items


def deliveries(items: Sequence[WorkItem]) -> list[AgentTurnEnvelope]:
    """Of those that are ready, each once."""
    ready = {item.id: item.envelope(item.changed_at) for item in items if item.state is WorkItemState.READY}
    return list(ready.values())
