"""To claim without a transport: the next item, whichever that is."""

from __future__ import annotations

from collections.abc import Collection

from harness.fleet.commands import Claim
from harness.fleet.ports import WorkItems
from harness.fleet.work_item import WorkItem


def claim_next(
    work_items: WorkItems,
    owner: str,
    ttl_s: float,
    *,
    limit: int = 1,
    tenant: str | None = None,
    kinds: Collection[str] = (),
    starts: bool = False,
) -> tuple[WorkItem, ...]:
    """At most `limit` items, leased to `owner` for `ttl_s` seconds; fewer only if there are no more.

    They come in the order of `WorkItems.claimable`, which is looked at again as long as others were quicker. What turns
    out to have passed its deadline is cancelled on the way. With `starts` the turns begin at once, see `Claim`.
    """
    claimed: list[WorkItem] = []
    while len(claimed) < limit:
        found = work_items.claimable(limit - len(claimed), tenant, kinds)
        if not found:
            break
        results = work_items.perform([Claim(item.id, item.tenant, owner, ttl_s, starts) for item in found])
        claimed += [result for result in results if isinstance(result, WorkItem)]
    return tuple(claimed)
