"""What the machine takes in, as JSON and back: the `kind` and `input` of a log's entries.

What is stored already is not stored twice. Slices that were enqueued are named by their places in enqueue order: what
they were declared as is with the slices themselves. Where that was revised, the log has what it was before.

Texts are cut and cleaned as the machine does it before it keeps them, so that an input that was read back does what it
did at first. What is empty is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dispatch.attempts import clean
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
from dispatch.intent import Intent
from dispatch.slice import Slice, canonical
from dispatch.store import codec
from harness import SessionPhase, SessionState
from harness.text import storable

OPEN = "open"  #: the kind of the entry that a graph's owner begins with
REVISE, PASS = "revise", "pass"
REPORT = "report"

Fields = dict[str, Any]
_Encoder = Callable[[Any, int, int, Slice | None], tuple[str, Fields]]


def encoded(command: Command, first: int, enqueued: int, was: Slice | None = None) -> tuple[str, str]:
    """The kind and the JSON of a command that was taken in.

    By it `enqueued` slices came into the graph, whose places in enqueue order begin at `first`. `was` is what the slice
    that it revised was declared as before.
    """
    if type(command) is Enqueue:  # by hand: it is on the way of a lone call
        return "enqueue", f'{{"first":{first},"count":{enqueued}}}'
    kind, fields = _ENCODERS[type(command)](command, first, enqueued, was)
    return kind, codec.dumps(fields) if fields else "{}"


def decoded(kind: str, fields: Fields, declared: Mapping[int, Slice]) -> Command:
    """The command again. `declared`: slices as they were enqueued, by their place. Uses `fields` up.

    Raises `KeyError`, `TypeError` or `ValueError` for what `encoded` can't have made.
    """
    return _DECODERS[kind](fields, declared)


# -- to JSON -------------------------------------------------------------------------------------------------------


def _report(command: Observe, *_: Any) -> tuple[str, Fields]:
    report = clean(command.report)
    fields: Fields = {"session": report.assignment_id, "phase": report.phase.value}
    if report.turns:
        fields["turns"] = report.turns
    for name in _REPORT_TEXTS:
        if text := getattr(report, name):
            fields[name] = text
    return REPORT, fields


def _merged(command: MarkMerged, *_: Any) -> tuple[str, Fields]:
    return "merged", _filled({"slice": command.slice_id, "pull_request_url": storable(command.pull_request_url)})


def _revise(command: Revise, _: int, __: int, was: Slice | None) -> tuple[str, Fields]:
    assert was is not None, "a slice that is revised was declared before"
    fields = {"was": codec.spec_fields(was), "is": codec.spec_fields(canonical(command.slice))}
    return REVISE, {"slice": command.slice.id, **fields}


def _intent(command: DeclareIntent, *_: Any) -> tuple[str, Fields]:
    return "intent", _filled({**_intent_fields(command.intent), "known": command.known})


def _route(command: Route, first: int, enqueued: int, _: Slice | None) -> tuple[str, Fields]:
    fields = {**_intent_fields(command.intent), "message": storable(command.message)}
    if enqueued:
        fields["new"] = first
    if command.proof is not None:
        findings = [storable(finding) for finding in command.proof.findings]
        fields["proof"] = {"reference": storable(command.proof.reference), "findings": findings}
    return "route", _filled(fields)


def _failed(command: RequestFailed, *_: Any) -> tuple[str, Fields]:
    return "request_failed", {"session": command.assignment_id, "problem": storable(command.problem)}


def _intent_fields(intent: Intent) -> Fields:
    return {"id": intent.id, "intent": codec.intent_fields(intent)}


def _filled(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value}


def _of_slice(kind: str) -> _Encoder:
    return lambda command, *_: (kind, {"slice": command.slice_id})


def _of_slice_and_reason(kind: str) -> _Encoder:
    return lambda command, *_: (kind, _filled({"slice": command.slice_id, "reason": storable(command.reason)}))


def _of_reason(kind: str) -> _Encoder:
    return lambda command, *_: (kind, _filled({"reason": storable(command.reason)}))


_REPORT_TEXTS = ("branch", "pull_request_url", "error", "detail", "checkpoint")
_ENCODERS: dict[type, _Encoder] = {
    Observe: _report,
    Remeasure: lambda *_: (PASS, {}),
    MarkMerged: _merged,
    Cancel: _of_slice("cancel"),
    Retry: _of_slice("retry"),
    Revise: _revise,
    Hold: _of_slice_and_reason("hold"),
    Release: _of_slice_and_reason("release"),
    Pause: _of_reason("pause"),
    Resume: _of_reason("resume"),
    DeclareIntent: _intent,
    Route: _route,
    RequestFailed: _failed,
}


# -- and back ------------------------------------------------------------------------------------------------------


def _to_report(fields: Fields, _: Mapping[int, Slice]) -> Command:
    session, phase = fields.pop("session"), SessionPhase(fields.pop("phase"))
    return Observe(SessionState(session, phase, **fields))


def _to_enqueue(fields: Fields, declared: Mapping[int, Slice]) -> Command:
    first = fields["first"]
    return Enqueue(tuple(declared[seq] for seq in range(first, first + fields["count"])))


def _to_intent(fields: Fields, _: Mapping[int, Slice]) -> Command:
    return DeclareIntent(codec.intent_of(fields["id"], fields["intent"]), fields.get("known", False))


def _to_route(fields: Fields, declared: Mapping[int, Slice]) -> Command:
    proof = fields.get("proof")
    return Route(
        codec.intent_of(fields["id"], fields["intent"]),
        fields.get("message", ""),
        declared[fields["new"]] if "new" in fields else None,
        None if proof is None else Proof(proof["reference"], tuple(proof["findings"])),
    )


def _to(command: Callable[..., Command]) -> Callable[[Fields, Mapping[int, Slice]], Command]:
    """Of those whose fields are named alike, but for the slice's id."""

    def decode(fields: Fields, _: Mapping[int, Slice]) -> Command:
        return command(**{_ARGUMENTS.get(name, name): value for name, value in fields.items()})

    return decode


_ARGUMENTS = {"slice": "slice_id", "session": "assignment_id"}
_DECODERS: dict[str, Callable[[Fields, Mapping[int, Slice]], Command]] = {
    REPORT: _to_report,
    PASS: _to(Remeasure),
    "enqueue": _to_enqueue,
    "merged": _to(MarkMerged),
    "cancel": _to(Cancel),
    "retry": _to(Retry),
    REVISE: lambda fields, _: Revise(codec.slice_of(fields["slice"], fields["is"])),
    "hold": _to(Hold),
    "release": _to(Release),
    "pause": _to(Pause),
    "resume": _to(Resume),
    "intent": _to_intent,
    "route": _to_route,
    "request_failed": _to(RequestFailed),
}
