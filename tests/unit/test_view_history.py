"""A log's entries in words, and what of them is about a slice."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from dispatch.errors import StoreError
from dispatch.history import Difference, Verdict
from dispatch.inputs import _DECODERS, OPEN
from dispatch.store.port import AttemptRow, LogRow
from dispatch.view.history import Told, attempt_lines, entry_document, told_lines, verdict_lines

NAMES = {1: "a", 2: "b", 3: "c"}
AT = dt.datetime(2026, 11, 30, 14, 24, 8, 250_000, dt.UTC).timestamp()
WIDE = 200


def told(kind: str, fields: dict[str, Any], decided: dict[str, Any] | None = None, **row: Any) -> Told:
    given = {"seq": 7, "epoch": 2, "at": AT, "cap": 4, "suspended": False} | row
    return Told.of(LogRow(**given, kind=kind, input=json.dumps(fields), decisions=json.dumps(decided or {})), NAMES)


SAID: list[tuple[str, dict[str, Any], str, set[str]]] = [
    ("open", {"weights": "unit", "version": "1.2", "alive": []}, "a process of version 1.2 took the graph up", set()),
    ("open", {"weights": "unit", "version": "", "alive": ["a@1"]}, "took the graph up, with a@1 still running", set()),
    ("enqueue", {"first": 1, "count": 2}, "enqueued a, b", {"a", "b"}),
    ("enqueue", {"first": 1, "count": 0}, "enqueued nothing", set()),
    ("report", {"session": "a@2", "phase": "closed", "detail": "no"}, "a@2 reports closed: no", {"a"}),
    ("report", {"session": "a@2", "phase": "running", "turns": 3}, "a@2 reports running, turn 3", {"a"}),
    ("pass", {}, "looked again, with a cap of 4", set()),
    ("merged", {"slice": "a", "pull_request_url": "u"}, "a was said to be merged by u", {"a"}),
    ("merged", {"slice": "a"}, "a was said to be merged", {"a"}),
    ("cancel", {"slice": "a"}, "cancel a", {"a"}),
    ("retry", {"slice": "a"}, "retry a", {"a"}),
    ("revise", {"slice": "a", "was": {}, "is": {}}, "a was declared anew", {"a"}),
    ("hold", {"slice": "a", "reason": "so"}, "hold a: so", {"a"}),
    ("release", {"slice": "a"}, "release a", {"a"}),
    ("pause", {"reason": "night"}, "pause: night", set()),
    ("resume", {}, "resume", set()),
    ("intent", {"id": "i", "intent": {"urgency": "high", "scope": "a"}}, "intent i, high: no statement", {"a"}),
    (
        "route",
        {"id": "i", "intent": {"urgency": "low", "statement": "s"}, "message": "m", "new": 3},
        "message for i: m",
        {"c"},
    ),
    ("route", {"id": "i", "intent": {"urgency": "low", "statement": "s"}}, "message for i: s", set()),
    ("request_failed", {"session": "a@1", "problem": "gone"}, "a@1: gone", {"a"}),
    ("of the future", {}, "of the future", set()),
]


@pytest.mark.parametrize(
    ("given", "decided"),
    [
        ("{", "{}"),
        ("{}", "{"),
        ("[]", "{}"),
        ("{}", "[1]"),
        ("{}", "{}"),
        ('{"session":"a@1","phase":"x"}', '{"moved":[1]}'),
    ],
)
def test_an_entry_that_can_not_be_read_is_refused_by_its_number(given: str, decided: str) -> None:
    with pytest.raises(StoreError, match=r"entry 7 of the log can't be read"):
        Told.of(LogRow(7, 2, AT, 4, False, "report", given, decided), NAMES)


def named(value: object) -> str:
    """The same in every process of a test run: sets have no order."""
    return str(sorted(value) if isinstance(value, set) else value)[:20]


@pytest.mark.parametrize(("kind", "fields", "words", "about"), SAID, ids=named)
def test_what_came_in_is_said_and_whom_it_is_about(
    kind: str, fields: dict[str, Any], words: str, about: set[str]
) -> None:
    found = told(kind, fields).came_in
    assert words in found.text
    assert found.about == about


def test_every_kind_is_said_in_words() -> None:
    assert {kind for kind, *_ in SAID} >= {OPEN, *_DECODERS}


DECIDED: list[tuple[dict[str, Any], str, set[str]]] = [
    ({"moved": [["a", "in_review"]]}, "a is in review", {"a"}),
    ({"starts": [["a@1", 3.0, 0, 2]]}, "a@1 starts, in place 2 of 4: critical path 3", {"a"}),
    ({"starts": [["a@1", 75.5, 4, 1]]}, "a@1 starts, in place 1 of 4: critical path 1m16s, urgency urgent", {"a"}),
    ({"preempts": [["a@1", "b"]]}, "a@1 is asked to stop, to make room for b", {"a", "b"}),
    ({"stops": ["a@1"]}, "a@1 is asked to stop", {"a"}),
    ({"sends": ["a@1"]}, "the message goes into a@1", {"a"}),
    ({"room": ["a", "b"]}, "room is being made for a, b", {"a", "b"}),
    ({"room": []}, "room is being made for nobody any more", set()),
    ({"attached": ["a"]}, "attached to a", {"a"}),
    ({"attached": []}, "attached to nothing", set()),
    ({"routed": "already_done", "to": "a"}, "already done: a", {"a"}),
    ({"routed": "new"}, "new", set()),
]


@pytest.mark.parametrize(("decided", "words", "about"), DECIDED, ids=named)
def test_what_was_decided_is_said_and_whom_it_is_about(decided: dict[str, Any], words: str, about: set[str]) -> None:
    (found,) = told("pass", {}, decided).decided
    assert (found.text, found.about) == (words, about)


def plain(told: Told, slice_id: str = "", width: int = WIDE) -> list[str]:
    return [text.plain for text in told_lines(told, slice_id, width)]


def test_an_entry_is_a_line_with_its_decisions_below() -> None:
    found = told("report", {"session": "a@1", "phase": "merged"}, {"moved": [["a", "merged"]], "stops": ["b@1"]})
    assert plain(found) == [
        "2026-11-30 14:24:08     7  a@1 reports merged",
        "        - a is merged",
        "        - b@1 is asked to stop",
    ]


def test_of_a_slices_story_only_what_is_about_it_is_told() -> None:
    found = told("report", {"session": "a@1", "phase": "merged"}, {"moved": [["a", "merged"]], "stops": ["b@1"]})
    assert found.concerns("a")
    assert found.concerns("b")
    assert not found.concerns("c")
    assert plain(found, "b")[1:] == ["        - b@1 is asked to stop"]


def test_an_outage_is_told_with_whatever_came_in() -> None:
    assert "out of reach" in plain(told("retry", {"slice": "a"}, suspended=True), "a")[1]


def test_nothing_from_outside_acts_on_a_terminal() -> None:
    hostile = "\x1b[2J\x1b]0;title\x07two\nlines\u202e"
    row = AttemptRow("a", 1, f"b{hostile}", AT, AT + 5, "closed", hostile, hostile)
    lines = [*attempt_lines(row, WIDE), *told_lines(told("pause", {"reason": hostile}), "", WIDE)]
    lines += verdict_lines(Verdict(1, 0, AT, AT, hostile, Difference(1, hostile, hostile, hostile)), WIDE)
    assert len(lines) == 8
    assert all(line.plain.isprintable() for line in lines)


def test_a_narrow_terminal_gets_all_of_it_on_more_lines() -> None:
    found = told("report", {"session": "a@1", "phase": "closed", "detail": "word " * 30}, {"moved": [["a", "queued"]]})
    lines = plain(found, width=40)
    assert all(len(line) <= 40 for line in lines)
    assert " ".join(lines).count("word") == 30


def test_an_attempt_tells_its_end_its_branch_and_what_it_left() -> None:
    row = AttemptRow("a", 2, "dispatch/a/2", AT, AT + 65, "preempted", "asked", "got this far")
    assert [text.plain for text in attempt_lines(row, WIDE)] == [
        "2026-11-30 14:24:08  attempt 2: preempted after 1m05s  asked",
        "        branch dispatch/a/2",
        "        checkpoint got this far",
    ]
    running = AttemptRow("a", 1, "dispatch/a/1", AT)
    assert next(attempt_lines(running, WIDE)).plain == "2026-11-30 14:24:08  attempt 1: runs"


def test_programs_get_ids_where_the_log_has_places() -> None:
    assert entry_document(told("enqueue", {"first": 2, "count": 2}), NAMES)["input"] == {"slices": ["b", "c"]}
    routed = told("route", {"id": "i", "intent": {"urgency": "low"}, "new": 3})
    assert entry_document(routed, NAMES)["input"]["new"] == "c"
