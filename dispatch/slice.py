"""A slice, what it touches, and the states it goes through."""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Iterable
from typing import Any

import attrs

from dispatch.errors import InvalidSliceError
from dispatch.text import check_text
from dispatch.touch import Pattern, overlap
from harness import Recipe

SLICE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
_PLAIN_IDS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}(?: [A-Za-z0-9][A-Za-z0-9_-]{0,79})*")
TITLE_LIMIT = 256
ATTEMPTS_LIMIT = 2**31  #: every store can count so far


class SliceState(enum.Enum):
    """Where a slice stands; the contract of each state is in `docs/architecture.md`."""

    QUEUED = "queued"
    RUNNING = "running"
    PREEMPTED = "preempted"
    IN_REVIEW = "in_review"
    MERGED = "merged"
    FAILED = "failed"
    CANCELED = "canceled"

    __hash__ = object.__hash__  # members are singletons; the default hashes the name, in Python, at every look-up


OCCUPYING = frozenset({SliceState.RUNNING, SliceState.PREEMPTED})  #: hold a place under the cap
EXCLUDING = OCCUPYING | {SliceState.IN_REVIEW}  #: keep their contenders waiting
FINISHED = frozenset({SliceState.MERGED, SliceState.CANCELED})  #: final, out of the ranking


@attrs.frozen(cache_hash=True)
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
NO_RECIPE = Recipe()


@attrs.frozen
class Slice:
    """One unit of work with the recipe its session runs.

    `depends_on` must have merged before it starts; `required_by` declares the same edge from the other end;
    `contends` names slices it must never run beside. `hold` is a reason to keep it back; empty means none.
    `provenance` says where it came from, in words.
    """

    id: str
    title: str = ""
    recipe: Recipe = NO_RECIPE
    depends_on: tuple[str, ...] = ()
    required_by: tuple[str, ...] = ()
    contends: tuple[str, ...] = ()
    touch: TouchSet = NOTHING
    provenance: str = ""
    hold: str = ""


def check_slice(slice_: Slice) -> None:
    """Refuse, with `InvalidSliceError` naming the field, a slice outside the grammar. References are not looked up."""
    if not isinstance(slice_, Slice):
        raise InvalidSliceError("slice", f"must be a Slice, not {type(slice_).__name__}")
    plain = _has_plain_ids(slice_)
    if not plain:
        _check_id("id", slice_.id)
    if slice_.title != "":
        _check_title(slice_.title)
    if not plain:
        for field in _EDGES:
            for name in _strings(field, getattr(slice_, field)):
                _check_id(field, name)
    if slice_.touch is not NOTHING:
        check_touch(slice_.touch)
    if slice_.provenance != "" or slice_.hold != "":
        for field in ("provenance", "hold"):
            _check_text(field, getattr(slice_, field), printable=True)
    if slice_.recipe is not NO_RECIPE:
        check_recipe(slice_.recipe)


def _has_plain_ids(slice_: Slice) -> bool:
    """Whether its id and the ids that it names are so beyond doubt, as nearly all are: one look instead of four."""
    edges: tuple[Any, ...] = (slice_.depends_on, slice_.required_by, slice_.contends)
    before, after, contends = edges
    if not (isinstance(before, _LISTS) and isinstance(after, _LISTS) and isinstance(contends, _LISTS)):
        return False
    names = (slice_.id, *before, *after, *contends)
    try:
        text = " ".join(names)
    except TypeError:
        return False
    return _PLAIN_IDS.fullmatch(text) is not None and text.count(" ") == len(names) - 1


def check_touch(touch: TouchSet) -> None:
    """Refuse a touch-set outside the grammar, with `InvalidSliceError`."""
    if not isinstance(touch, TouchSet):
        raise InvalidSliceError("touch", "must be a TouchSet")
    for text in _strings("paths", touch.paths):
        Pattern.parse(text)
    for text in _strings("hotspots", touch.hotspots):
        _check_text("hotspots", text, printable=True)
        if not text.strip():
            raise InvalidSliceError("hotspots", "a hotspot needs a name")


