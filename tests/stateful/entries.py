"""Slices as the plain model keeps them, and what two of them, or a slice and an intent, have to do with one another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from tests.stateful.plain_touch import malformed, overlap

Step = Mapping[str, Any]


@attrs.define(eq=False)
class Entry:
    """A slice as the model keeps it."""

    id: str
    depends_on: tuple[str, ...]
    required_by: tuple[str, ...]
    contends: tuple[str, ...]
    paths: tuple[str, ...]
    hotspots: tuple[str, ...]
    max_attempts: int
    hold: str  #: the reason for which it is held back, or nothing
    state: str = "queued"
    attempt: int = 0
    closes: int = 0
    pull_request_url: str = ""
    error: str = ""  #: what the report said that failed it
    checkpointed: bool = False  #: an attempt left something behind for the next
    canceling: bool = False  #: a cancel waits for the session's report
    asked: bool = False  #: its session was asked to stop


def as_entry(fields: Step) -> Entry:
    return Entry(
        id=fields["id"],
        depends_on=tuple(fields["depends_on"]),
        required_by=tuple(fields["required_by"]),
        contends=tuple(fields["contends"]),
        paths=tuple(fields["paths"]),
        hotspots=tuple(fields["hotspots"]),
        max_attempts=fields.get("max_attempts", 3),
        hold="case" if fields.get("hold") else "",
    )


def out_of_grammar(fields: Step) -> bool:
    id_, title = fields["id"], fields.get("title", "")
    named_well = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", id_) and ".." not in id_
    ends_well = not id_.endswith((".", ".lock"))
    titled_well = len(title) <= 256 and title.isprintable()
    return not (named_well and ends_well and titled_well) or any(malformed(path) for path in fields["paths"])


def precedes(one: Entry, other: Entry) -> bool:
    return one.id in other.depends_on or other.id in one.required_by


def runs_in_a_circle(entries: Iterable[Entry]) -> bool:
    """Take away what waits for nothing that is left, until there is no more of it."""
    left = list(entries)
    while True:
        waiting = [entry for entry in left if any(precedes(other, entry) for other in left)]
        if len(waiting) == len(left):
            return bool(left)
        left = waiting


def contend(one: Entry, other: Entry) -> bool:
    if one is other:
        return False
    declared = one.id in other.contends or other.id in one.contends
    hotspot = any(name in other.hotspots for name in one.hotspots)
    return declared or hotspot or any(overlap(a, b) for a in one.paths for b in other.paths)


def contends_with_any(entry: Entry, others: Iterable[Entry]) -> bool:
    return any(contend(entry, other) for other in others)


def covered_terms(intent: Step, entry: Entry) -> int:
    terms = {term.strip().lower() for term in intent.get("terms", ())} - {""}
    texts = [text.lower() for text in (*entry.paths, *entry.hotspots)]
    return sum(any(term in text for text in texts) for term in terms)


def most_covering(intent: Step, entries: Sequence[Entry]) -> list[Entry]:
    most = max((covered_terms(intent, entry) for entry in entries), default=0)
    return [entry for entry in entries if most and covered_terms(intent, entry) == most]
