"""The order of a SQLite queue, kept in tables: who is next is the first row of an index.

Theory of operation. A group's first delivery makes it ready; a tenant's ready groups of one class make a lane, which
knows the first of them; the lanes of all tenants are in one index, in which the next claim comes first. Whatever
changes a group is followed by looking its first delivery up again, and then the first group of its lane: a few
look-ups, each the first row of an index, however much waits.

Everything here happens within a transaction of the caller's that may write.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from harness.database.queries import named_blocks
from harness.fleet.envelope import LEAST_URGENT, MOST_URGENT, opaque
from harness.fleet.fairness import is_expired

SQL = named_blocks("harness.fleet.transport", "sqlite.sql")
FOLD_AT = 256  #: so many notes are worked off by whoever writes, so that no receiver finds a hundred thousand
EXPIRED = 4  #: what a class is less than its priority once the deadline has passed


@attrs.frozen
class Claimed:
    place: int
    number: int


@attrs.define
class _Tally:
    """Of a tenant or a group: how its size changes, and how low it gets on the way."""

    tenant: str
    change: int = 0
    low: int = 0

    def count(self, step: int) -> None:
        self.change += step
        self.low = min(self.low, self.change)


class Order:
    """On an open connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._do = connection.execute
        self._many = connection.executemany

    def claim(self, owner: str, limit: int, now: float, until: float) -> list[Claimed]:
        """The next ones, as if one by one."""
        self.fold(now)
        self._change(now)
        (number,) = self._do(SQL["last_claim"]).fetchone()
        claimed: list[Claimed] = []
        tenants: dict[str, int] = {}
        while len(claimed) < limit and (lane := self._do(SQL["next_lane"]).fetchone()) is not None:
            tenant, class_, group, place = lane
            number += 1
            self._do(SQL["claim_entry"], {"place": place, "owner": owner, "now": now, "number": number, "until": until})
            self._do(SQL["serve_group"], {"grp": group, "number": number})
            self._do(SQL["serve_other_lanes"], {"tenant": tenant, "class": class_, "number": number})
            tenants[tenant] = number
            self._refresh_lane(tenant, class_, number)
            claimed.append(Claimed(place, number))
        self._many(SQL["serve_tenant"], [{"tenant": name, "number": last} for name, last in tenants.items()])
        self._do(SQL["note_claims"], (number,))
        return claimed

    def give_back(self, claims: Iterable[dict[str, Any]], due: float) -> list[bool]:
        """Of each, whether it was theirs to give back."""
        groups = [self._do(SQL["give_back"], {**claim, "due": due}).fetchone() for claim in claims]
        self._refresh(group for found in groups if found for group in found)
        return [found is not None for found in groups]

    def fold_many(self, now: Callable[[sqlite3.Connection], float]) -> None:
        """If there are many notes."""
        (count,) = self._do(SQL["count_notes"]).fetchone()
        if count >= FOLD_AT:
            self.fold(now(self._connection))

    def fold(self, now: float) -> None:
        """Work off the notes."""
        notes = self._do(SQL["notes"]).fetchall()
        if not notes:
            return
        come = {row[0]: _entry(row, now) for row in of_strangers(self._connection, SQL["noted"])}
        tenants, groups = _tallies(notes, come)
        self._many(SQL["remove_entry"], [(place,) for place in {note[0] for note in notes}])
        self._many(SQL["add_entry"], come.values())
        self._many(
            SQL["resize_tenant"],
            [{"tenant": name, "change": one.change, "low": one.low} for name, one in tenants.items()],
        )
        self._many(
            SQL["resize_group"],
            [{"grp": name, "tenant": one.tenant, "change": one.change, "low": one.low} for name, one in groups.items()],
        )
        self._refresh(groups)
        self._many(SQL["forget_group"], [(name,) for name in groups])
        self._many(SQL["forget_tenant"], [(name,) for name in tenants])
        self._do(SQL["forget_notes"])

    # -- by the hour ---------------------------------------------------------------------------------------------------

    def _change(self, now: float) -> None:
        """What time alone has changed: deadlines that passed, delays and receivers' times that are over."""
        found = self._do(SQL["changing"], {"now": now}).fetchall()
        changes, groups = [], set()
        for place, group, state, priority, class_, deadline in found:
            expired = is_expired(deadline, now)
            new = priority - EXPIRED if expired else priority
            if state != 0 or new != class_:
                due = None if expired or math.isinf(deadline) else deadline
                changes.append({"place": place, "class": new, "changes_at": due})
                groups.add(group)
        self._many(SQL["change"], changes)
        self._refresh(groups)

    # -- what follows from what ----------------------------------------------------------------------------------------

    def _refresh(self, groups: Iterable[str]) -> None:
        """Whatever follows from a change to these groups or to entries of theirs."""
        names = list(groups)
        if not names:
            return
        meant = (json.dumps(names),)
        before = self._do(SQL["lanes_of_groups"], meant).fetchall()
        self._many(SQL["set_group"], [(name,) for name in names])
        for tenant, class_ in {*before, *self._do(SQL["lanes_of_groups"], meant).fetchall()}:
            self._refresh_lane(tenant, class_)

    def _refresh_lane(self, tenant: str, class_: int, served: int | None = None) -> None:
        """`served`: by which claim the tenant was, if that is not written down yet."""
        lane = {"tenant": tenant, "class": class_}
        first = self._do(SQL["first_of_lane"], lane).fetchone()
        if first is None:
            self._do(SQL["remove_lane"], lane)
        else:
            names = ("deadline", "enqueued_at", "job_id", "grp", "place")
            self._do(SQL["set_lane"], {**lane, "served": served, **dict(zip(names, first, strict=True))})


