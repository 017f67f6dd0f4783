"""What of a plan is new to a graph: a plan may be run again, continued and extended, but not rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from dispatch.cli.ending import RefusedError
from dispatch.intent import Intent
from dispatch.plans import PlanFile
from dispatch.slice import FINISHED, Slice
from dispatch.views import IntentView, SliceView


@attrs.frozen
class Admission:
    """What has to be told to the service, and what the user should know: `kept` are finished slices that the plan
    describes in another way than they were stored; they stay as they are."""

    slices: tuple[Slice, ...]
    intents: tuple[Intent, ...]
    kept: tuple[str, ...]


def admit(plan: PlanFile, stored: Iterable[SliceView], intents: Iterable[IntentView]) -> Admission:
    """Compare a plan with what the graph has. `RefusedError` for an unfinished slice that is stored otherwise."""
    known = {view.id: view for view in stored}
    new: list[Slice] = []
    kept: list[str] = []
    for slice_ in plan.slices:
        view = known.get(slice_.id)
        if view is None:
            new.append(slice_)
        elif field := difference(slice_, view.slice):
            if view.state not in FINISHED:
                raise _rewritten(slice_.id, field)
            kept.append(slice_.id)
    return Admission(tuple(new), tuple(_undeclared(plan.intents, intents)), tuple(kept))


def difference(wanted: Slice, stored: Slice) -> str:
    """The first field in which a slice of a plan differs from the stored one; empty if they are the same."""
    if not wanted.title:
        wanted = attrs.evolve(wanted, title=wanted.id)
    if wanted == stored:
        return ""
    return next(_differing(wanted, stored))


def _differing(wanted: Slice, stored: Slice) -> Iterator[str]:
    for holder, other in ((wanted.recipe, stored.recipe), (wanted.touch, stored.touch), (wanted, stored)):
        mine: Mapping[str, object] = attrs.asdict(holder, recurse=False)
        theirs: Mapping[str, object] = attrs.asdict(other, recurse=False)
        yield from (name for name in mine if mine[name] != theirs[name])


def _rewritten(slice_id: str, field: str) -> RefusedError:
    return RefusedError(
        f"slice {slice_id!r} is in the graph already with another {field}; give the changed slice a new id"
        " (and `cancel` the old one), or start a new graph with --graph"
    )


def _undeclared(wanted: Iterable[Intent], stored: Iterable[IntentView]) -> Iterator[Intent]:
    """Those that the graph doesn't have as they are, less those that one it has has superseded."""
    known = {view.intent.id: view.intent for view in stored}
    wanted = tuple(wanted)
    settled = {intent.supersedes for intent in wanted if known.get(intent.id) == intent}
    return (intent for intent in wanted if known.get(intent.id) != intent and intent.id not in settled)
