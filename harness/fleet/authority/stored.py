"""What an authority is asked beside its commands, once for all databases whose SQL has the same blocks.

Who looks on reads; nothing here decides anything about a life.
"""

from __future__ import annotations

import abc
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from harness.fleet.authority.codec import can_match, item_of, knowable, listed, outcome_of
from harness.fleet.commands import Hand
from harness.fleet.envelope import check_contents
from harness.fleet.lifecycle import step
from harness.fleet.ports import KEPT_S, Buried, Query, Tally, WorkerPresence
from harness.fleet.work_item import Outcome, WorkItem, WorkItemState
from harness.text import storable

Value: TypeAlias = str | int | float | bytes | list[str] | None  #: a list travels as an array of the database's own
Row: TypeAlias = tuple[Any, ...]
Asked: TypeAlias = tuple[str, tuple[Value, ...]]  #: a block and its parameters

_DOUBTS = 100  #: messages of which it is remembered that they may have been said


class StoredAuthority(abc.ABC):
    """All sides of an authority but what changes an item, and the locks."""

    schema: ClassVar[int]  #: the newest version of the tables
    _lead: ClassVar[int] = 0  # columns before those of an item

    def __init__(self, clock: Callable[[], float] | None) -> None:
        self._clock = clock
        self._perhaps_said: dict[tuple[str, str], int] = {}

    @abc.abstractmethod
    def _ask(self, *asked: Asked) -> list[list[Row]]:
        """The rows of each."""

    @abc.abstractmethod
    def _tell(self, *asked: Asked) -> list[list[Row]]:
        """The same in one transaction that writes. It may take place twice, if the first answer was lost."""

    @property
    def _now(self) -> float | None:
        """None: the database knows."""
        return None if self._clock is None else self._clock()

    # -- items ---------------------------------------------------------------------------------------------------------

    def find(self, ids: Sequence[str]) -> dict[str, WorkItem]:
        known = knowable(set(ids))
        found = self._items("find_items", known) if known else ()
        return {item.id: item for item in found}

    def search(self, query: Query) -> tuple[WorkItem, ...]:
        if not can_match(query):
            return ()
        states = sorted(state.value for state in query.states)
        limit = min(query.limit, 2**31 - 1)
        return self._items("search_items", query.after, query.tenant, query.session_id, query.kind, states, limit)

    def claimable(self, limit: int, tenant: str | None = None, kinds: Collection[str] = ()) -> tuple[WorkItem, ...]:
        wanted = knowable(set(kinds))
        if (kinds and not wanted) or (tenant is not None and not tenant.isprintable()):
            return ()
        expired = self._items("find_expired", self._now, limit, tenant, wanted)
        left = limit - len(expired)
        return expired if left <= 0 else expired + self._items("find_claimable", self._now, left, tenant, wanted)

    def overtaken(self, limit: int) -> tuple[WorkItem, ...]:
        expired = self._items("find_expired", self._now, limit, None, [])
        return expired if len(expired) >= limit else expired + self._lapsed(limit - len(expired))

    def outcomes(self, item_id: str) -> tuple[Outcome, ...]:
        if not knowable([item_id]):
            return ()
        (rows,) = self._ask(("find_outcomes", (item_id,)))
        return tuple(map(outcome_of, rows))

    def _lapsed(self, limit: int) -> tuple[WorkItem, ...]:
        return self._items("find_lapsed", self._now, limit)

    def _items(self, block: str, *values: Value) -> tuple[WorkItem, ...]:
        (rows,) = self._ask((block, values))
        return tuple(item_of(row[self._lead :]) for row in rows)

    # -- the archive ---------------------------------------------------------------------------------------------------

    def keep(self, contents: bytes) -> str:
        check_contents(contents)
        reference = f"sha256:{hashlib.sha256(contents).hexdigest()}"
        self._tell(("keep_contents", (self._now, reference, contents)))
        return reference

    def contents(self, payload_ref: str) -> bytes | None:
        if not payload_ref.isprintable():
            return None
        (rows,) = self._ask(("find_contents", (payload_ref,)))
        return bytes(rows[0][0]) if rows else None

    def say(self, item_id: str, text: str) -> int:
        """If the answer is lost, the same text said again takes the number that it may have."""
        item_id, text = storable(item_id), storable(text)
        number = self._perhaps_said.get((item_id, text), 0)
        while True:
            number = number or self._last_message(item_id) + 1
            self._perhaps_said[item_id, text] = number
            if len(self._perhaps_said) > _DOUBTS:
                del self._perhaps_said[next(iter(self._perhaps_said))]
            self._tell(("add_message", (item_id, number, text)))
            if (number, text) in self.said(item_id, number - 1)[:1]:
                self._perhaps_said.pop((item_id, text), None)
                return number
            number = 0  # somebody else's message has it

    def said(self, item_id: str, after: int) -> tuple[tuple[int, str], ...]:
        (rows,) = self._ask(("find_messages", (storable(item_id), after)))
        return tuple((number, text) for number, text in rows)

    def bury(self, found: Sequence[Buried]) -> None:
        now = self._now
        texts = [tuple(map(storable, (each.digest, each.cause, each.job_id, each.tenant))) for each in found]
        graves = zip(texts, found, strict=True)
        self._tell(*(("bury", (now, *some, each.count)) for some, each in graves))

    def graves(self, limit: int) -> tuple[Buried, ...]:
        (rows,) = self._ask(("find_graves", (limit,)))
        return tuple(Buried(*row) for row in rows)

    def _last_message(self, item_id: str) -> int:
        ((row,),) = self._ask(("last_message", (item_id,)))
        return int(row[0])

    # -- the registry --------------------------------------------------------------------------------------------------

    def beat(self, presence: WorkerPresence) -> None:
        now, kinds = self._now, json.dumps(presence.kinds)
        about = (presence.token, kinds, presence.slots, presence.busy, presence.every_s, presence.queue)
        self._tell(("beat", (now, *about)), ("forget_workers", (now, KEPT_S)))

    def leave(self, token: str) -> None:
        self._tell(("forget_worker", (token,)))

    def workers(self, within_s: float) -> tuple[WorkerPresence, ...]:
        (rows,) = self._ask(("find_workers", (self._now, within_s)))
        return tuple(WorkerPresence(token, listed(kinds), *rest) for token, kinds, *rest in rows)

    def tally(self) -> Tally:
        now = self._now
        items, outcomes, ((at, overdue, overdue_s),), due = self._ask(
            ("tally_items", ()), ("tally_outcomes", ()), ("tally_expired", (now,)), ("tally_due", (now,))
        )
        ended: Counter[WorkItemState] = Counter()
        for state, _, count in outcomes:
            ended[WorkItemState(state)] += count
        return Tally(
            at=at,
            schema=self.schema,
            items={WorkItemState(state): count for state, count in items},
            outcomes=ended,
            expired=sum(count for _, expired, count in outcomes if expired),
            overdue=overdue,
            overdue_s=overdue_s,
            due=dict(due),
        )


def handed(found: Mapping[str, WorkItem], now: float) -> list[WorkItem]:
    """The items after a pump took on their delivery."""
    after = (step(item, Hand(item.id, item.tenant), now).item for item in found.values())
    return [item for item in after if item is not None]