def check_recipe(recipe: Recipe) -> None:
    """Refuse a recipe outside the grammar, with `InvalidSliceError`."""
    if not isinstance(recipe, Recipe):
        raise InvalidSliceError("recipe", "must be a Recipe")
    for field in ("command", "verify"):
        for text in _strings(field, getattr(recipe, field)):
            _check_text(field, text)
    _strings("env", recipe.env)
    for pair in recipe.env:
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise InvalidSliceError("env", "must be pairs of a name and a value")
        name, value = pair
        _check_text("env", name, printable=True)
        _check_text("env", value)
        if not name or "=" in name:
            raise InvalidSliceError("env", f"{name!r} is no name of a variable")
    _check_text("prompt", recipe.prompt)
    _check_text("kind", recipe.kind, printable=True)
    if type(recipe.max_attempts) is not int or not 1 <= recipe.max_attempts <= ATTEMPTS_LIMIT:
        raise InvalidSliceError("max_attempts", f"must be a whole number from 1 to 2^31, not {recipe.max_attempts!r}")
    for field in ("grace_s", "quiet_limit_s"):
        seconds = getattr(recipe, field)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
            raise InvalidSliceError(field, f"must be a number of seconds, not {seconds!r}")


def canonical(slice_: Slice) -> Slice:
    """A checked slice with its id for a title that is missing, and tuples for lists: nobody can change it any more."""
    touch, recipe = slice_.touch, slice_.recipe
    if not (type(slice_.depends_on) is type(slice_.required_by) is type(slice_.contends) is tuple):
        depends_on, required_by, contends = map(tuple, (slice_.depends_on, slice_.required_by, slice_.contends))
        slice_ = attrs.evolve(slice_, depends_on=depends_on, required_by=required_by, contends=contends)
    if touch is not NOTHING and not _all_tuples(touch.paths, touch.hotspots):
        slice_ = attrs.evolve(slice_, touch=TouchSet(tuple(touch.paths), tuple(touch.hotspots)))
    if recipe is not NO_RECIPE and not _all_tuples(recipe.command, recipe.verify, recipe.env):
        command, verify, env = tuple(recipe.command), tuple(recipe.verify), tuple(recipe.env)
        slice_ = attrs.evolve(slice_, recipe=attrs.evolve(recipe, command=command, verify=verify, env=env))
    return slice_ if slice_.title else Slice(slice_.id, slice_.id, *_after_title(slice_))


_EDGES = ("depends_on", "required_by", "contends")
_LISTS = (tuple, list)
# `evolve` would take three times as long, for each of a hundred thousand slices.
_after_title = operator.attrgetter(*(field.name for field in attrs.fields(Slice)[2:]))


def _all_tuples(*values: object) -> bool:
    return all(type(value) is tuple for value in values)


def _check_text(field: str, text: object, *, printable: bool = False) -> None:
    try:
        check_text(text, printable=printable)
    except ValueError as problem:
        raise InvalidSliceError(field, str(problem)) from None


def _check_id(field: str, text: object) -> None:
    if not isinstance(text, str) or not SLICE_ID.fullmatch(text) or ".." in text or text.endswith((".", ".lock")):
        raise InvalidSliceError(
            field, f"{text!r:.100} is no slice id: use 1-80 of A-Z a-z 0-9 _ . - and begin with a letter or digit"
        )


def _check_title(title: object) -> None:
    _check_text("title", title, printable=True)
    if len(str(title)) > TITLE_LIMIT:
        raise InvalidSliceError("title", f"is {len(str(title))} characters long; {TITLE_LIMIT} is the most")


def _strings(field: str, texts: object) -> Iterable[str]:
    if not isinstance(texts, _LISTS):
        raise InvalidSliceError(field, f"must be a tuple, not {type(texts).__name__}")
    return texts
