"""Rows to what a database keeps, and back. The same for every adapter, so that all of them keep and refuse the same.

What is declared (a slice's spec, an intent) becomes a JSON object without its empty fields; what changes becomes
columns. Written by hand because a graph of a million slices is read back through here.

`check` refuses what some database would not give back as it was: NUL characters and lone surrogates (PostgreSQL has
neither), numbers that are not finite or don't fit 64 bits, moments without a time zone.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from dispatch.collector import collector_paused
from dispatch.errors import StoreError
from dispatch.intent import Intent, Urgency
from dispatch.slice import NO_RECIPE, NOTHING, Slice, SliceState, TouchSet
from dispatch.store.port import AttemptRow, Changes, IntentRow, LogRow, SliceRow
from harness import Recipe

Columns = tuple[Any, ...]  #: what a database binds or gives: str, int and float
Row = TypeVar("Row")

ORPHANED_ATTEMPT = "an attempt was written at a slice that is not stored; write the slice before it or with it"
NAME_LIMIT = 512  #: of 4 bytes each: PostgreSQL finds no row by a text of above 2,704
_INTEGER_LIMIT = 2**63
_STATES = {state.value: state for state in SliceState}
_URGENCIES = {urgency.name.lower(): urgency for urgency in Urgency}
dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_quoted = json.encoder.encode_basestring  # what `dumps` makes of a text
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


# -- what may be kept ----------------------------------------------------------------------------------------------


def check(changes: Changes) -> None:
    """Raises `StoreError`, which names the row, for the first value that not every database keeps."""
    if changes.graph is not None:
        _check_text("the graph", (changes.graph.graph_id, changes.graph.paused))
    checked = {NO_RECIPE}
    for row in changes.slices:
        _check_slice(row, checked)
    for attempt in changes.attempts:
        name = f"attempt {attempt.attempt} of {attempt.slice_id!a}"
        _check_text(name, (attempt.slice_id, attempt.branch, attempt.outcome, attempt.detail, attempt.checkpoint))
        _check_numbers(name, (attempt.attempt,), (attempt.started_at, attempt.ended_at))
    for intent in changes.intents:
        _check_intent(intent)
    _check_text("a forgotten intent", changes.forgotten)
    for entry in changes.log:
        _check_entry(entry)
    if changes.keyframe is not None:
        _check_numbers("a keyframe", (changes.keyframe.seq,), (changes.keyframe.at,))


def check_name(graph: str) -> None:
    """Raises `StoreError` for a graph name that not every database keeps."""
    if len(graph) > NAME_LIMIT:
        raise StoreError(f"the graph's name is {len(graph):,} characters long; {NAME_LIMIT} is the most")
    _check_text("the graph's name", (graph,))


def _check_slice(row: SliceRow, checked: set[Recipe]) -> None:
    """`checked`: recipes that are fine. What a row has most is looked at in one piece, and taken apart if it isn't."""
    slice_, recipe = row.slice, row.slice.recipe
    texts = (
        *(slice_.id, slice_.title, slice_.provenance, slice_.hold),
        *(row.branch, row.pull_request_url, row.error, row.checkpoint, row.hold),
        *slice_.depends_on,
        *slice_.required_by,
        *slice_.contends,
        *slice_.touch.paths,
        *slice_.touch.hotspots,
    )
    text = "".join(texts)
    if not text.isascii() or "\0" in text:
        _check_text(f"slice {slice_.id!a}", texts)
    integers = (row.seq, row.attempt, row.closes, row.turns)
    times = row.ran_s + row.enqueued_at + row.started_at + row.ended_at
    if max(integers) >= _INTEGER_LIMIT or min(integers) < -_INTEGER_LIMIT or not math.isfinite(times):
        _check_numbers(f"slice {slice_.id!a}", integers, (row.ran_s, row.enqueued_at, row.started_at, row.ended_at))
    if recipe not in checked:
        _check_recipe(f"slice {slice_.id!a}", recipe)
        checked.add(recipe)


def _check_recipe(name: str, recipe: Recipe) -> None:
    env = (part for pair in recipe.env for part in pair)
    _check_text(name, (recipe.prompt, recipe.kind, *recipe.command, *recipe.verify, *env))
    _check_numbers(name, (recipe.max_attempts,), (recipe.grace_s, recipe.quiet_limit_s))


def _check_entry(row: LogRow) -> None:
    text = row.kind + row.input + row.decisions
    if not text.isascii() or "\0" in text:
        _check_text(f"entry {row.seq} of the log", (text,))
    integers = (row.seq, row.epoch, row.cap)
    if max(integers) >= _INTEGER_LIMIT or min(integers) < -_INTEGER_LIMIT or not math.isfinite(row.at):
        _check_numbers(f"entry {row.seq} of the log", integers, (row.at,))


def _check_intent(row: IntentRow) -> None:
    intent = row.intent
    name = f"intent {intent.id!a}"
    _check_text(
        name,
        (intent.id, intent.statement, intent.scope, intent.supersedes, *intent.terms, *row.attached),
    )
    _check_numbers(name, (row.seq,), ())
    if intent.deadline is not None:
        if intent.deadline.utcoffset() is None:
            raise StoreError(f"{name}: a deadline needs a time zone")
        _utc(name, intent.deadline)


