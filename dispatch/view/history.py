"""A graph's past as people and as programs read it: what came in, and what was decided upon it (see `docs/cli.md`)."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
from rich.text import Text

from dispatch.errors import StoreError
from dispatch.history import Verdict
from dispatch.inputs import OPEN, PASS, REPORT, REVISE
from dispatch.intent import Urgency
from dispatch.store.port import AttemptRow, LogRow
from dispatch.text import listed
from dispatch.view.stored import attempt_fields
from dispatch.view.text import clean, count, elapsed, folded, line, moment

MOST_NAMES = 8  #: of slices in one line
_AGE = 8  # blanks by which what was decided is indented below what came in
_URGENCIES = {urgency.value: urgency.name.lower() for urgency in Urgency}


@attrs.frozen
class Words:
    """Something that was said or decided, and the slices that it is about."""

    text: str
    about: frozenset[str] = frozenset()

    def concerns(self, slice_id: str) -> bool:
        return not slice_id or slice_id in self.about


@attrs.frozen
class Told:
    """An entry of the log in words: what came in, and what was decided upon it."""

    row: LogRow
    came_in: Words
    decided: tuple[Words, ...]

    @classmethod
    def of(cls, row: LogRow, names: Mapping[int, str]) -> Told:
        """`names`: the slices' ids by their places in enqueue order.

        Raises `StoreError` for an entry that this program did not write.
        """
        try:
            fields, decided = json.loads(row.input), json.loads(row.decisions)
            return cls(row, _came_in(row, fields, names), tuple(_decisions(row, decided)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(
                f"entry {row.seq} of the log can't be read ({error!r}); --since and --until leave it out"
            ) from error

    def concerns(self, slice_id: str) -> bool:
        return self.came_in.concerns(slice_id) or any(words.concerns(slice_id) for words in self.decided)


def _came_in(row: LogRow, fields: dict[str, Any], names: Mapping[int, str]) -> Words:
    about = _about(fields, names)
    match row.kind:
        case "enqueue":
            ids = _enqueued(fields, names)
            return Words(f"enqueued {listed(ids, MOST_NAMES) or 'nothing'}", about)
        case "intent":
            intent = fields["intent"]
            text = f"intent {fields['id']}, {intent['urgency']}: {intent.get('statement') or 'no statement'}"
            return Words(text, about)
        case "route":
            message = fields.get("message") or fields["intent"].get("statement") or "no text"
            return Words(f"message for {fields['id']}: {message}", about)
        case _:
            say = _SAID.get(row.kind)
            return Words(row.kind if say is None else say(row, fields), about)


def _report(_: LogRow, fields: dict[str, Any]) -> str:
    words = fields.get("error") or fields.get("detail") or fields.get("pull_request_url", "")
    turns = f", turn {fields['turns']}" if fields["phase"] == "running" and fields.get("turns") else ""
    return f"{fields['session']} reports {fields['phase']}{turns}" + (f": {words}" if words else "")


def _opened(row: LogRow, fields: dict[str, Any]) -> str:
    alive = f", with {listed(fields['alive'], MOST_NAMES)} still running" if fields["alive"] else ""
    version = f" of version {fields['version']}" if fields["version"] else ""
    return f"a process{version} took the graph up{alive} (epoch {row.epoch}, {fields['weights']} weights)"


def _with_reason(text: str, fields: dict[str, Any]) -> str:
    return f"{text}: {fields['reason']}" if fields.get("reason") else text


_SAID: dict[str, Callable[[LogRow, dict[str, Any]], str]] = {
    OPEN: _opened,
    REPORT: _report,
    PASS: lambda row, _: f"looked again, with a cap of {row.cap}",
    REVISE: lambda _, fields: f"{fields['slice']} was declared anew",
    "merged": lambda _, fields: (
        f"{fields['slice']} was said to be merged"
        + (f" by {fields['pull_request_url']}" if "pull_request_url" in fields else "")
    ),
    "cancel": lambda _, fields: f"cancel {fields['slice']}",
    "retry": lambda _, fields: f"retry {fields['slice']}",
    "hold": lambda _, fields: _with_reason(f"hold {fields['slice']}", fields),
    "release": lambda _, fields: _with_reason(f"release {fields['slice']}", fields),
    "pause": lambda _, fields: _with_reason("pause", fields),
    "resume": lambda _, fields: _with_reason("resume", fields),
    "request_failed": lambda _, fields: f"{fields['session']}: {fields['problem']}",
}


def _about(fields: dict[str, Any], names: Mapping[int, str]) -> frozenset[str]:
    """The slices that an input names."""
    found = {fields.get("slice", ""), _slice_of(fields.get("session", "")), *_enqueued(fields, names)}
    found.add(names.get(fields.get("new", 0), ""))
    if "intent" in fields:
        found.add(fields["intent"].get("scope", ""))
    return frozenset(found - {""})


def _enqueued(fields: dict[str, Any], names: Mapping[int, str]) -> list[str]:
    first = fields.get("first", 0)
    return [names[seq] for seq in range(first, first + fields.get("count", 0)) if seq in names]


def _slice_of(session: str) -> str:
    return session.rpartition("@")[0]


def _decisions(row: LogRow, decided: dict[str, Any]) -> Iterator[Words]:
    for slice_id, state in decided.get("moved", ()):
        yield Words(f"{slice_id} is {state.replace('_', ' ')}", frozenset({slice_id}))
    if "routed" in decided:
        to = decided.get("to", "")
        yield Words(f"{decided['routed'].replace('_', ' ')}" + (f": {to}" if to else ""), frozenset({to} - {""}))
    if "attached" in decided:
        attached = decided["attached"]
        yield Words(f"attached to {listed(attached, MOST_NAMES) or 'nothing'}", frozenset(attached))
    for session, urgent in decided.get("preempts", ()):
        yield Words(f"{session} is asked to stop, to make room for {urgent}", frozenset({_slice_of(session), urgent}))
    for session in decided.get("stops", ()):
        yield Words(f"{session} is asked to stop", frozenset({_slice_of(session)}))
    for session in decided.get("sends", ()):
        yield Words(f"the message goes into {session}", frozenset({_slice_of(session)}))
    for session, upward, urgency, place in decided.get("starts", ()):
        urgent = f", urgency {_URGENCIES[urgency]}" if urgency else ""
        text = f"{session} starts, in place {place} of {row.cap}: critical path {_length(upward)}{urgent}"
        yield Words(text, frozenset({_slice_of(session)}))
    if "room" in decided:
        room = decided["room"]
        yield Words(f"room is being made for {listed(room, MOST_NAMES) or 'nobody any more'}", frozenset(room))
    if row.suspended:
        yield Words("the store was out of reach: nothing could start")


def _length(upward: float) -> str:
    """Of a critical path: a number of slices, until durations have been measured; then a time."""
    return f"{upward:g}" if upward == round(upward) and upward < 1000 else elapsed(upward)


# -- for people ----------------------------------------------------------------------------------------------------


def told_lines(told: Told, slice_id: str, width: int) -> Iterator[Text]:
    """An entry; of what was decided only what is about the slice, if one is meant."""
    head = [(f"{_when(told.row.at)}  ", "dim"), (f"{told.row.seq:>4}  ", "cyan")]
    yield from folded(head, clean(told.came_in.text), indent=_AGE, cells=width)
    for words in told.decided:
        if words.concerns(slice_id) or not words.about:
            yield from folded([(" " * _AGE, ""), ("- ", "dim")], clean(words.text), indent=_AGE + 2, cells=width)


def attempt_lines(row: AttemptRow, width: int) -> Iterator[Text]:
    """An attempt: when, on which branch, how it ended and what it left."""
    ran = f" after {elapsed(row.ended_at - row.started_at)}" if row.outcome and row.ended_at else ""
    head = [(f"{_when(row.started_at)}  ", "dim"), (f"attempt {row.attempt}: ", "bold")]
    parts = [f"{row.outcome or 'runs'}{ran}", clean(row.detail)]
    yield from folded(head, *(part for part in parts if part), indent=_AGE, cells=width)
    yield from folded([(" " * _AGE, ""), ("branch ", "dim")], clean(row.branch), indent=_AGE + 2, cells=width)
    if row.checkpoint:
        yield from folded(
            [(" " * _AGE, ""), ("checkpoint ", "dim")], clean(row.checkpoint), indent=_AGE + 2, cells=width
        )


def left_out_line(number: int, width: int) -> Text:
    """That there is more."""
    return line(
        (f"{count(number, 'earlier entry', 'earlier entries')} not shown; --limit 0 shows all", "dim"), cells=width
    )


def verdict_lines(verdict: Verdict, width: int) -> Iterator[Text]:
    """Whether the log decides again as it did; if not, where."""
    if verdict.begins:
        yield from folded([], clean(verdict.begins), indent=2, cells=width)
    played = f"{count(verdict.inputs, 'input')}, {count(verdict.decisions, 'decision')}"
    if verdict.inputs:
        played += f" from {moment(verdict.since)} to {moment(verdict.until)}"
    found = verdict.difference
    if found is None:
        yield from folded([], f"{played}: all the same", indent=2, cells=width)
        return
    yield from folded([], f"{played}, then a difference:", clean(found.text), indent=2, cells=width)
    for name, words in (("stored", found.stored), ("comes out", found.came_out)):
        if words:
            yield from folded([(f"  {name}: ", "dim")], clean(words), indent=4, cells=width)


def _when(unix_s: float) -> str:
    return moment(unix_s).replace("T", " ").removesuffix("Z")


# -- for programs --------------------------------------------------------------------------------------------------


def entry_document(told: Told, names: Mapping[int, str]) -> dict[str, Any]:
    row, fields, decided = told.row, json.loads(told.row.input), json.loads(told.row.decisions)
    if "first" in fields:
        fields = {"slices": _enqueued(fields, names)}
    elif "new" in fields:
        fields["new"] = names.get(fields["new"])
    return {
        "entry": row.seq,
        "at": precisely(row.at),
        "epoch": row.epoch,
        "cap": row.cap,
        "suspended": row.suspended,
        "kind": row.kind,
        "input": fields,
        "decisions": {
            "moved": [{"slice": slice_id, "state": state} for slice_id, state in decided.get("moved", ())],
            "starts": [
                {
                    "session": session,
                    "critical_path": upward,
                    "urgency": _URGENCIES.get(urgency),
                    "place": place,
                }
                for session, upward, urgency, place in decided.get("starts", ())
            ],
            "preempts": [{"session": session, "for": urgent} for session, urgent in decided.get("preempts", ())],
            "stops": decided.get("stops", []),
            "sends": decided.get("sends", []),
            "room": decided.get("room"),
            "attached": decided.get("attached"),
            "routed": decided.get("routed"),
            "to": decided.get("to"),
        },
    }


def attempt_document(row: AttemptRow) -> dict[str, Any]:
    return {**attempt_fields(row), "checkpoint": row.checkpoint or None}


def history_document(
    graph: str,
    url: str,
    told: Sequence[Told],
    left_out: int,
    names: Mapping[int, str],
    story: tuple[str, Collection[AttemptRow]] | None,
) -> dict[str, Any]:
    """`story`: the slice that is meant, and its attempts."""
    return {
        "graph": graph,
        "store": url,
        "slice": story[0] if story else None,
        "attempts": [attempt_document(row) for row in story[1]] if story else [],
        "left_out": left_out,
        "entries": [entry_document(each, names) for each in told],
    }


def verdict_document(graph: str, verdict: Verdict) -> dict[str, Any]:
    found = verdict.difference
    return {
        "graph": graph,
        "same": found is None,
        "inputs": verdict.inputs,
        "decisions": verdict.decisions,
        "since": precisely(verdict.since) or None,
        "until": precisely(verdict.until) or None,
        "begins": verdict.begins or None,
        "difference": found
        and {
            "entry": found.seq or None,
            "text": found.text,
            "stored": found.stored or None,
            "comes_out": found.came_out or None,
        },
    }


def precisely(unix_s: float) -> str:
    """A moment in UTC to the millisecond, empty for 0."""
    if not unix_s:
        return ""
    return dt.datetime.fromtimestamp(unix_s, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
