"""Overlap against brute force: every path up to a size, and a matcher of another make.

`python tests/property/test_touch.py --patterns 2000 --seed 7` runs a larger campaign than the suite does.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import re
import unicodedata
from collections.abc import Callable, Iterator

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch.errors import InvalidSliceError
from dispatch.touch import Pattern, PatternIndex, matches, overlap
from tests.effort import examples

# A matcher of another make: Python's regular expressions for a name, plain search over the places of `**`.


def expression(segment: str) -> str:
    """The regular expression of a segment, which is inside the grammar."""
    made, at = "", 0
    while at < len(segment):
        wild = segment[at]
        if wild == "[":
            end = next(i for i in range(at + 2, len(segment)) if segment[i] == "]" and segment[i - 1] != "\\")
            body = segment[at + 1 : end]
            made += "(?!/)[" + ("^" + body[1:] if body[0] in "!^" else body) + "]"
            at = end
        elif wild == "\\":
            at += 1
            made += re.escape(segment[at])
        else:
            made += {"*": "[^/]*", "?": "[^/]"}.get(wild) or re.escape(wild)
        at += 1
    return made


@functools.cache
def compiled(segment: str) -> re.Pattern[str]:
    return re.compile(expression(segment), re.DOTALL)


def covered(pattern: str, path: str) -> bool:
    """Whether `path`, whose names are real ones, is covered by `pattern`."""
    segments, names = unicodedata.normalize("NFC", pattern).split("/"), path.split("/")
    open_ = [(0, 0)]
    while open_:
        i, j = open_.pop()
        if i == len(segments):
            return True
        if segments[i] == "**":
            open_.append((i + 1, j))
        if j < len(names) and (segments[i] == "**" or compiled(segments[i]).fullmatch(names[j])):
            open_.append((i if segments[i] == "**" else i + 1, j + 1))
    return False


def real(name: str) -> bool:
    return name not in ("", ".", "..") and unicodedata.is_normalized("NFC", name)


def joined(parts: str | list[str], longest: int, separator: str) -> Iterator[str]:
    return map(separator.join, itertools.chain(*(itertools.product(parts, repeat=n) for n in range(1, longest + 1))))


@attrs.frozen
class World:
    """Patterns put together from `tokens`, and every path of a size that is enough to tell them apart.

    It is enough because the shortest path that two patterns share has no more parts than the two have tokens that
    stand for one, and the tokens are such that one of the parts at hand fits wherever any does.
    """

    tokens: tuple[str, ...]
    most: int
    separator: str
    paths: tuple[str, ...]

    def pattern(self, chance: random.Random) -> str:
        return self.separator.join(chance.choices(self.tokens, k=chance.randint(1, self.most)))


MARKED = "eq\u00e9\u1eb9\u0301\u0323"
WORLDS = {
    "names": World(
        tokens=("a", "b", ".", "*", "*", "?", "[ab]", "[!a]", "[^.]", "[.-b]", r"\b", "[b.]"),
        most=4,
        separator="",
        paths=tuple(filter(real, joined("ab.", 6, ""))),
    ),
    "paths": World(
        tokens=("a", "b", "ab", "*", "?", "a*", "*b", "[!a]", "**", "**", ".a"),
        most=4,
        separator="/",
        paths=tuple(joined(["a", "b", "ab", "ba", ".a", "c"], 4, "/")),
    ),
    "marks": World(
        tokens=("e", "q", "\u00e9", "\u0301", "\u0323", "?", "*", "[\u0301e]", "[\u0301\u0323]", "[!e]", "[eq]"),
        most=3,
        separator="",
        paths=tuple(filter(real, joined(MARKED, 5, ""))),
    ),
}


@attrs.frozen
class Readable:
    """A pattern with the paths of its world that it covers, as a bit set."""

    text: str
    pattern: Pattern
    covers: int


def readable(world: World, count: int, chance: random.Random) -> list[Readable]:
    """`count` different patterns; what is refused has to cover nothing."""
    found: dict[str, Readable] = {}
    while len(found) < count:
        text = world.pattern(chance)
        if text in found:
            continue
        covers = sum(1 << i for i, path in enumerate(world.paths) if covered(text, path))
        try:
            found[text] = Readable(text, Pattern.parse(text), covers)
        except InvalidSliceError:
            assert not covers, text
    return list(found.values())


def campaign(world: World, count: int, seed: int) -> tuple[int, int]:
    """Check every pair of `count` patterns; returns how many pairs there were, and how many of them overlap."""
    patterns = readable(world, count, random.Random(seed))
    overlapping = 0
    for one, other in itertools.combinations_with_replacement(patterns, 2):
        witness = overlap(one.pattern, other.pattern)
        if witness is None:
            assert not one.covers & other.covers, f"{one.text!r} and {other.text!r} share a path"
            continue
        overlapping += 1
        assert all(map(real, witness.split("/"))), f"{witness!r} for {one.text!r} and {other.text!r} is no path"
        for side in (one, other):
            assert covered(side.text, witness), f"{side.text!r} does not cover {witness!r}"
            assert matches(side.pattern, witness)
    return count * (count + 1) // 2, overlapping


@pytest.mark.parametrize(("world", "count"), [("names", 300), ("paths", 300), ("marks", 200)])
def test_overlap_agrees_with_brute_force_for_every_pair(world: str, count: int) -> None:
    pairs, overlapping = campaign(WORLDS[world], count, seed=1)
    assert pairs > count * count // 2
    assert 0.05 < overlapping / pairs < 0.95, "the pairs should be of both kinds"


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_matching_agrees_with_the_other_matcher(world: str) -> None:
    chance = random.Random(2)
    paths = chance.sample(WORLDS[world].paths, 400)
    for side in readable(WORLDS[world], 60, chance):
        assert [path for path in paths if matches(side.pattern, path)] == [
            path for path in paths if covered(side.text, path)
        ], side.text


@pytest.mark.parametrize("world", ["names", "paths"])
def test_an_index_agrees_with_asking_everyone(world: str) -> None:
    chance = random.Random(3)
    patterns = [side.pattern for side in readable(WORLDS[world], 150, chance)]
    index = PatternIndex()
    present: set[Pattern] = set()
    for _ in range(600):
        pattern = chance.choice(patterns)
        change: Callable[[Pattern], None] = chance.choice((index.add, index.add, index.discard))
        change(pattern)
        (present.discard if change == index.discard else present.add)(pattern)
        asked = chance.choice(patterns)
        expected = sorted((p for p in present if overlap(p, asked) is not None), key=lambda p: p.text)
        first = index.first_overlapping(asked)
        assert index.overlapping(asked) == expected
        assert first in expected if expected else first is None
        assert (len(index), asked in index) == (len(present), asked in present)


# Anything a person may type


TYPED = st.text(alphabet="aab/**?[]!^-\\.e\u0301\u00e9\u0323\uac00\u11a8\u212b\n", max_size=24)
STEADY = settings(deadline=None)
ANY_TEXT = st.one_of(TYPED, st.text(max_size=12))


def parsed(text: str) -> Pattern | None:
    try:
        return Pattern.parse(text)
    except InvalidSliceError:
        return None


@settings(STEADY)
@given(ANY_TEXT)
def test_any_text_is_refused_or_reads_as_its_own_normal_form(text: str) -> None:
    pattern = parsed(text)
    if pattern is not None:
        assert Pattern.parse(pattern.text).text == pattern.text
        for form in ("NFC", "NFD"):
            assert parsed(unicodedata.normalize(form, text)) == pattern
        assert parsed(f"./{text}/") == pattern
        assert parsed(f".//{text}") == pattern


@settings(STEADY, max_examples=examples(400))
@given(ANY_TEXT, ANY_TEXT)
def test_overlap_is_symmetric_and_proves_itself(one: str, other: str) -> None:
    patterns = parsed(one), parsed(other)
    if patterns[0] is None or patterns[1] is None:
        return
    a, b = patterns[0], patterns[1]
    witness = overlap(a, b)
    assert (witness is None) == (overlap(b, a) is None)
    for side in (a, b):
        assert overlap(side, side) is not None
        assert overlap(side, Pattern.parse("**")) is not None
        assert witness is None or matches(side, witness)
    assert witness is None or all(map(real, witness.split("/")))
    assert PatternIndex([b]).first_overlapping(a) == (None if witness is None else b)


@settings(STEADY)
@given(ANY_TEXT.filter(lambda text: all(map(real, text.split("/")))))
def test_a_path_escaped_is_a_pattern_for_that_path(path: str) -> None:
    if "\0" in path or re.search("[\ud800-\udfff]", path):
        return
    pattern = Pattern.parse(re.sub(r"([*?\[\\])", r"\\\1", path))
    assert pattern.literal
    assert matches(pattern, path)
    assert overlap(pattern, Pattern.parse("**")) == path


def main() -> None:
    options = argparse.ArgumentParser(description=campaign.__doc__)
    options.add_argument("--patterns", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    for name, world in WORLDS.items():
        pairs, overlapping = campaign(world, chosen.patterns, chosen.seed)
        print(f"{name}: {pairs} pairs, {overlapping} of them overlap, all as brute force says")


if __name__ == "__main__":
    main()