def _check_text(name: str, texts: Iterable[str]) -> None:
    text = "".join(texts)
    if "\0" in text:
        raise StoreError(f"{name} holds a NUL character, which no database keeps; take it out")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise StoreError(f"{name} holds half a surrogate pair, which no database keeps; take it out") from error


def _check_numbers(name: str, integers: Iterable[int], floats: Iterable[float]) -> None:
    for integer in integers:
        if not -_INTEGER_LIMIT <= integer < _INTEGER_LIMIT:
            raise StoreError(f"{name} holds a number outside 64 bits")
    for number in floats:
        if not math.isfinite(number):
            raise StoreError(f"{name} holds the number {number}, which is not finite")


def _utc(name: str, moment: dt.datetime) -> dt.datetime:
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError as error:
        raise StoreError(f"{name}: the deadline lies outside the years 1 to 9999 in UTC") from error


# -- to the database -----------------------------------------------------------------------------------------------


def state_columns(row: SliceRow, graph: int) -> Columns:
    """A slice's state, `seq` to `ended_at` in the order of `SliceRow`, then the key: graph and id."""
    return (
        *(row.seq, row.state.value, row.attempt, row.closes, row.turns, row.branch, row.pull_request_url, row.error),
        *(row.checkpoint, row.hold, int(row.canceling), int(row.stopping), row.ran_s),
        *(row.enqueued_at, row.started_at, row.ended_at, graph, row.slice.id),
    )


#: What stands between `seq` and the key in the state columns, as it is in a row: for comparing rows.
state_between = operator.attrgetter(*(field.name for field in attrs.fields(SliceRow)[2:]))


def spec_columns(row: SliceRow, graph: int) -> Columns:
    """A slice as declared, as JSON, then the key."""
    return (spec(row.slice), graph, row.slice.id)


def attempt_columns(row: AttemptRow, graph: int) -> Columns:
    """`branch` to `checkpoint`, then the key: graph, slice id and attempt."""
    return (
        *(row.branch, row.started_at, row.ended_at, row.outcome, row.detail, row.checkpoint),
        *(graph, row.slice_id, row.attempt),
    )


def intent_columns(row: IntentRow, graph: int) -> Columns:
    """`seq`, the intent as JSON, the attached ids as JSON, then the key."""
    return (row.seq, dumps(intent_fields(row.intent)), dumps(row.attached), graph, row.intent.id)


def log_columns(row: LogRow, graph: int) -> Columns:
    """`epoch` to `decisions`, then the key: graph and seq."""
    return (row.epoch, row.at, row.cap, int(row.suspended), row.kind, row.input, row.decisions, graph, row.seq)


def spec_fields(slice_: Slice) -> dict[str, object]:
    """A slice as it was declared, less its id: what JSON can hold, nothing that is empty."""
    return {**_own_fields(slice_), "recipe": _recipe_fields(slice_.recipe)}


def spec(slice_: Slice) -> str:
    """The same as JSON, put together by hand, as most slices have a title and a few edges and no more.

    Most slices of a plan share a recipe, whose part, the last, is made once.
    """
    parts = [f'"title":{_quoted(slice_.title)}'] if slice_.title else []
    if slice_.depends_on:
        parts.append(f'"depends_on":[{",".join(map(_quoted, slice_.depends_on))}]')
    if slice_.required_by or slice_.contends or slice_.touch is not NOTHING or slice_.provenance or slice_.hold:
        parts += [f"{_quoted(name)}:{dumps(value)}" for name, value in _rarer_fields(slice_).items()]
    parts.append(f'"recipe":{_recipe(slice_.recipe)}')
    return f"{{{','.join(parts)}}}"


def _own_fields(slice_: Slice) -> dict[str, object]:
    fields = {"title": slice_.title, "depends_on": slice_.depends_on}
    return {name: value for name, value in fields.items() if value} | _rarer_fields(slice_)


def _rarer_fields(slice_: Slice) -> dict[str, object]:
    touch = slice_.touch
    fields = {
        "required_by": slice_.required_by,
        "contends": slice_.contends,
        "touch": None if touch is NOTHING else _filled({"paths": touch.paths, "hotspots": touch.hotspots}),
        "provenance": slice_.provenance,
        "hold": slice_.hold,
    }
    return {name: value for name, value in fields.items() if value}


@functools.lru_cache(maxsize=256)
def _recipe(recipe: Recipe) -> str:
    return dumps(_recipe_fields(recipe))


def _recipe_fields(recipe: Recipe) -> dict[str, object]:
    return _filled(
        {
            "command": recipe.command,
            "prompt": recipe.prompt,
            "kind": recipe.kind,
            "verify": recipe.verify,
            "max_attempts": recipe.max_attempts,
            "grace_s": recipe.grace_s,
            "quiet_limit_s": recipe.quiet_limit_s,
            "env": recipe.env,
        }
    )


