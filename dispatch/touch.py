"""Path patterns: what one names, whether two overlap, and an index of many.

**What a pattern names.** It names paths relative to the repository's root: names joined by `/`. `*`, `?` and classes
stand for characters of one name, never for `/`; a segment `**` stands for any number of names, none included; and
whatever a pattern names, it covers everything below as well. So every pattern ends in an unwritten `**`: `src`,
`src/` and `src/**` cover the same paths.

**Overlap.** Split a pattern at each `**` into *runs* of segments; the first run, the *lead*, is anchored at the root.
Since both patterns have a `**` after their lead, a path may be as long as one likes: behind the longer lead, the
remaining runs of the one may follow, then those of the other, each taken in by a `**` of the other pattern. Hence two
patterns overlap exactly when their leads agree, segment by segment, as far as the shorter one goes. Whether two
segments agree is answered by `dispatch.segment`, exactly too, with a name that both match; a witness is put
together from such names. Nothing backtracks: the costs are the length of the shorter lead, and at most the product of
the lengths of two segments.

**Index.** For the same reason a trie over leads answers exactly which patterns overlap another one: all that end on the
way down, and all below the node where its lead ends. Names are looked up, wildcards tried one by one, and a branch that
doesn't agree is never entered.

**Where the grammar leaves room**, it is read like this:

- A segment is read before it is judged: what reads as `.` (`\\.`, `[.]`) says nothing, what reads as `..` is refused. A
  name that comes in pieces (`[.]*`) is never `.` or `..`, as no path holds them. `*` stands for no empty name.
- `**` inside a longer segment is `*`, and so is a segment of three stars or more. An escaped `/` is a `/`.
- A class ends at its first unescaped `]`; `[]` and `[!]` are empty, wherever the next `]` is. After `[`, `!` or `^`
  negates; anywhere else they are characters, as is a `-` at either end or after a range. A range that runs backwards is
  refused, as is a segment that no name matches. There are no named classes. A class of one character is that character.
- The text is brought into NFC before anything is read, and `?` is one code point of a name in NFC.
- A pattern of more than 4,096 characters is longer than any path that could be opened, and is refused.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator

import attrs

from dispatch.errors import InvalidSliceError
from dispatch.segment import STAR, Glob, Segment, fits, meet, read_segment, written

LENGTH_LIMIT = 4096  #: in characters: Linux's PATH_MAX, in bytes, is no more

_ESCAPED = re.compile(r"\\(?:([][*?\\!^-])|(.))", re.DOTALL)
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")

Run = tuple[Segment, ...]


@attrs.frozen(cache_hash=True)
class Pattern:
    """A path pattern, read. Made by `parse` alone; two are equal when their normalised `text` is.

    `literal`: no wildcard is in it, so it names one path. `lead` holds the segments before the first `**`, `later`
    the run behind each `**`; only the last of these may be empty.
    """

    text: str
    literal: bool = attrs.field(eq=False, repr=False)
    lead: Run = attrs.field(eq=False, repr=False)
    later: tuple[Run, ...] = attrs.field(eq=False, repr=False)

    @staticmethod
    def parse(text: str) -> Pattern:
        """The pattern that `text` stands for. Raises `InvalidSliceError` if it is outside the grammar."""
        if not issubclass(type(text), str):
            raise InvalidSliceError("paths", f"{text!r} is not a text")
        return _parsed(text)

    def __str__(self) -> str:
        return self.text


def _refusal(text: str, problem: str) -> InvalidSliceError:
    shown = text if len(text) <= 80 else text[:79] + "…"
    return InvalidSliceError("paths", f"{shown!r} {problem}")


@functools.lru_cache(maxsize=1 << 14)
def _parsed(text: str) -> Pattern:
    if len(text) > LENGTH_LIMIT:
        raise _refusal(text, f"is longer than {LENGTH_LIMIT} characters")
    if _UNWRITABLE.search(text):
        raise _refusal(text, "holds a NUL or half a surrogate pair, which no path does")
    segments = _read(text)
    runs: list[list[Segment]] = [[]]
    for segment in segments:
        if segment is None:
            runs.append([])
        else:
            runs[-1].append(segment)
    return Pattern(
        text="/".join("**" if segment is None else written(segment) for segment in segments),
        literal=len(runs) == 1 and not any(isinstance(segment, Glob) for segment in segments),
        lead=tuple(runs[0]),
        later=tuple(map(tuple, runs[1:])),
    )


def _read(text: str) -> list[Segment | None]:
    """The segments of a pattern, None for `**`; no two of these are adjacent."""
    # Escapes of what means nothing go first: behind one, a combining mark would be kept from its letter.
    plain = _ESCAPED.sub(lambda pair: pair[2] or pair[0], text) if "\\" in text else text
    normal = unicodedata.normalize("NFC", plain)
    if normal.startswith("/"):
        raise _refusal(text, "is absolute; name paths relative to the repository's root")
    segments: list[Segment | None] = []
    for part in normal.split("/"):
        try:
            segment = None if part == "**" else read_segment(part)
        except ValueError as problem:
            raise _refusal(text, f"can't be read: {problem}") from None
        if segment == "..":
            raise _refusal(text, "leads out with '..'; name paths relative to the repository's root")
        if segment not in ("", ".") and (segment is not None or segments[-1:] != [None]):
            segments.append(segment)
    if not segments:
        raise _refusal(text, "names nothing; a pattern for everything is '**'")
    return segments


def matches(pattern: Pattern, path: str) -> bool:
    """Whether `path`, taken as it is written (no wildcards, no escapes), or a folder above it is named by the pattern.

    No pattern covers an absolute path, one with `..`, or the root itself.
    """
    names = [name for name in unicodedata.normalize("NFC", path).split("/") if name not in ("", ".")]
    if not names or path.startswith("/") or ".." in names or not _stands_at(pattern.lead, names, 0):
        return False
    at = len(pattern.lead)
    for run in pattern.later:  # as far up as it fits: the next run is free to stand anywhere below
        places = range(at, len(names) - len(run) + 1)
        found = next((place for place in places if _stands_at(run, names, place)), None)
        if found is None:
            return False
        at = found + len(run)
    return True


def _stands_at(run: Run, names: list[str], at: int) -> bool:
    there = names[at : at + len(run)]
    return len(there) == len(run) and all(map(fits, run, there))


def overlap(one: Pattern, other: Pattern) -> str | None:
    """A path that both patterns cover, or None if there is none."""
    shorter, longer = sorted((one, other), key=lambda pattern: len(pattern.lead))
    shared = []
    for ours, theirs in zip(shorter.lead, longer.lead, strict=False):
        name = meet(ours, theirs)
        if name is None:
            return None
        shared.append(name)
    top = [*shared, *map(_example, longer.lead[len(shared) :])]
    below, other_below = ([_example(segment) for run in pattern.later for segment in run] for pattern in (one, other))
    for names, rest in ((below, other), (other_below, one)) if below and other_below else ():
        path = "/".join([*top, *names])
        if matches(rest, path):  # one's later runs may serve the other too: a shorter witness
            return path
    return "/".join([*top, *below, *other_below]) or "x"


def _example(segment: Segment) -> str:
    name = meet(segment, STAR)
    assert name is not None, "a segment that no name matches is refused"
    return name


# Index


@attrs.define(eq=False)
class _Node:
    """Where a lead has got to: the patterns that have theirs behind them, by text, and the segments that may follow."""

    ended: dict[str, Pattern] = attrs.field(factory=dict)
    names: dict[str, _Node] = attrs.field(factory=dict)
    globs: dict[Glob, _Node] = attrs.field(factory=dict)

    def after(self, segment: Segment) -> _Node | None:
        return self.names.get(segment) if isinstance(segment, str) else self.globs.get(segment)

    def grown(self, segment: Segment) -> _Node:
        child = self.after(segment)
        if child is None:
            child = _Node()
            if isinstance(segment, str):
                self.names[segment] = child
            else:
                self.globs[segment] = child
        return child

    def prune(self, segment: Segment) -> None:
        """Drop what follows `segment` if nothing is left there."""
        child = self.after(segment)
        if child is not None and not (child.ended or child.names or child.globs):
            if isinstance(segment, str):
                del self.names[segment]
            else:
                del self.globs[segment]

    def following(self, lead: Run, depth: int) -> Iterator[_Node]:
        """The nodes behind the segments that agree with the one at `depth` of a lead, or all if it ends before."""
        if depth >= len(lead):
            return itertools.chain(self.names.values(), self.globs.values())
        segment = lead[depth]
        if isinstance(segment, Glob):
            named: Iterator[_Node] = (child for name, child in self.names.items() if fits(segment, name))
        else:
            child = self.names.get(segment)
            named = iter(() if child is None else (child,))
        if not self.globs:
            return named
        return itertools.chain(named, (node for glob, node in self.globs.items() if meet(glob, segment) is not None))


class PatternIndex:
    """A set of patterns that knows which of them overlap a given one."""

    __slots__ = ("_root", "_size")

    def __init__(self, patterns: Iterable[Pattern] = ()) -> None:
        self._root = _Node()
        self._size = 0
        for pattern in patterns:
            self.add(pattern)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, pattern: Pattern) -> bool:
        node: _Node | None = self._root
        for segment in pattern.lead:
            node = node.after(segment) if node is not None else None
        return node is not None and pattern.text in node.ended

    def add(self, pattern: Pattern) -> None:
        """Put the pattern in; one that is in already changes nothing."""
        node = self._root
        for segment in pattern.lead:
            node = node.grown(segment)
        self._size += pattern.text not in node.ended
        node.ended[pattern.text] = pattern

    def discard(self, pattern: Pattern) -> None:
        """Take the pattern out if it is in."""
        trail = [self._root]
        for segment in pattern.lead:
            node = trail[-1].after(segment)
            if node is None:
                return
            trail.append(node)
        self._size -= trail[-1].ended.pop(pattern.text, None) is not None
        for parent, segment in zip(reversed(trail[:-1]), reversed(pattern.lead), strict=True):
            parent.prune(segment)

    def overlapping(self, pattern: Pattern) -> list[Pattern]:
        """Those that overlap the pattern, itself included if it is in; by text, whatever order they were added in."""
        return sorted(self._found(pattern), key=lambda found: found.text)

    def first_overlapping(self, pattern: Pattern) -> Pattern | None:
        """One that overlaps the pattern, or None: what `overlapping` finds first, before it sorts."""
        return next(self._found(pattern), None)

    def _found(self, pattern: Pattern) -> Iterator[Pattern]:
        """Down the lead wherever a branch agrees, then all that is below; no branch is tried before it is its turn."""
        yield from self._root.ended.values()
        trail = [self._root.following(pattern.lead, 0)]
        while trail:
            node = next(trail[-1], None)
            if node is None:
                trail.pop()
            else:
                yield from node.ended.values()
                trail.append(node.following(pattern.lead, len(trail)))