def of_strangers(connection: sqlite3.Connection, statement: str, *values: str) -> list[Any]:
    """Rows whose texts anybody may have written: what is no UTF-8 is kept as it is, by surrogates."""
    factory, connection.text_factory = connection.text_factory, lambda raw: raw.decode("utf-8", "surrogateescape")
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.text_factory = factory


def _entry(row: Sequence[Any], now: float) -> dict[str, Any]:
    """The row of an entry for that of a delivery, which anybody may have written: what it can't be, it isn't."""
    place, job_id, session_id, tenant, priority, deadline, enqueued_at = row
    known = isinstance(priority, int) and MOST_URGENT <= priority <= LEAST_URGENT
    priority = priority if known else LEAST_URGENT
    deadline = _number(deadline, math.inf)
    expired = is_expired(deadline, now)
    return {
        "place": place,
        "job_id": _text(job_id),
        "tenant": opaque(_text(tenant)),
        "grp": opaque(_text(tenant), _text(session_id) or _text(job_id)),
        "priority": priority,
        "class": priority - EXPIRED if expired else priority,
        "deadline": deadline,
        "enqueued_at": _number(enqueued_at, 0.0),
        "changes_at": None if expired or math.isinf(deadline) else deadline,
    }


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) else otherwise


def _text(value: object) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _tallies(
    notes: Sequence[tuple[int, int, str | None, str | None]], come: dict[int, dict[str, Any]]
) -> tuple[dict[str, _Tally], dict[str, _Tally]]:
    """By tenant and by group. A note tells the place, what happened, and whose the entry was, if there was one; what
    came and went since is neither among the entries nor among those that have `come`."""
    tenants: dict[str, _Tally] = {}
    groups: dict[str, _Tally] = {}

    def count(tenant: str, group: str, step: int) -> None:
        tenants.setdefault(tenant, _Tally(tenant)).count(step)
        groups.setdefault(group, _Tally(tenant)).count(step)

    for place, change, tenant, group in notes:
        new = come.get(place)
        if new is not None and (change == 1 or (change == 0 and group is not None)):
            count(new["tenant"], new["grp"], 1)
        if tenant is not None and group is not None and (change == -1 or (change == 0 and new is not None)):
            count(tenant, group, -1)
    return tenants, groups