def intent_fields(intent: Intent) -> dict[str, object]:
    """An intent, less its id, in the same form."""
    deadline = intent.deadline and _utc(intent.id, intent.deadline).isoformat()
    fields = {
        "statement": intent.statement,
        "scope": intent.scope,
        "urgency": intent.urgency.name.lower(),
        "deadline": deadline,
        "supersedes": intent.supersedes,
        "terms": intent.terms,
    }
    return _filled(fields)


def _filled(fields: Mapping[str, object]) -> dict[str, object]:
    """Without what is empty. Numbers stay, zero too: a default that changes must not change what is stored."""
    return {name: value for name, value in fields.items() if value or value == 0}


# -- and back ------------------------------------------------------------------------------------------------------


def slice_row(columns: Sequence[Any]) -> SliceRow:
    """From id, spec, and the state columns in the order of `SliceRow`."""
    return stated(declared(columns[0], columns[1]), columns[2:])


def stated(slice_: Slice, columns: Sequence[Any]) -> SliceRow:
    """From the state columns alone."""
    (seq, state, attempt, closes, turns, branch, url, error, checkpoint, hold, canceling, stopping) = columns[:12]
    return SliceRow(
        *(slice_, seq, _STATES[state], attempt, closes, turns, branch, url, error, checkpoint, hold),
        *(bool(canceling), bool(stopping), *columns[12:]),
    )


def declared(slice_id: str, spec: str) -> Slice:
    """A slice from its spec. In one that is made here the recipe stands last; many slices share it: it is made once."""
    own, _, recipe = spec.partition('"recipe":')  # as a key alone: within a text its quotes would be escaped
    shared = _shared_recipe(recipe) if own.endswith(("{", ",")) else None
    if shared is None:
        return slice_of(slice_id, _loads(spec))
    return _slice(slice_id, shared, _loads(own[:-1] + "}") if len(own) > 1 else {})


@functools.lru_cache(maxsize=64)
def _shared_recipe(text: str) -> Recipe | None:
    """From the end of a spec. None if it is not a recipe and the spec's last bracket."""
    if not text.startswith("{"):
        return None
    fields, end = _scan(text, 0)
    return _recipe_of(fields) if text[end:] == "}" else None


def _loads(text: str) -> Any:
    """What `JSONDecoder.decode` does, less the search for white space, which takes it longer than a small spec."""
    try:
        value, end = _scan(text, 0)
    except StopIteration as nothing:
        raise ValueError("it is no JSON") from nothing
    if end != len(text):
        raise ValueError("something follows the JSON")
    return value


def attempt_row(columns: Sequence[Any]) -> AttemptRow:
    """From slice id, attempt, and the rest in the order of `AttemptRow`."""
    return AttemptRow(*columns)


def intent_row(columns: Sequence[Any]) -> IntentRow:
    """From id, the intent's JSON, seq, and the JSON of the attached ids."""
    intent_id, text, seq, attached = columns
    return IntentRow(intent_of(intent_id, _loads(text)), seq, tuple(_loads(attached)))


def log_row(columns: Sequence[Any]) -> LogRow:
    """From its columns in the order of `LogRow`."""
    seq, epoch, at, cap, suspended, kind, input_, decisions = columns
    return LogRow(seq, epoch, at, cap, bool(suspended), kind, input_, decisions)


def decoded(decode: Callable[[Sequence[Any]], Row], rows: Iterable[Sequence[Any]]) -> list[Row]:
    """`decode` of each of `rows`. Raises `StoreError` for a row that this version can't have written."""
    made: list[Row] = []
    with collector_paused():
        for columns in rows:
            try:
                made.append(decode(columns))
            except (AttributeError, KeyError, ValueError, TypeError) as error:
                raise StoreError(
                    f"the row of {columns[0]!a} can't be read ({error}); restore the store from a backup"
                ) from error
    return made


def intent_of(intent_id: str, fields: dict[str, Any]) -> Intent:
    """From its fields, which are used up."""
    deadline = _fields(fields).pop("deadline", None)
    return Intent(
        id=intent_id,
        urgency=_URGENCIES[fields.pop("urgency")],
        deadline=deadline and dt.datetime.fromisoformat(deadline),
        **{"statement": "", **fields},
    )


def slice_of(slice_id: str, fields: dict[str, Any]) -> Slice:
    """From its fields, which are used up."""
    return _slice(slice_id, _recipe_of(fields.pop("recipe")), fields)


def _slice(slice_id: str, recipe: Recipe, fields: dict[str, Any]) -> Slice:
    """From all that a recipe is not."""
    _fields(fields)
    if "touch" in fields:
        fields["touch"] = TouchSet(**_fields(fields["touch"]))
    return Slice(slice_id, recipe=recipe, **fields)


def _recipe_of(fields: dict[str, Any]) -> Recipe:
    if "env" in fields:
        fields["env"] = tuple((name, value) for name, value in fields["env"])
    return Recipe(**_fields(fields))


def _fields(fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` itself, its lists made tuples."""
    for name, value in fields.items():
        if type(value) is list:
            fields[name] = tuple(value)
    return fields
