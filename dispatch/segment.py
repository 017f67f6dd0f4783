"""One segment of a path pattern: how it is read, and a name that two of them share.

**Form.** A segment without wildcards is a `str`, the name itself. Any other is a `Glob`: its *pieces* are what stands
between the stars, and an *atom* of a piece is one character, given (`str`) or out of a `CharSet`. So `a[0-9]*.py` has
the pieces `a[0-9]` and `.py`; one piece means no star.

**Meeting.** A star takes whatever the other segment needs, which leaves two cases, and nothing to backtrack over:

- *Both have a star.* The text between the first star and the last can be as long as one likes: each segment finds its
  middle pieces there, one after the other, while the stars of the other take them in. Only what is anchored has to
  agree, position by position: the two heads, and the two tails.
- *One has none.* It is a row of slots, one character each. The other's head and tail are anchored, and its middle
  pieces are placed as far left as they fit: a slot is narrowed by one atom at most, so that leaves the most room.

Either way slots come out, each with the characters both allow; any choice spells a text that both match.

**Names.** Not every text is the name of a file: it is not empty, neither `.` nor `..`, and in NFC, which some texts are
not in whatever they are made of (`e`, then a combining accent). When the quick choice spells such a text,
`_search` tries all places and all choices, keeping of a text only what decides how it may go on (`_Tail`). That is
the product of two automata, and rarely entered: a wildcard has to stand beside a combining mark, or a name has to come
down to dots.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import attrs

_WILD = re.compile(r"[*?\[\\]")
_TOKEN = re.compile(
    r"(?P<plain>[^*?\[\\]+) | \\(?P<escaped>.) | (?P<stars>\*+) | (?P<any>\?)"
    r"| \[ (?P<negated>[!^]?+) (?P<members>(?:\\.|[^\]\\])+) \]",
    re.DOTALL | re.VERBOSE,
)
_MEMBER = re.compile(r"(\\.|[^\\]) (?: - (\\.|[^\\]) )?", re.DOTALL | re.VERBOSE)
_EMPTY_CLASS = re.compile(r"\[[!^]?\]")


@attrs.frozen
class CharSet:
    """Characters that a name may hold, as sorted, disjoint, inclusive ranges of code points; `text` as written."""

    ranges: tuple[tuple[int, int], ...]
    text: str = attrs.field(default="", eq=False)

    def __contains__(self, character: str) -> bool:
        point = ord(character)
        return any(low <= point <= high for low, high in self.ranges)

    def characters(self) -> Iterator[str]:
        """Every character, by code point."""
        return (chr(point) for low, high in self.ranges for point in range(low, high + 1))


#: What `?` stands for: any character but NUL, `/`, and the surrogates, which are no characters.
ANY = CharSet(((0x01, 0x2E), (0x30, 0xD7FF), (0xE000, 0x10FFFF)), "?")

Atom: TypeAlias = str | CharSet
Piece: TypeAlias = Sequence[Atom]  # a `str` where all its atoms are given


@attrs.frozen
class Glob:
    """A segment with a wildcard in it. `text` is its normalised form and decides equality."""

    text: str
    pieces: tuple[Piece, ...] = attrs.field(eq=False, repr=False)


Segment: TypeAlias = str | Glob
STAR = Glob("*", ("", ""))


def written(segment: Segment) -> str:
    """The segment as pattern text, which reads as the same segment."""
    return segment.text if isinstance(segment, Glob) else _escaped(segment)


def _escaped(name: str) -> str:
    return _WILD.sub(r"\\\g<0>", name)


# Reading


def read_segment(text: str) -> Segment:
    """The segment that `text`, in NFC and without `/`, stands for. Raises `ValueError` with the problem in words."""
    if not _WILD.search(text):
        return text
    pieces: list[list[Atom]] = [[]]
    shown = ""
    for token in _tokens(text):
        if token is None:
            pieces.append([])
            shown += "*"
        elif isinstance(token, str):
            pieces[-1].extend(token)
            shown += _escaped(token)
        else:
            pieces[-1].append(token)
            shown += token.text
    glob = Glob(shown, tuple(map(_piece, pieces)))
    segment = glob.pieces[0] if len(pieces) == 1 and isinstance(glob.pieces[0], str) else glob
    if segment not in (".", "..") and meet(segment, STAR) is None:
        raise ValueError("no name matches one of its segments")
    return segment


def _piece(atoms: list[Atom]) -> Piece:
    given = [atom for atom in atoms if isinstance(atom, str)]
    return "".join(given) if len(given) == len(atoms) else tuple(atoms)


def _tokens(text: str) -> Iterator[Atom | None]:
    """The atoms of `text` from left to right; a run of stars is one None, plain characters may come several at once."""
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(_unreadable(text, at))
        at = token.end()
        if token["members"] is not None:
            yield _read_class(token[0], bool(token["negated"]), token["members"])
        elif token["any"]:
            yield ANY
        else:
            yield token["plain"] or token["escaped"]  # None for a run of stars


def _unreadable(text: str, at: int) -> str:
    if text[at] == "\\":
        return "the \\ at its end escapes nothing"
    if _EMPTY_CLASS.match(text, at):
        return r"it has an empty class; a ] in a class is written \]"
    return r"it has a class that is not closed in its segment; a [ in a name is written \["


def _read_class(text: str, negated: bool, members: str) -> Atom:
    """What the class `text` stands for: one given character, or a set. Raises `ValueError` if it is empty."""
    ranges = []
    for member in _MEMBER.finditer(members):
        low, high = member[1][-1], (member[2] or member[1])[-1]
        if low > high:
            raise ValueError(f"the range {member[0]!r} runs backwards")
        ranges.append((ord(low), ord(high)))
    allowed = _common(_complement(ranges) if negated else _united(ranges), ANY.ranges)
    if not allowed:
        raise ValueError("it has an empty class: all it allows is excluded")
    if allowed[0][0] == allowed[-1][1]:
        return chr(allowed[0][0])
    return ANY if allowed == ANY.ranges else CharSet(allowed, text)


def _united(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    united: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if united and low <= united[-1][1] + 1:
            united[-1] = (united[-1][0], max(high, united[-1][1]))
        else:
            united.append((low, high))
    return tuple(united)


def _complement(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    united = _united(ranges)
    lows = [0, *(high + 1 for _, high in united)]
    highs = [*(low - 1 for low, _ in united), 0x10FFFF]
    return tuple((low, high) for low, high in zip(lows, highs, strict=True) if low <= high)


def _common(ours: tuple[tuple[int, int], ...], theirs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """What two rows of sorted ranges share; the range that ends first has nothing more to share."""
    common = []
    i = j = 0
    while i < len(ours) and j < len(theirs):
        low, high = max(ours[i][0], theirs[j][0]), min(ours[i][1], theirs[j][1])
        if low <= high:
            common.append((low, high))
        if ours[i][1] < theirs[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


# Meeting


def fits(segment: Segment, name: str) -> bool:
    """Whether a name, in NFC, matches the segment."""
    if isinstance(segment, str):
        return segment == name
    return _place(name, segment.pieces) is not None


@functools.lru_cache(maxsize=1 << 14)
def meet(one: Segment, other: Segment) -> str | None:
    """A name that matches both, or None if there is none."""
    ours, theirs = _pieces(one), _pieces(other)
    row: Piece | None
    if len(ours) > 1 and len(theirs) > 1:
        row, free = _interleave(ours, theirs), STAR.pieces
    else:
        row, free = (ours[0], theirs) if len(ours) == 1 else (theirs[0], ours)
    slots = None if row is None else _place(row, free)
    if row is None or slots is None:
        return None
    name = "".join(slot if isinstance(slot, str) else _example(slot) for slot in slots)
    if name not in ("", ".", "..") and unicodedata.is_normalized("NFC", name):
        return name
    return _search(row, free)


def _pieces(segment: Segment) -> tuple[Piece, ...]:
    return (segment,) if isinstance(segment, str) else segment.pieces


def _interleave(ours: tuple[Piece, ...], theirs: tuple[Piece, ...]) -> list[Atom] | None:
    """Slots for two segments with stars: heads, the middle pieces of both, tails, with a free slot at every star."""
    head, *our_middle, tail = ours
    other_head, *their_middle, other_tail = theirs
    start, end = _overlay(head, other_head), _overlay(tail[::-1], other_tail[::-1])
    if start is None or end is None:
        return None
    free: list[Atom] = [ANY]
    for piece in (*our_middle, *their_middle):
        free += [*piece, ANY]
    return [*start, *free, *reversed(end)]


def _overlay(one: Piece, other: Piece) -> list[Atom] | None:
    """The longer piece with its first slots narrowed to what the shorter allows."""
    shorter, longer = sorted((one, other), key=len)
    narrowed = _narrow(longer, 0, shorter)
    return None if narrowed is None else [*narrowed, *longer[len(shorter) :]]


def _place(slots: Piece, pieces: tuple[Piece, ...]) -> list[Atom] | None:
    """The slots narrowed to what another segment allows, its pieces placed leftmost; None if they don't fit."""
    if len(pieces) == 1:
        return _narrow(slots, 0, pieces[0]) if len(slots) == len(pieces[0]) else None
    head, *middle, tail = pieces
    end = len(slots) - len(tail)
    start, finish = _narrow(slots, 0, head), _narrow(slots, end, tail)
    if len(head) > end or start is None or finish is None:
        return None
    placed = start
    for piece in middle:
        narrowed = None
        for at in range(len(placed), end - len(piece) + 1):
            narrowed = _narrow(slots, at, piece)
            if narrowed is not None:
                placed += [*slots[len(placed) : at], *narrowed]
                break
        if narrowed is None:
            return None
    return [*placed, *slots[len(placed) : end], *finish]


