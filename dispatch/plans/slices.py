"""The slices of a plan: tables to `Slice`s, defaults filled in."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import attrs

from dispatch.errors import InvalidSliceError
from dispatch.intent import Intent, Urgency
from dispatch.plans import fields
from dispatch.plans.section import Section
from dispatch.slice import Slice, TouchSet, check_slice
from harness import Recipe

#: What `[defaults]` may hold: each is the value of every slice that doesn't give its own.
DEFAULT_KEYS = (
    "command",
    "verify",
    "kind",
    "max_attempts",
    "grace_s",
    "quiet_limit_s",
    "env",
    "paths",
    "touches",
    "hotspots",
    "urgency",
    "deadline",
    "provenance",
)
SLICE_KEYS = ("title", "prompt", "depends_on", "needs", "required_by", "contends", "hold", *DEFAULT_KEYS)

_ANY_ID = "x"  # stands in where only another field is looked at


@attrs.frozen
class Defaults:
    """What a slice has unless it says otherwise. `refused`: fields of `[defaults]` that were no use."""

    recipe: Recipe
    touch: TouchSet
    provenance: str
    urgency: Urgency | None
    deadline: dt.datetime | None
    refused: frozenset[str] = frozenset()


@attrs.frozen
class Draft:
    """A slice as read, with the table it came from and the intent that its urgency or deadline declares."""

    slice: Slice
    section: Section
    intent: Intent | None


def read_defaults(section: Section) -> Defaults:
    """The `[defaults]` table."""
    section.check_keys(DEFAULT_KEYS)
    defaults = Defaults(
        recipe=_recipe(section, Recipe()),
        touch=_touch(section, TouchSet()),
        provenance=section.take("provenance", fields.text, ""),
        urgency=section.take("urgency", fields.urgency, None),
        deadline=section.take("deadline", fields.instant, None),
    )
    sample = Slice(_ANY_ID, recipe=defaults.recipe, touch=defaults.touch, provenance=defaults.provenance)
    for field, item, problem in _faults(sample):
        section.refuse(field, problem, item)
    return attrs.evolve(defaults, refused=frozenset(section.refused))


def read_slice(slice_id: str, section: Section, defaults: Defaults) -> Draft:
    """One slice. References are not looked up."""
    section.check_keys(("id", *SLICE_KEYS))
    read = Slice(
        id=slice_id,
        title=section.take("title", fields.text, ""),
        recipe=_recipe(section, defaults.recipe),
        depends_on=section.take("depends_on", fields.identifiers, ()),
        required_by=section.take("required_by", fields.identifiers, ()),
        contends=section.take("contends", fields.identifiers, ()),
        touch=_touch(section, defaults.touch),
        provenance=section.take("provenance", fields.text, defaults.provenance),
        hold=section.take("hold", fields.text, ""),
    )
    for field, item, problem in _faults(read):
        if section.gives(field) or field not in DEFAULT_KEYS:  # what is wrong in the defaults is said there, once
            section.refuse(field, problem, item)
    if not read.recipe.command and "command" not in section.refused | defaults.refused:
        lacks = "a prompt but no command that could take it" if read.recipe.prompt else "no command"
        section.refuse("prompt", f"has {lacks}; give it one, or give one to all in defaults")
    return Draft(read, section, _intent(read, section, defaults))


def _recipe(section: Section, default: Recipe) -> Recipe:
    return Recipe(
        command=section.take("command", fields.arguments, default.command),
        prompt=section.take("prompt", fields.text, default.prompt),
        kind=section.take("kind", fields.text, default.kind),
        verify=section.take("verify", fields.arguments, default.verify),
        max_attempts=section.take("max_attempts", fields.whole, default.max_attempts),
        grace_s=section.take("grace_s", fields.seconds, default.grace_s),
        quiet_limit_s=section.take("quiet_limit_s", fields.seconds, default.quiet_limit_s),
        env=_environment(section, default.env),
    )


def _environment(section: Section, default: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The one field in which a slice adds to the defaults."""
    own = section.take("env", fields.environment, default)
    return tuple({**dict(default), **dict(own)}.items())


def _touch(section: Section, default: TouchSet) -> TouchSet:
    return TouchSet(
        section.take("paths", fields.texts, default.paths), section.take("hotspots", fields.texts, default.hotspots)
    )


def _intent(read: Slice, section: Section, defaults: Defaults) -> Intent | None:
    urgency = section.take("urgency", fields.urgency, defaults.urgency)
    deadline = section.take("deadline", fields.instant, defaults.deadline)
    if urgency is None and deadline is None:
        return None
    return Intent(
        id=f"plan.{read.id}",
        statement=read.title or read.id,
        scope=read.id,
        urgency=urgency or Urgency.NORMAL,
        deadline=deadline,
    )


def _faults(whole: Slice) -> Iterator[tuple[str, str | None, str]]:
    """What `check_slice` has against it: field, item of the field, problem; one for each part that is at fault."""
    try:
        check_slice(whole)
    except InvalidSliceError as refusal:
        found = [fault for part, item in _parts(whole) for fault in _fault(part, item)]
        yield from found or [(refusal.field, None, refusal.problem)]


def _fault(part: Slice, item: str | None) -> Iterator[tuple[str, str | None, str]]:
    try:
        check_slice(part)
    except InvalidSliceError as refusal:
        yield refusal.field, item, refusal.problem


def _parts(whole: Slice) -> Iterator[tuple[Slice, str | None]]:
    """Slices that have one value of `whole` each, so that each is judged for itself."""
    yield Slice(whole.id), None
    for field in ("title", "provenance", "hold"):
        yield attrs.evolve(Slice(_ANY_ID), **{field: getattr(whole, field)}), None
    for field in ("depends_on", "required_by", "contends"):
        for name in getattr(whole, field):
            edge: dict[str, Any] = {field: (name,)}
            yield attrs.evolve(Slice(_ANY_ID), **edge), name
    for field in ("paths", "hotspots"):
        for text in getattr(whole.touch, field):
            yield Slice(_ANY_ID, touch=attrs.evolve(TouchSet(), **{field: (text,)})), text
    for attribute in attrs.fields(Recipe):
        value = getattr(whole.recipe, attribute.name)
        yield Slice(_ANY_ID, recipe=attrs.evolve(Recipe(), **{attribute.name: value})), None
