"""Items and outcomes as rows of a database: columns in the order of their classes' fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from harness.fleet.commands import Command, subject
from harness.fleet.ports import Query
from harness.fleet.work_item import Outcome, WorkItem, WorkItemState

_STATES = {state.value: state for state in WorkItemState}
TEXTS = ("cancel_cause", "checkpoint", "cause", "result")  #: may be long, and seldom change


def item_of(row: Sequence[Any]) -> WorkItem:
    """From its fields, with `depends_on` as a list or as JSON, `state` as its name and `delivered` as any truth."""
    return WorkItem(
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], listed(row[7]), row[8], _STATES[row[9]], row[10],
        row[11], row[12], row[13], row[14], row[15], row[16], bool(row[17]), row[18], row[19], row[20], row[21],
        row[22], row[23], row[24], row[25],
    )  # fmt: skip


def listed(texts: str | Sequence[str]) -> tuple[str, ...]:
    """A list, or one in JSON."""
    if not isinstance(texts, str):
        return tuple(texts)
    return () if texts == "[]" else tuple(json.loads(texts))


def outcome_of(row: Sequence[Any]) -> Outcome:
    """From its fields, with `ended` as its name and `expired` as any truth."""
    item_id, tenant, epoch, token, attempt, owner, started_at, ended_at, ended, text, expired = row
    return Outcome(
        item_id, tenant, epoch, token, attempt, owner, started_at, ended_at, _STATES[ended], text, bool(expired)
    )


def outcome_columns(outcome: Outcome) -> tuple[str | int | float, ...]:
    """As both databases take it in: the tenant is the item's."""
    return (
        outcome.item_id, outcome.epoch, outcome.token, outcome.attempt, outcome.owner, outcome.started_at,
        outcome.ended_at, outcome.ended.value, outcome.text, outcome.expired,
    )  # fmt: skip


def subjects(commands: Sequence[Command]) -> list[str]:
    """The ids that the commands are about and that an item can have, sorted."""
    return knowable({subject(command)[1] for command in commands})


def knowable(ids: Sequence[str] | set[str]) -> list[str]:
    """Those that an item can have, sorted: no other could be asked of a database that refuses such text."""
    return sorted(name for name in ids if name.isprintable())


def can_match(query: Query) -> bool:
    """Whether an item can be meant at all."""
    given = (query.tenant, query.session_id, query.kind, query.after)
    return query.limit > 0 and all(text is None or text.isprintable() for text in given)