def _narrow(slots: Piece, at: int, piece: Piece) -> list[Atom] | None:
    """The slots from `at` on, narrowed to the atoms of `piece`; None if one has nothing left."""
    if at < 0 or at + len(piece) > len(slots):
        return None
    if isinstance(slots, str) and isinstance(piece, str):
        return list(piece) if slots.startswith(piece, at) else None
    narrowed = []
    for slot, atom in zip(slots[at : at + len(piece)], piece, strict=True):
        both = _both(slot, atom)
        if both is None:
            return None
        narrowed.append(both)
    return narrowed


def _both(one: Atom, other: Atom) -> Atom | None:
    """The characters that two atoms share."""
    if isinstance(one, str):
        return one if one == other or (isinstance(other, CharSet) and one in other) else None
    if isinstance(other, str):
        return other if other in one else None
    if one is ANY or other is ANY:
        return other if one is ANY else one
    common = _common(one.ranges, other.ranges)
    return CharSet(common) if common else None


@functools.lru_cache(maxsize=1 << 10)
def _example(charset: CharSet) -> str:
    """A character of the set, a readable one if it has one."""
    readable = (character for character in "xyabcXABC01_" if character in charset)
    return next(readable, chr(charset.ranges[0][0]))


# Searching


class _Tail(NamedTuple):
    """What decides how a text in NFC may go on.

    `dotted`: it is all dots so far. `starter` is its last character that combines with nothing before it, `mark` the
    combining class of its last character: 0 if that is the starter.
    """

    dotted: bool = True
    starter: str = ""
    mark: int = 0

    def then(self, character: str) -> _Tail | None:
        """The tail after one more character; None if the text would not be in NFC.

        It would not if a mark stood after one of a higher class, or if the character composed with the starter: which
        it can when they are adjacent or nothing between them is of its class or a higher one.
        """
        mark = unicodedata.combining(character)
        if 0 < mark < self.mark:
            return None
        adjoins = self.mark == 0 or self.mark < mark
        if adjoins and not unicodedata.is_normalized("NFC", self.starter + character):
            return None
        return _Tail(self.dotted and character == ".", self.starter if mark else character, mark)


