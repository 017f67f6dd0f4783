"""Who is next: the order in which deliveries are claimed, as a sort.

Theory of operation. Of what may be handed out, the next is the least by seven keys: a deadline that has passed goes
first (to be cancelled promptly), then the priority, then the tenant that was served longest ago, then the fairness
group that was, then the deadline (none is the last), the time it was enqueued, and its id. What was never served was
served longest ago. Every claim serves a tenant and a group, so that claiming several is claiming one after the other.
Of a group, one delivery is out at a time, and nothing else of it may be handed out meanwhile.

A history knows opaque references only, and of none that has no queued work left. Adapters keep this order in tables;
this is what they are measured by.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import attrs

from harness.fleet.envelope import LEAST_URGENT, AgentTurnEnvelope, opaque

Key = tuple[bool, int, int, int, float, float, str]


@attrs.frozen
class Waiting:
    """A delivery, as far as the order is concerned. `tenant` and `group` are opaque references."""

    job_id: str
    tenant: str
    group: str
    priority: int = LEAST_URGENT
    deadline: float | None = None
    enqueued_at: float = 0.0

    @classmethod
    def of(cls, envelope: AgentTurnEnvelope) -> Waiting:
        tenant = opaque(envelope.tenant)
        return cls(envelope.job_id, tenant, envelope.group, envelope.priority, envelope.deadline, envelope.enqueued_at)


@attrs.define
class History:
    """When whom a claim served last: by the number of the claim, from 1. Who is not in it was never served."""

    claims: int = 0
    tenants: dict[str, int] = attrs.field(factory=dict)
    groups: dict[str, int] = attrs.field(factory=dict)

    def serve(self, claimed: Waiting) -> int:
        """The number of the claim."""
        self.claims += 1
        self.tenants[claimed.tenant] = self.groups[claimed.group] = self.claims
        return self.claims

    def forget(self, queued: Iterable[Waiting]) -> None:
        """All but those with queued work, waiting or out."""
        left = tuple(queued)
        tenants, groups = {one.tenant for one in left}, {one.group for one in left}
        self.tenants = {name: last for name, last in self.tenants.items() if name in tenants}
        self.groups = {name: last for name, last in self.groups.items() if name in groups}


def order_key(one: Waiting, history: History, now: float) -> Key:
    """The least is the next."""
    return (
        not is_expired(one.deadline, now),
        one.priority,
        history.tenants.get(one.tenant, 0),
        history.groups.get(one.group, 0),
        math.inf if one.deadline is None else one.deadline,
        one.enqueued_at,
        one.job_id,
    )


def is_expired(deadline: float | None, now: float) -> bool:
    return deadline is not None and deadline < now


def claim(
    waiting: Iterable[Waiting], busy: Collection[str], history: History, now: float, limit: int
) -> list[tuple[Waiting, int]]:
    """At most `limit` of those whose group is not `busy`, each with the number of its claim, noted in `history`."""
    left, taken, claimed = list(waiting), set(busy), list[tuple[Waiting, int]]()
    while len(claimed) < limit:
        free = [one for one in left if one.group not in taken]
        if not free:
            break
        chosen = min(free, key=lambda one: order_key(one, history, now))
        taken.add(chosen.group)
        claimed.append((chosen, history.serve(chosen)))
    return claimed
