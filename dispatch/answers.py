"""Answers made from the graph: views of slices, why one waits, the whole at a glance. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatch.contention import evidence
from dispatch.graph import SliceGraph, SliceNode
from dispatch.intent import Urgency
from dispatch.slice import OCCUPYING, SliceState
from dispatch.views import (
    Cap,
    Explanation,
    IntentView,
    PriorityBreakdown,
    Reason,
    ReasonCode,
    SliceView,
    Snapshot,
    StoreStatus,
)

_ENDED = {
    SliceState.MERGED: "it has merged",
    SliceState.CANCELED: "it was canceled",
    SliceState.IN_REVIEW: "its pull request waits to be merged",
    SliceState.RUNNING: "it runs",
    SliceState.PREEMPTED: "it runs, and was asked to stop to make room for an urgent slice",
}


def view(graph: SliceGraph, node: SliceNode) -> SliceView:
    """One slice as it stands."""
    return views(graph, (node,))[0]


def views(graph: SliceGraph, nodes: Sequence[SliceNode]) -> list[SliceView]:
    """Several, in the order given; the frontier is sorted once for all of them."""
    waits = any(node.in_frontier for node in nodes)
    places = {node: i for i, node in enumerate(graph.frontier(), 1)} if waits else {}
    graph.refresh()
    return [_view(graph, node, places.get(node)) for node in nodes]


def _view(graph: SliceGraph, node: SliceNode, rank: int | None) -> SliceView:
    wanted = node.slice
    return SliceView(
        slice=wanted,
        id=wanted.id,
        title=wanted.title,
        state=node.state,
        priority=PriorityBreakdown(
            critical_path=graph.critical_path(node),
            learned=graph.weights.learned(wanted.recipe.kind),
            urgency=Urgency(node.urgency) if node.urgency else None,
            declared_order=node.seq,
            rank=rank,
        ),
        assignment_id=node.assignment_id,
        attempt=node.attempt,
        closes=node.closes,
        turns=node.turns,
        branch=node.branch,
        pull_request_url=node.pull_request_url,
        error=node.error,
        checkpoint=node.checkpoint,
        hold=node.hold,
        canceling=node.canceling,
        intents=tuple(entry.intent.id for entry in node.intents),
        waits_for=tuple(n.id for n in node.depends_on if n.state is not SliceState.MERGED) if node.unmet else (),
        enqueued_at=node.enqueued_at,
        started_at=node.started_at,
        ended_at=node.ended_at,
        ran_s=node.ran_s,
    )


def explain(graph: SliceGraph, node: SliceNode, paused: str, store: StoreStatus, cap: Cap) -> Explanation:
    """Why `node` doesn't run: every reason, what the operator can change first."""
    return Explanation(view(graph, node), tuple(_reasons(graph, node, paused, store, cap)))


def _reasons(graph: SliceGraph, node: SliceNode, paused: str, store: StoreStatus, cap: Cap) -> Iterable[Reason]:
    if node.state is not SliceState.QUEUED:
        text = _ENDED.get(node.state) or f"it failed: {node.error or 'no reason was given'}"
        yield Reason(ReasonCode.STATE, text + (", and is to be canceled" if node.canceling else ""))
        return
    if node.hold:
        yield Reason(ReasonCode.HELD, "held" if node.hold == "held" else f"held: {node.hold}")
    yield from map(_unmet, (n for n in node.depends_on if n.state is not SliceState.MERGED))
    if paused:
        yield Reason(ReasonCode.PAUSED, f"the graph is paused: {paused}")
    if not store.reachable:
        yield Reason(ReasonCode.STORE, f"the store is out of reach, so nothing is launched: {store.problem}")
    for other in graph.claims.excluders(node):
        if other in graph.room:
            yield Reason(
                ReasonCode.ROOM, f"room is being made for the urgent {other.id}, which it contends with", other.id
            )
        else:
            yield from evidence(node, other)
    if not node.unmet:
        yield from _no_place(graph, node, cap)


def _unmet(other: SliceNode) -> Reason:
    if other.state in (SliceState.FAILED, SliceState.CANCELED):
        return Reason(ReasonCode.STRANDED, f"depends on {other.id}, which {_verb(other)}: it can't start", other.id)
    return Reason(ReasonCode.DEPENDS_ON, f"depends on {other.id}, which {_verb(other)}", other.id)


def _verb(node: SliceNode) -> str:
    return {
        SliceState.QUEUED: "is queued",
        SliceState.FAILED: "has failed",
        SliceState.CANCELED: "was canceled",
        SliceState.IN_REVIEW: "is in review",
    }.get(node.state, "runs")


def _no_place(graph: SliceGraph, node: SliceNode, cap: Cap) -> Iterable[Reason]:
    taken = len(graph.sessions)
    if node in graph.room:
        yield Reason(ReasonCode.ROOM, "room is being made for it: it starts when those asked to stop have stopped")
    elif taken >= cap.places:
        yield Reason(ReasonCode.CAP, f"all places are taken: {taken} run; {cap.derivation}{_no_room(node)}")
    elif cap.places - graph.staying - len(graph.room) < 1:
        kept = ", ".join(other.id for other in graph.room)
        yield Reason(ReasonCode.ROOM, f"the places left are kept for urgent slices: {kept}")


def _no_room(node: SliceNode) -> str:
    return "; it is urgent, but may only displace what ranks below it" if node.urgency == Urgency.URGENT.value else ""


def snapshot(
    graph: SliceGraph, name: str, now: float, paused: str, store: StoreStatus, cap: Cap, order: str = "rank"
) -> Snapshot:
    """All of it at one moment."""
    entries = sorted(graph.intents.values(), key=lambda entry: entry.seq)
    return Snapshot(
        graph=name,
        taken_at=now,
        order=order,
        paused=paused,
        cap=cap,
        store=store,
        slices=tuple(views(graph, tuple(graph.nodes.values()))),
        frontier=tuple(node.id for node in graph.frontier()),
        running=tuple(node.id for node in graph.occupying() if node.state in OCCUPYING),
        room=tuple(node.id for node in graph.room),
        intents=tuple(IntentView(entry.intent, tuple(node.id for node in entry.attached)) for entry in entries),
    )
