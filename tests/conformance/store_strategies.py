"""Rows and batches as Hypothesis draws them: what a store keeps, and, where asked, what it must refuse.

A row is a plain one with a few of its fields drawn anew: over many examples every field gets every kind of value,
and an example stays small enough to draw hundreds of them.
"""

from __future__ import annotations

import datetime as dt
from typing import TypeVar

import attrs
from hypothesis import strategies as st

from dispatch.intent import Intent, Urgency
from dispatch.slice import Slice, SliceState, TouchSet
from dispatch.store import AttemptRow, Changes, GraphRow, IntentRow, SliceRow
from dispatch.store.port import KeyframeRow, LogRow
from harness import Recipe

Value = TypeVar("Value")

SLICE_IDS = st.sampled_from(["a", "b", "c", "d.1"])
INTENT_IDS = st.sampled_from(["i", "j", "k"])
ZONES = st.just(dt.UTC) | st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))

GOOD_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
GOOD_FLOAT = st.floats(allow_nan=False, allow_infinity=False)
GOOD_COUNT = st.integers(0, 5) | st.integers(-(2**63), 2**63 - 1)
GOOD_MOMENT = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 12, 31), timezones=ZONES)

ANY_TEXT = st.text(max_size=8) | st.text("a\0\ud800\udfff€😀\\u0", max_size=4)
ANY_FLOAT = st.floats()
ANY_COUNT = st.integers() | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1])
ANY_MOMENT = st.datetimes(timezones=st.none() | ZONES)


def edited(plain: st.SearchStrategy[Value], fields: dict[str, st.SearchStrategy[object]]) -> st.SearchStrategy[Value]:
    """`plain` with up to four of its `fields` drawn anew."""
    edits = st.lists(st.one_of([st.tuples(st.just(name), values) for name, values in fields.items()]), max_size=4).map(
        dict
    )
    return st.builds(lambda value, changed: attrs.evolve(value, **changed), plain, edits)


def each(strategy: st.SearchStrategy[object], names: str) -> dict[str, st.SearchStrategy[object]]:
    return dict.fromkeys(names.split(), strategy)


def batches(
    text: st.SearchStrategy[str],
    number: st.SearchStrategy[float],
    count: st.SearchStrategy[int],
    moment: st.SearchStrategy[dt.datetime],
) -> st.SearchStrategy[Changes]:
    texts = st.lists(text, max_size=3).map(tuple)
    env = st.lists(st.tuples(text, text), max_size=2).map(tuple)
    recipe = edited(
        st.just(Recipe()),
        each(texts, "command verify")
        | each(text, "prompt kind")
        | each(number, "grace_s quiet_limit_s")
        | {"max_attempts": count, "env": env},
    )
    declared = edited(
        st.builds(Slice, SLICE_IDS),
        each(text, "title provenance hold")
        | each(texts, "depends_on required_by contends")
        | {"recipe": recipe, "touch": st.builds(TouchSet, texts, texts)},
    )
    slices = edited(
        st.builds(SliceRow, declared, st.integers(1, 9), st.sampled_from(SliceState), st.integers(0, 1)),
        each(count, "seq attempt closes turns")
        | each(text, "branch pull_request_url error checkpoint hold")
        | each(st.booleans(), "canceling stopping")
        | each(number, "ran_s enqueued_at started_at ended_at"),
    )
    attempts = edited(
        st.builds(AttemptRow, SLICE_IDS, st.integers(1, 3), st.just("branch"), st.just(1.0)),
        {"attempt": count} | each(text, "branch outcome detail checkpoint") | each(number, "started_at ended_at"),
    )
    entries = edited(
        st.builds(LogRow, st.integers(1, 4), st.just(1), st.just(1.0), *map(st.just, (2, False, "pass", "{}", "{}"))),
        each(count, "seq epoch cap") | each(text, "kind input decisions") | {"at": number, "suspended": st.booleans()},
    )
    keyframes = edited(
        st.builds(KeyframeRow, st.integers(0, 3), st.just(1.0), st.binary(max_size=5)), {"seq": count, "at": number}
    )
    intent = edited(
        st.builds(Intent, INTENT_IDS, st.just("do it"), urgency=st.sampled_from(Urgency)),
        each(text, "statement scope supersedes") | {"deadline": st.none() | moment, "terms": texts},
    )
    return st.builds(
        Changes,
        graph=st.none() | st.builds(GraphRow, text, text),
        slices=st.lists(slices, max_size=3).map(tuple),
        attempts=st.lists(attempts, max_size=2).map(tuple),
        intents=st.lists(st.builds(IntentRow, intent, count, texts), max_size=2).map(tuple),
        forgotten=st.lists(INTENT_IDS, max_size=1).map(tuple),
        log=st.lists(entries, max_size=2).map(tuple),
        keyframe=st.none() | keyframes,
    )


ANY_BATCH = batches(ANY_TEXT, ANY_FLOAT, ANY_COUNT, ANY_MOMENT)
GOOD_BATCH = batches(GOOD_TEXT, GOOD_FLOAT, GOOD_COUNT, GOOD_MOMENT)
