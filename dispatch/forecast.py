"""What a set of slices promises before any of them runs: who excludes whom, and the schedule on paper.

The schedule is `listsched.simulate`'s, which makes the service's own decision, with what slices are expected to take.
It knows no preemption, no failure and no second attempt: it says how the order, the contention and the cap work out.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs
import networkx as nx

from dispatch.intent import Urgency
from dispatch.slice import Slice
from dispatch.touch import Pattern, PatternIndex, overlap
from listsched import Plan, Schedule, critical_path, lower_bound, simulate, upward_rank

OVERLAPS_LIMIT = 100_000  #: pairs of different patterns that are looked at; beyond it the forecast says it is partial
_NO_URGENCY: Mapping[str, Urgency] = {}


class Why(enum.Enum):
    """What makes slices exclude one another. The values are stable: scripts may rely on them."""

    HOTSPOT = "hotspot"  #: they share a named hotspot
    PATTERN = "pattern"  #: they touch by the same pattern
    OVERLAP = "overlap"  #: they touch by two patterns that some path matches both
    DECLARED = "declared"  #: one names the other


@attrs.frozen
class Exclusion:
    """Slices of which no two ever run at once, and why.

    `names`: the hotspot, the pattern, the two patterns, or nothing; `witness`: a path that both patterns match.
    """

    why: Why
    names: tuple[str, ...]
    members: tuple[str, ...]
    witness: str = ""


@attrs.frozen(eq=False)
class Forecast:
    """A schedule on paper. Times are in the unit of what slices were expected to take.

    `partial`: more patterns overlap than were looked at, so that more slices may exclude one another than is said.
    """

    schedule: Schedule[str]
    exclusions: tuple[Exclusion, ...]
    critical_path: tuple[str, ...]
    path_length: float
    lower_bound: float
    partial: bool


def forecast(
    slices: Sequence[Slice],
    capacity: int | None,
    *,
    expected: Mapping[str, float] | None = None,
    urgency: Mapping[str, Urgency] = _NO_URGENCY,
) -> Forecast:
    """Simulate `slices` as the service would start them: by upward rank, then urgency, then the order given.

    `expected` says by id how long each takes; by default 1. Edges to slices that are not among them count as fulfilled.
    Raises `listsched.PlanError` for a cycle.
    """
    found, partial = exclusions(slices)
    order = order_of(slices)
    durations = expected if expected is not None else dict.fromkeys(order, 1)
    conflicts = [exclusion.members for exclusion in found]
    checked = Plan.of(order, durations, conflicts, capacity)  # finds a cycle before any rank is computed
    ranks = upward_rank(order, durations)
    priority = {
        each.id: (-ranks[each.id], -urgency[each.id].value if each.id in urgency else 0, place)
        for place, each in enumerate(slices)
    }
    plan = Plan.of(order, durations, conflicts, capacity, priority) if urgency else checked
    path, length = critical_path(order, durations)
    return Forecast(simulate(plan), found, tuple(path), length, lower_bound(plan), partial)


def order_of(slices: Sequence[Slice]) -> nx.DiGraph[str]:
    """The depends_on edges among `slices`, from what comes first to what waits for it, required_by turned round."""
    order: nx.DiGraph[str] = nx.DiGraph()
    order.add_nodes_from(each.id for each in slices)
    for each in slices:
        order.add_edges_from((name, each.id) for name in each.depends_on if name in order)
        order.add_edges_from((each.id, name) for name in each.required_by if name in order)
    return order


def exclusions(slices: Sequence[Slice]) -> tuple[tuple[Exclusion, ...], bool]:
    """Who excludes whom, as cliques, never as all their pairs; and whether the list is partial.

    All slices with a hotspot exclude one another, and so do all that touch by one pattern. Where two patterns overlap,
    those with either of them do: a slice that has the one meets every slice that has the one or the other.
    """
    place = {each.id: at for at, each in enumerate(slices)}
    found = list(_hotspots(slices))
    touching, partial = _patterns(slices, place)
    found += touching
    found += _declared(slices, place)
    return tuple(found), partial


def _hotspots(slices: Iterable[Slice]) -> Iterator[Exclusion]:
    members: dict[str, dict[str, None]] = {}
    for each in slices:
        for hotspot in each.touch.hotspots:
            members.setdefault(hotspot, {})[each.id] = None
    for hotspot, ids in members.items():
        if len(ids) > 1:
            yield Exclusion(Why.HOTSPOT, (hotspot,), tuple(ids))


def _patterns(slices: Iterable[Slice], place: Mapping[str, int]) -> tuple[list[Exclusion], bool]:
    members: dict[Pattern, dict[str, None]] = {}
    for each in slices:
        for text in each.touch.paths:
            members.setdefault(Pattern.parse(text), {})[each.id] = None
    found: list[Exclusion] = []
    looked_at = 0
    seen = PatternIndex()
    by_text = {pattern.text: pattern for pattern in members}
    for pattern, ids in members.items():
        overlapping = [by_text[other.text] for other in seen.overlapping(pattern)]
        looked_at += len(overlapping)
        if looked_at > OVERLAPS_LIMIT:
            return found, True
        if len(ids) > 1:
            found.append(Exclusion(Why.PATTERN, (pattern.text,), tuple(ids)))
        for other in overlapping:
            both = ids | members[other]
            if len(both) > max(len(ids), len(members[other])):  # else one of the two says it already
                found.append(_overlap(other, pattern, both, place))
        seen.add(pattern)
    return found, False


def _overlap(one: Pattern, other: Pattern, ids: Collection[str], place: Mapping[str, int]) -> Exclusion:
    members = tuple(sorted(ids, key=place.__getitem__))
    return Exclusion(Why.OVERLAP, (one.text, other.text), members, overlap(one, other) or "")


def _declared(slices: Iterable[Slice], place: Mapping[str, int]) -> Iterator[Exclusion]:
    pairs: dict[tuple[str, str], None] = {}
    for each in slices:
        for name in each.contends:
            if name in place and name != each.id:
                one, other = sorted((each.id, name), key=place.__getitem__)
                pairs[one, other] = None
    for pair in pairs:
        yield Exclusion(Why.DECLARED, (), pair)
