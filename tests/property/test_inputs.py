"""Every command that the log can hold is read back as the command it was."""

from __future__ import annotations

import json
from typing import get_args

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch import inputs
from dispatch.commands import (
    Cancel,
    Command,
    DeclareIntent,
    Enqueue,
    Hold,
    MarkMerged,
    Observe,
    Pause,
    Proof,
    Release,
    Remeasure,
    RequestFailed,
    Resume,
    Retry,
    Revise,
    Route,
)
from dispatch.intent import Intent, Urgency
from dispatch.slice import Slice, TouchSet
from dispatch.store import codec
from dispatch.store.port import Changes, LogRow
from harness import Recipe, SessionPhase, SessionState
from harness.text import STORED_LIMIT, storable
from tests.conformance.store_strategies import ANY_TEXT, GOOD_FLOAT, GOOD_MOMENT, GOOD_TEXT, each, edited
from tests.effort import examples

IDS = st.sampled_from(["a", "b.1", "c_2"])
SESSIONS = st.builds("{}@{}".format, IDS, st.integers(1, 9))
LONG = st.just("x" * (STORED_LIMIT + 1))
ANY = ANY_TEXT | LONG  #: what comes from outside, and the machine cuts and cleans
SAID = GOOD_TEXT | LONG  #: what a caller may say, and the machine cuts
TEXTS = st.lists(GOOD_TEXT, max_size=2).map(tuple)
RECIPES = edited(
    st.just(Recipe()),
    each(TEXTS, "command verify") | each(GOOD_TEXT, "prompt kind") | each(GOOD_FLOAT, "grace_s quiet_limit_s"),
)
SLICES = edited(
    st.builds(Slice, IDS, st.just("title")),
    each(GOOD_TEXT, "provenance hold")
    | each(TEXTS, "depends_on required_by contends")
    | {"recipe": RECIPES, "touch": st.builds(TouchSet, TEXTS, TEXTS)},
)
INTENTS = edited(
    st.builds(Intent, IDS, st.just("do it"), urgency=st.sampled_from(Urgency)),
    each(GOOD_TEXT, "statement scope supersedes") | {"deadline": st.none() | GOOD_MOMENT, "terms": TEXTS},
)
REPORTS = edited(
    st.builds(SessionState, SESSIONS, st.sampled_from(SessionPhase), st.integers(0, 9)),
    each(ANY, "branch pull_request_url error detail checkpoint"),
)
PROOFS = st.builds(Proof, ANY, st.lists(ANY, max_size=2).map(tuple))
COMMANDS: dict[type, st.SearchStrategy[Command]] = {
    Enqueue: st.builds(Enqueue, st.lists(SLICES, max_size=3).map(tuple)),
    MarkMerged: st.builds(MarkMerged, IDS, SAID),
    Cancel: st.builds(Cancel, IDS),
    Retry: st.builds(Retry, IDS),
    Revise: st.builds(Revise, SLICES),
    Hold: st.builds(Hold, IDS, SAID),
    Release: st.builds(Release, IDS, SAID),
    Pause: st.builds(Pause, SAID),
    Resume: st.builds(Resume, SAID),
    DeclareIntent: st.builds(DeclareIntent, INTENTS, st.booleans()),
    Route: st.builds(Route, INTENTS, SAID, st.none() | SLICES, st.none() | PROOFS),
    Observe: st.builds(Observe, REPORTS),
    Remeasure: st.just(Remeasure()),
    RequestFailed: st.builds(RequestFailed, SESSIONS, ANY),
}


def enqueued_by(command: Command) -> tuple[Slice, ...]:
    match command:
        case Enqueue(slices):
            return slices
        case Route(new_slice=Slice() as slice_):
            return (slice_,)
        case _:
            return ()


def cut_and_cleaned(command: Command) -> Command:
    """What of a command has an effect: texts as the machine keeps them."""
    match command:
        case Observe(report):
            texts = ("branch", "pull_request_url", "error", "detail", "checkpoint")
            return Observe(attrs.evolve(report, **{name: storable(getattr(report, name)) for name in texts}))
        case MarkMerged(pull_request_url=text):
            return attrs.evolve(command, pull_request_url=storable(text))
        case Hold(reason=text) | Release(reason=text) | Pause(reason=text) | Resume(reason=text):
            return attrs.evolve(command, reason=storable(text))
        case RequestFailed(problem=text):
            return attrs.evolve(command, problem=storable(text))
        case Route(message=text, proof=proof):
            if proof is not None:
                proof = Proof(storable(proof.reference), tuple(map(storable, proof.findings)))
            return attrs.evolve(command, message=storable(text), proof=proof)
        case _:
            return command


def test_there_is_a_strategy_for_every_command() -> None:
    assert set(COMMANDS) == set(get_args(Command))


@settings(max_examples=examples(400), deadline=None)
@given(st.one_of(list(COMMANDS.values())), st.integers(1, 2**40), SLICES)
def test_every_command_comes_back_as_it_was(command: Command, next_seq: int, was: Slice) -> None:
    slices = enqueued_by(command)
    kind, text = inputs.encoded(command, next_seq, len(slices), was)
    codec.check(Changes(log=(LogRow(1, 1, 0.0, 1, False, kind, text, "{}"),)))  # every database keeps it
    declared = dict(enumerate(slices, next_seq))
    assert inputs.decoded(kind, json.loads(text), declared) == cut_and_cleaned(command)


@given(SLICES, SLICES)
def test_a_revision_says_what_was_before(was: Slice, is_: Slice) -> None:
    _, text = inputs.encoded(Revise(is_), 1, 0, was)
    fields = json.loads(text)
    assert codec.slice_of(was.id, fields["was"]) == was


def test_what_is_stored_already_is_not_stored_twice() -> None:
    prompt = "x" * 10_000
    slices = tuple(Slice(f"s{n}", recipe=Recipe(prompt=prompt)) for n in range(1000))
    _, text = inputs.encoded(Enqueue(slices), 7, len(slices))
    assert len(text) < 100
