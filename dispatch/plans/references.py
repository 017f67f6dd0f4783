"""What only the whole plan shows: names that lead nowhere, and circles."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import networkx as nx

from dispatch.errors import InvalidSliceError
from dispatch.plans.problems import Spelling, shown
from dispatch.plans.section import Section
from dispatch.plans.slices import Draft
from dispatch.slice import Slice, check_slice

CIRCLE_SHOWN = 12  #: slices of a circle that an error spells out
TAKE_OUT = "; add it to the plan, or take it out here"  #: where no name is like the one that is not there

Origin = tuple[Section, str, str]  #: the table, the field and the item that declare an edge


def check_references(drafts: Sequence[Draft]) -> None:
    """A finding for each depends_on, required_by and contends that names no slice, or the slice itself."""
    known = {draft.slice.id: None for draft in drafts}
    spelling = Spelling(tuple(known))
    for draft in drafts:
        for field in ("depends_on", "required_by", "contends"):
            for name in getattr(draft.slice, field):
                if name == draft.slice.id:
                    draft.section.refuse(field, "names the slice itself; take it out", name)
                elif name not in known and is_id(name):  # one that is no id has been refused as such
                    draft.section.refuse(field, f"no slice {shown(name)}{spelling.hint(name) or TAKE_OUT}", name)


def check_circles(drafts: Sequence[Draft]) -> None:
    """A finding for each group of slices that wait for one another, at the first of them in the file."""
    waits, origins = _waits(drafts)
    place = {slice_id: index for index, slice_id in enumerate(waits)}
    circular = (group for group in nx.strongly_connected_components(waits) if len(group) > 1)
    for group in sorted(
        (sorted(group, key=place.__getitem__) for group in circular), key=lambda group: place[group[0]]
    ):
        circle = _shortest_circle(waits, group[0], frozenset(group))
        section, field, item = origins[circle[0], circle[1]]
        section.refuse(field, f"waits in a circle: {_written(circle)}; each needs the next: take one out", item)


def _waits(drafts: Sequence[Draft]) -> tuple[nx.DiGraph[str], dict[tuple[str, str], Origin]]:
    """The graph in which every slice points at what it depends on, and where the plan says so."""
    waits: nx.DiGraph[str] = nx.DiGraph()
    waits.add_nodes_from(draft.slice.id for draft in drafts)
    origins: dict[tuple[str, str], Origin] = {}
    for draft in drafts:
        this = draft.slice.id
        for field, edges in (
            ("depends_on", [(this, name) for name in draft.slice.depends_on]),
            ("required_by", [(name, this) for name in draft.slice.required_by]),
        ):
            for waiting, awaited in edges:
                if waiting != awaited and waiting in waits and awaited in waits:
                    waits.add_edge(waiting, awaited)
                    origins.setdefault(
                        (waiting, awaited), (draft.section, field, awaited if waiting == this else waiting)
                    )
    return waits, origins


def _shortest_circle(waits: nx.DiGraph[str], start: str, group: frozenset[str]) -> list[str]:
    """The shortest way from `start` back to it, by breadth; its first and last are the same."""
    came_from: dict[str, str] = {}
    pending = deque([start])
    while start not in came_from:
        here = pending.popleft()
        for awaited in waits[here]:
            if awaited in group and awaited not in came_from:
                came_from[awaited] = here
                pending.append(awaited)
    circle = [start]
    while len(circle) == 1 or circle[-1] != start:
        circle.append(came_from[circle[-1]])
    return circle[::-1]


def _written(circle: list[str]) -> str:
    if len(circle) <= CIRCLE_SHOWN + 1:
        return " -> ".join(circle)
    left_out = len(circle) - CIRCLE_SHOWN
    return " -> ".join([*circle[: CIRCLE_SHOWN - 2], f"({left_out} more)", *circle[-2:]])


def is_id(name: str) -> bool:
    """Whether a slice may have that id."""
    try:
        check_slice(Slice(name))
    except InvalidSliceError:
        return False
    return True