def _search(slots: Piece, pieces: tuple[Piece, ...]) -> str | None:
    """A name, one character for each slot, that the pieces match, found among all there are."""
    atoms = [atom for piece in pieces for atom in (None, *piece)][1:]  # None is a star
    layer = {(0, _Tail()): ""}
    for slot in slots:
        grown: dict[tuple[int, _Tail], str] = {}
        for (at, tail), text in layer.items():
            for stop, atom in _steps(slot, atoms, at):
                for character in _choices(atom):
                    after = tail.then(character)
                    if after is not None:
                        grown.setdefault((stop, after), text + character)
        layer = grown
    names = (text for (at, _), text in layer.items() if atoms[at:] in ([], [None]) and text not in ("", ".", ".."))
    return next(names, None)


def _steps(slot: Atom, atoms: list[Atom | None], at: int) -> Iterator[tuple[int, Atom]]:
    """Where a segment that stands at `at` may stand after one slot, and with which of the slot's characters."""
    if at < len(atoms) and atoms[at] is None:
        yield at, slot
        at += 1  # or the star is over: no two stars are adjacent
    atom = atoms[at] if at < len(atoms) else None
    both = None if atom is None else _both(slot, atom)
    if both is not None:
        yield at + 1, both


@functools.lru_cache(maxsize=1 << 10)
def _choices(atom: Atom) -> tuple[str, ...]:
    """The characters worth trying. An inert one is enough: it may follow anything, and anything may follow it."""
    if isinstance(atom, str):
        return (atom,)
    choices = []
    for character in itertools.chain(filter(atom.__contains__, "0_"), atom.characters()):
        if _is_inert(character):
            return (character,)
        if unicodedata.is_normalized("NFC", character):
            choices.append(character)
    return tuple(choices)


def _is_inert(character: str) -> bool:
    """Whether normalisation leaves it alone whatever its neighbours are. A dot doesn't count: see `_Tail`."""
    takes_marks = unicodedata.decomposition(character)[:1] not in ("", "<")
    marks = unicodedata.combining(character) > 0
    return not (character == "." or takes_marks or marks or character in _composing())


@functools.cache
def _composing() -> frozenset[str]:
    """Every character that canonical composition takes as one of a pair, those that it excludes too."""
    pairs = (unicodedata.decomposition(chr(point)).split() for point in range(0x30000))  # none is defined above
    listed = {chr(int(half, 16)) for pair in pairs if len(pair) == 2 and pair[0][0] != "<" for half in pair}
    # Hangul composes by rule: jamo, and the syllables without a final consonant, of which there is one in 28.
    ruled = map(chr, (*range(0x1100, 0x1200), *range(0xAC00, 0xD7A4, 28)))
    return frozenset(listed.union(ruled))
