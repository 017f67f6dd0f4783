"""Products with one defence taken out: a campaign that passes them proves nothing.

Applied in a worker's process, by the name that FENCING_SABOTAGE gives, when it loads the campaign's executor.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import attrs

from harness.fleet import lifecycle
from harness.fleet.commands import Holding
from harness.fleet.lease import WorkItemLeaseGuard
from harness.fleet.work_item import HELD, WorkItem

NAME = "FENCING_SABOTAGE"


def unguarded() -> None:
    """Effects are had without asking whose the item is."""

    def side_effect(_: WorkItemLeaseGuard, effect: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return effect(*args, **kwargs)

    setattr(WorkItemLeaseGuard, "side_effect", side_effect)  # noqa: B010 - it is another product from here on
    setattr(WorkItemLeaseGuard, "safepoint", lambda _: None)  # noqa: B010


def unfenced() -> None:
    """A lease is taken for good, whoever holds the item by now."""
    fenced = lifecycle._in_the_name_of

    def in_the_name_of(item: WorkItem, command: Holding, now: float) -> lifecycle.Step:
        if item.state in HELD:
            command = attrs.evolve(command, lease=item.lease)
        return fenced(item, command, now)

    lifecycle._in_the_name_of = in_the_name_of


SABOTAGES: dict[str, Callable[[], None]] = {"unguarded": unguarded, "unfenced": unfenced}


def apply() -> None:
    """The one that is named, if one is."""
    name = os.environ.get(NAME)
    if name:
        SABOTAGES[name]()
