"""Whether two path patterns meet, decided the slow way: the yardstick for touch-sets in the plain model.

Characters come from a small alphabet, a class is the set of them that it stands for, and two patterns are laid side by
side in every possible way. Enough for the patterns that these tests generate; there are no escapes.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-+")
RUN = "**"  #: any number of segments in a path, or of characters in a segment

Item = TypeVar("Item")


@functools.cache
def overlap(ours: str, theirs: str) -> bool:
    """Whether some path is covered by both patterns; each covers what lies below it, too."""
    return _meet([*_segments(ours), RUN], [*_segments(theirs), RUN], _segments_meet)


def malformed(pattern: str) -> bool:
    """Whether a pattern is out of the grammar. Looks only for the faults that the tests make."""
    parts = _segments(pattern)
    classes_close = pattern.count("[") == pattern.count("]") and not {"[]", "[!]", "[^]"} & set(_classes(pattern))
    return pattern.startswith("/") or not parts or ".." in parts or pattern.endswith("\\") or not classes_close


def _classes(pattern: str) -> list[str]:
    return re.findall(r"\[[^\]]*\]", pattern)


def _segments(pattern: str) -> list[str]:
    return [part for part in pattern.split("/") if part not in ("", ".")]


def _segments_meet(ours: str, theirs: str) -> bool:
    return _meet(_characters(ours), _characters(theirs), lambda x, y: not frozenset(x).isdisjoint(y))


def _characters(segment: str) -> list[frozenset[str] | str]:
    """A segment as one set of characters per place, with `RUN` for a star."""
    found: list[frozenset[str] | str] = []
    while segment:
        first, segment = segment[0], segment[1:]
        if first == "[":
            end = segment.index("]", 1)
            found.append(_class(segment[:end]))
            segment = segment[end + 1 :]
        elif first == "*":
            found.append(RUN)
        else:
            found.append(ALPHABET if first == "?" else frozenset(first))
    return found


def _class(body: str) -> frozenset[str]:
    negated = body[0] in "!^"
    body = body[1:] if negated else body
    listed: set[str] = set()
    while body:
        ranged = len(body) > 2 and body[1] == "-"
        low, high = body[0], body[2] if ranged else body[0]
        listed |= {c for c in ALPHABET if low <= c <= high}
        body = body[3 if ranged else 1 :]
    return ALPHABET - listed if negated else frozenset(listed)


def _meet(ours: Sequence[Item], theirs: Sequence[Item], alike: Callable[[Item, Item], bool]) -> bool:
    """Whether one sequence fits both patterns, given whether one thing fits two single items."""
    reached, todo = {(0, 0)}, [(0, 0)]
    while todo:
        i, j = todo.pop()
        for right, down in _moves(ours[i : i + 1], theirs[j : j + 1], alike):
            if (i + right, j + down) not in reached:
                reached.add((i + right, j + down))
                todo.append((i + right, j + down))
    return (len(ours), len(theirs)) in reached


def _moves(
    ours: Sequence[Item], theirs: Sequence[Item], alike: Callable[[Item, Item], bool]
) -> Iterator[tuple[int, int]]:
    """How far each side may move on: a run is left, or swallows what the other side has."""
    if ours and ours[0] == RUN:
        yield 1, 0
        if theirs:
            yield 0, 1
    if theirs and theirs[0] == RUN:
        yield 0, 1
        if ours:
            yield 1, 0
    if ours and theirs and RUN not in (ours[0], theirs[0]) and alike(ours[0], theirs[0]):
        yield 1, 1
