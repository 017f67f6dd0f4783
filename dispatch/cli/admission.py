"""What of a plan is new to a graph: a plan may be run again, continued, extended, and mended where nothing runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from dispatch.cli.ending import RefusedError
from dispatch.intent import Intent
from dispatch.plans import PlanFile
from dispatch.slice import FINISHED, Slice, SliceState
from dispatch.views import IntentView, SliceView

_FIXED = frozenset({"depends_on", "required_by", "contends", "hold"})  # what a slice was enqueued with stays


@attrs.frozen
class Admission:
    """What has to be told to the service, and what the user should know: `revised` are slices that have no session and
    that the plan describes in another way than they were stored; `failed` those of them that failed as they were;
    `kept` are finished ones, which stay as they are."""

    slices: tuple[Slice, ...]
    revised: tuple[Slice, ...]
    failed: tuple[str, ...]
    intents: tuple[Intent, ...]
    kept: tuple[str, ...]


def admit(plan: PlanFile, stored: Iterable[SliceView], intents: Iterable[IntentView]) -> Admission:
    """Compare a plan with what the graph has.

    `RefusedError` for an unfinished slice that can't be made what the plan says: it has other edges, another hold, or a
    pull request in review.
    """
    known = {view.id: view for view in stored}
    new: list[Slice] = []
    revised: list[Slice] = []
    kept: list[str] = []
    for slice_ in plan.slices:
        view = known.get(slice_.id)
        if view is None:
            new.append(slice_)
        elif field := difference(slice_, view.slice):
            if view.state in FINISHED:
                kept.append(slice_.id)
            elif field in _FIXED or view.state is SliceState.IN_REVIEW:
                raise _rewritten(slice_.id, field)
            else:
                revised.append(slice_)
    failed = tuple(slice_.id for slice_ in revised if known[slice_.id].state is SliceState.FAILED)
    undeclared = tuple(_undeclared(plan.intents, intents))
    return Admission(tuple(new), tuple(revised), failed, undeclared, tuple(kept))


def difference(wanted: Slice, stored: Slice) -> str:
    """The first field in which a slice of a plan differs from the stored one, those that can't be revised before the
    others; empty if they are the same."""
    if not wanted.title:
        wanted = attrs.evolve(wanted, title=wanted.id)
    if wanted == stored:
        return ""
    return min(_differing(wanted, stored), key=lambda field: field not in _FIXED)


def _differing(wanted: Slice, stored: Slice) -> Iterator[str]:
    for holder, other in ((wanted.recipe, stored.recipe), (wanted.touch, stored.touch), (wanted, stored)):
        mine: Mapping[str, object] = attrs.asdict(holder, recurse=False)
        theirs: Mapping[str, object] = attrs.asdict(other, recurse=False)
        yield from (name for name in mine if mine[name] != theirs[name])


def _rewritten(slice_id: str, field: str) -> RefusedError:
    return RefusedError(
        f"slice {slice_id!r} is in the graph already with another {field}, which can't be changed now; give the changed"
        " slice a new id (and `cancel` the old one), or start a new graph with --graph"
    )


def _undeclared(wanted: Iterable[Intent], stored: Iterable[IntentView]) -> Iterator[Intent]:
    """Those that the graph doesn't have as they are, less those that one it has has superseded."""
    known = {view.intent.id: view.intent for view in stored}
    wanted = tuple(wanted)
    settled = {intent.supersedes for intent in wanted if known.get(intent.id) == intent}
    return (intent for intent in wanted if known.get(intent.id) != intent and intent.id not in settled)
