"""A slice, what it touches, and the states it goes through."""

from __future__ import annotations

import enum
import re
import unicodedata

import attrs

from dispatch.errors import InvalidSliceError
from dispatch.touch import Pattern, overlap
from harness import Recipe

SLICE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
TITLE_LIMIT = 256


class SliceState(enum.Enum):
    """Where a slice stands; the contract of each state is in `docs/architecture.md`."""

    QUEUED = "queued"
    RUNNING = "running"
    PREEMPTED = "preempted"
    IN_REVIEW = "in_review"
    MERGED = "merged"
    FAILED = "failed"
    CANCELED = "canceled"


OCCUPYING = frozenset({SliceState.RUNNING, SliceState.PREEMPTED})  #: hold a place under the cap
EXCLUDING = OCCUPYING | {SliceState.IN_REVIEW}  #: keep their contenders waiting
FINISHED = frozenset({SliceState.MERGED, SliceState.CANCELED})  #: final, out of the ranking


@attrs.frozen
class TouchSet:
    """The paths (globs relative to the repository's root) and named hotspots that a slice will change."""

    paths: tuple[str, ...] = ()
    hotspots: tuple[str, ...] = ()

    def overlaps(self, other: TouchSet) -> bool:
        """Whether some path or hotspot is in both. Raises `InvalidSliceError` for a pattern outside the grammar."""
        if not set(self.hotspots).isdisjoint(other.hotspots):
            return True
        theirs = [Pattern.parse(text) for text in other.paths]
        return any(overlap(Pattern.parse(text), theirs_) is not None for text in self.paths for theirs_ in theirs)


NOTHING = TouchSet()


@attrs.frozen
class Slice:
    """One unit of work with the recipe its session runs.

    `depends_on` must have merged before it starts; `required_by` declares the same edge from the other end;
    `contends` names slices it must never run beside. `hold` is a reason to keep it back; empty means none.
    `provenance` says where it came from, in words.
    """

    id: str
    title: str = ""
    recipe: Recipe = Recipe()
    depends_on: tuple[str, ...] = ()
    required_by: tuple[str, ...] = ()
    contends: tuple[str, ...] = ()
    touch: TouchSet = NOTHING
    provenance: str = ""
    hold: str = ""
