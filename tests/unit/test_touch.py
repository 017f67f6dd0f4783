"""Path patterns against tables: what is refused, covered and shared, and what an index finds at what cost."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from dispatch.errors import InvalidSliceError
from dispatch.slice import TouchSet
from dispatch.touch import LENGTH_LIMIT, Pattern, PatternIndex, matches, overlap

E_ACUTE = "\u00e9"  # one code point
E_AND_ACUTE = "e\u0301"  # the same letter in two

REFUSED = [
    ("", "names nothing"),
    (".", "names nothing"),
    ("./", "names nothing"),
    (".//.", "names nothing"),
    (r"\.", "names nothing"),
    ("[.]", "names nothing"),
    ("/", "absolute"),
    ("/src", "absolute"),
    ("//src", "absolute"),
    (r"\/src", "absolute"),
    ("..", "'..'"),
    ("../src", "'..'"),
    ("src/..", "'..'"),
    ("src/../lib", "'..'"),
    ("**/..", "'..'"),
    (r"src/.\./lib", "'..'"),
    ("[.][.]/lib", "'..'"),
    ("[", "not closed"),
    ("src/[a", "not closed"),
    ("[a/b]", "not closed"),
    ("[a\\", "not closed"),
    (r"[a\]", "not closed"),
    (r"[a\/b]", "not closed"),
    ("[]", "empty class"),
    ("[!]", "empty class"),
    ("[^]", "empty class"),
    ("[]a]", "empty class"),
    ("[!]a]", "empty class"),
    ("x/[]/y", "empty class"),
    ("[z-a]", "backwards"),
    ("[az-b]", "backwards"),
    ("[!\x01-\U0010ffff]", "empty"),
    ("[!\x01-.0-\U0010ffff]", "empty"),
    ("[!\x01-\ud7ff\ue000-\U0010ffff]", "empty"),
    ("\\", "escapes nothing"),
    ("src\\", "escapes nothing"),
    ("src/\\\\\\", "escapes nothing"),
    ("a\0b", "NUL"),
    ("a\ud800b", "surrogate"),
    ("e[\u0301]", "no name matches"),
    ("*/x[\u0304]e[\u0301]", "no name matches"),
    ("a" * (LENGTH_LIMIT + 1), "longer than 4096"),
]


@pytest.mark.parametrize(("text", "problem"), REFUSED)
def test_a_pattern_outside_the_grammar_is_refused_with_its_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidSliceError) as refused:
        Pattern.parse(text)
    assert refused.value.field == "paths"
    assert problem in refused.value.problem
    assert repr(text)[:40] in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("given", [None, 7, b"src", ["src"], ("src",)])
def test_what_is_not_a_text_is_refused(given: object) -> None:
    with pytest.raises(InvalidSliceError, match="not a text") as refused:
        Pattern.parse(given)  # type: ignore[arg-type]
    assert repr(given) in str(refused.value)


NORMAL = [
    ("src/a", "src/a"),
    ("./src//a/", "src/a"),
    ("././src/./a/.", "src/a"),
    ("src/", "src"),
    ("...", "..."),
    (".git", ".git"),
    ("..a", "..a"),
    ("a b", "a b"),
    (r"\a\b", "ab"),
    (r"a\/b", "a/b"),
    (r"\[id\]", r"\[id]"),
    ("[[]id]", r"\[id]"),
    (r"a\\b", r"a\\b"),
    (r"a\*b\?", r"a\*b\?"),
    ("a**b", "a*b"),
    ("***", "*"),
    ("a***", "a*"),
    ("**/**/a", "**/a"),
    ("**/./**", "**"),
    ("src/**", "src/**"),
    ("[^a-z]", "[^a-z]"),
    ("[\x01-\U0010ffff]", "?"),
    ("[\x01-mn-\U0010ffff]", "?"),
    ("[a-a]", "a"),
    ("[a]b", "ab"),
    (E_AND_ACUTE, E_ACUTE),
    (f"*{E_AND_ACUTE}", f"*{E_ACUTE}"),
    ("e\\\u0301", E_ACUTE),
    ("[e\\\u0301]", E_ACUTE),
]


@pytest.mark.parametrize(("text", "normal"), NORMAL)
def test_what_says_nothing_is_dropped_and_the_normal_form_reads_as_itself(text: str, normal: str) -> None:
    pattern = Pattern.parse(text)
    assert (pattern.text, str(pattern)) == (normal, normal)
    assert pattern == Pattern.parse(normal)
    assert hash(pattern) == hash(Pattern.parse(normal))


def test_patterns_with_another_normal_form_differ() -> None:
    assert Pattern.parse("src/a") != Pattern.parse("src/A")
    assert Pattern.parse("src/*") != Pattern.parse(r"src/\*")
    assert len({Pattern.parse("src"), Pattern.parse("./src/"), Pattern.parse("src/a")}) == 2


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("src/a.py", True),
        (r"app/\[id\]/page.tsx", True),
        ("app/[[]id]", True),
        ("app/[id]", False),
        ("src/*", False),
        ("src/**", False),
        ("**", False),
        ("a?", False),
    ],
)
def test_literal_says_whether_there_is_a_wildcard(text: str, literal: bool) -> None:
    assert Pattern.parse(text).literal is literal


MATCHING = [
    ("src", "src", True),
    ("src", "src/a/b.py", True),
    ("src", "srcs", False),
    ("src", "lib/src", False),
    ("src/a", "src", False),
    ("src/*", "src", False),
    ("src/*", "src/a", True),
    ("src/*", "src/a/b", True),
    ("src/*.py", "src/a/b.py", False),
    ("src/*.py", "src/.py", True),
    ("src/*.py", "src/x.py/y", True),
    ("src/**", "src", True),
    ("src/**/x.py", "src/x.py", True),
    ("src/**/x.py", "src/a/b/x.py", True),
    ("src/**/x.py", "src/a/b/y.py", False),
    ("src/**/a/*.py", "src/a/b/a/c.py", True),
    ("src/**/a/*.py", "src/a/b/c/c.py", False),
    ("src/**/a/b/**/c", "src/a/a/b/b/c", True),
    ("src/**/a/b/**/c", "src/a/b/b", False),
    ("**", "a", True),
    ("**", "", False),
    ("**", ".", False),
    ("**/x", "x", True),
    ("*", ".git", True),
    ("*", "a/b", True),
    ("*a*b", "ab", True),
    ("*a*b", "ba", False),
    ("a*a", "a", False),
    ("a*bc*c", "abc", False),
    ("a*b*bc", "abc", False),
    ("a*b*bc", "abbc", True),
    ("a?c", "abc", True),
    ("a?c", "ac", False),
    ("a?c", "a/c", False),
    ("[a-c]", "b", True),
    ("[a-c]", "d", False),
    ("[a-c]", "ab", False),
    ("[!a-c]", "d", True),
    ("[!a-c]", "b", False),
    ("[^a-c]", "b", False),
    ("[!a]b", "/b", False),
    ("[.-0]a", "/a", False),
    ("[.-0]a", "0a", True),
    ("[a-]", "-", True),
    ("[-a]", "-", True),
    ("[a-c-e]", "-", True),
    ("[a-c-e]", "d", False),
    ("[a-c-e]", "e", True),
    ("[a-zb-c]", "x", True),
    ("[c-ea-d]", "a", True),
    (r"[a\-c]", "b", False),
    (r"[a\-c]", "-", True),
    (r"[\]a]", "]", True),
    (r"[\a-\c]", "b", True),
    ("[a!]", "!", True),
    ("[!!]", "!", False),
    ("[!!]", "^", True),
    (r"[\!a]", "!", True),
    ("[[]", "[", True),
    ("[a]]", "a]", True),
    ("[[:alpha:]]", ":]", True),
    ("[*?]", "*", True),
    ("[*?]", "a", False),
    (r"\*", "*", True),
    (r"\*", "a", False),
    (r"\\", "\\", True),
    (r"\[id\]/*", "[id]/page.tsx", True),
    ("[id]/*", "[id]/page.tsx", False),
    ("src", "./src//a/", True),
    ("src", "/src", False),
    ("src", "src/../lib", False),
    ("src", "Src", False),
    (E_ACUTE, E_AND_ACUTE, True),
    (f"[{E_ACUTE}]", E_AND_ACUTE, True),
    ("?", E_AND_ACUTE, True),
    ("e*", E_AND_ACUTE, False),
    ("?", "\n", True),
    ("*.py", "a\nb.py", True),
]


@pytest.mark.parametrize(("pattern", "path", "expected"), MATCHING)
def test_what_a_pattern_covers(pattern: str, path: str, expected: bool) -> None:
    assert matches(Pattern.parse(pattern), path) is expected


OVERLAPPING = [
    # Spelled differently, the same; and the folder over a file.
    ("./src/a", "src/a"),
    ("src//a", "src/a"),
    ("src/", "src/a"),
    ("src", "src"),
    ("src", "src/a/b/c.py"),
    ("src/**", "src"),
    ("a/./b", "a//b"),
    (r"s\rc", "src"),
    # A star stays in its segment, and covers what is below it.
    ("src/*", "src/a/b"),
    ("src/*", "src/*/b"),
    ("*", "src/a/b"),
    ("src/*.py", "src/x.py/y"),
    ("src/*.py", "src/a*"),
    ("src/*.py", "src/test_*"),
    ("a*", "*a"),
    ("a*b", "ab"),
    ("*a*a*a*b", "*b*b*b"),
    ("*a*", "*b*"),
    ("a*c", "?b?"),
    ("????", "*abc*"),
    # Two stars are any number of segments.
    ("src/**/x.py", "src/x.py"),
    ("src/**/x.py", "src/a/b/x.py"),
    ("src/**/x.py", "src/a"),
    ("**", "anything"),
    ("**", "**"),
    ("**/a", "**/b"),
    ("**/a/b", "c/**"),
    ("a/**/z", "a/b/c"),
    ("**/schema.sql", "db"),
    ("**/schema.sql", "db/schema.sql"),
    ("a/**/b/**/c", "a/x/b"),
    ("a**b", "axb"),
    # Classes.
    ("[a-m]*", "[m-z]*"),
    ("[!a]", "[!b]"),
    ("[^a]", "b"),
    ("[a-c]x", "?x"),
    ("[ab][cd]", "bc"),
    ("[a-]", "-"),
    (r"[\]]", "]"),
    ("[!a-y]", "[x-z]"),
    # A folder that is really called so has to be escaped.
    (r"app/\[id\]", "app/[[]id]"),
    (r"app/\[id\]/page.tsx", r"app/\[id\]"),
    ("app/[id]", "app/i"),
    # Dots.
    (".*", "*."),
    ("[.a][.]", "*.*"),
    ("??", ".*"),
    ("...", "?.*"),
    (".git/*", "*/HEAD"),
    # Letters with marks.
    (f"caf{E_ACUTE}", f"caf{E_AND_ACUTE}"),
    ("caf?", f"caf{E_AND_ACUTE}"),
    (f"[{E_ACUTE}]", f"*{E_AND_ACUTE}"),
    ("e*", "*\u0301"),
    ("?[\u0301]", "[eq]?"),
    ("[a-c][\u0300-\u0302]", "**"),
    ("\uac00*", "*\u11a8"),
    # Here the first choice for a class spells a text that is not in NFC, and another does not.
    ("e[\u0301\u0305]\u0301", "**"),
    ("[\u00e9\u2603]?", "?\u0323"),
    ("e[\u0305\u2603]?", "??\u0323"),
    ("[\uac00\uac01]?", "?\u11a8"),
    ("[\u1100\u2603]?", "?\u1161"),
]

DISJOINT = [
    ("src", "srcs"),
    ("src/a", "src/b"),
    ("src/a", "Src/a"),
    ("a/b", "b/a"),
    ("src/*", "lib/*"),
    ("src/*/x", "src/y/z"),
    ("src/*.py", "src/*.js"),
    ("src/*.py", "src/a/b.py"),
    ("src/?", "src/ab"),
    ("a*", "b*"),
    ("*a", "*b"),
    ("a*a", "a"),
    ("a*bc*c", "abc"),
    ("a*b", "?bc"),
    ("*ab*", "b?a"),
    ("src/**/x.py", "lib/**/x.py"),
    ("src/**", "**rc2"),
    ("a/b/**", "a/c/**"),
    ("*/b/**", "a/c"),
    ("a**b", "a/b"),
    ("a**b", "a/x/b"),
    ("docs/[a-m]*.md", "docs/[n-z]*.md"),
    ("[a-c]", "d"),
    ("[!a]", "a"),
    ("[a-c]", "[!a-c]"),
    ("[ab]c", "c[ab]"),
    (r"app/\[id\]", "app/[id]"),
    (r"\*", "a"),
    (r"\?x", "ax"),
    ("?", "*."),
    ("[.]?", "[.b]"),
    ("?.", "[.][.]*"),
    ("[.x]", "*.*"),
    (E_ACUTE, "e"),
    (f"caf{E_ACUTE}", "cafe?"),
    ("e?", "?\u0301"),
    ("\uac00?", "?\u11a8"),
    ("\u00e9?", "?\u0323"),
    ("q\u0301?", "??\u0323"),
    ("a\u0327?", "??\u0301"),
    ("e[\u0301\u0305][\u033f-\u0342]", "??[!\u033f\u0342]"),
]


@pytest.mark.parametrize(("one", "other"), OVERLAPPING)
def test_patterns_that_share_a_path_name_one(one: str, other: str) -> None:
    patterns = Pattern.parse(one), Pattern.parse(other)
    for a, b in (patterns, patterns[::-1]):
        witness = overlap(a, b)
        assert witness is not None
        assert matches(a, witness)
        assert matches(b, witness)
        assert unicodedata.is_normalized("NFC", witness)
        assert not {"", ".", ".."} & set(witness.split("/"))
    assert TouchSet((one,)).overlaps(TouchSet(("elsewhere-entirely", other)))


@pytest.mark.parametrize(("one", "other"), DISJOINT)
def test_patterns_that_share_no_path_say_so(one: str, other: str) -> None:
    assert overlap(Pattern.parse(one), Pattern.parse(other)) is None
    assert overlap(Pattern.parse(other), Pattern.parse(one)) is None
    assert not TouchSet((one,)).overlaps(TouchSet((other,)))


@pytest.mark.parametrize(
    ("one", "other", "witness"),
    [
        ("src", "src/a/b.py", "src/a/b.py"),
        ("src/*.py", "src/test_*", "src/test_x.py"),
        ("src/**/x.py", "src", "src/x.py"),
        ("**/a", "**/a", "a"),
        ("**/a/b", "**/b", "a/b"),
        ("**/a", "**/b", "a/b"),
        ("**", "**", "x"),
        ("*", "?", "x"),
        ("[A-C]*", "**", "Ax"),
        ("[!a-z]", "*", "X"),
        (r"\[id\]", r"\[id\]/*", "[id]/x"),
    ],
)
def test_a_witness_is_short_and_readable(one: str, other: str, witness: str) -> None:
    assert overlap(Pattern.parse(one), Pattern.parse(other)) == witness


def lines_of(action: Callable[[], object]) -> int:
    """How many lines of the code under test `action` runs: a cost that no busy machine changes."""
    lines = 0

    def count(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.endswith(("touch.py", "segment.py")):
            return None
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines


PATHOLOGICAL = [
    ("stars against stars", "*a" * 1024 + "b", "*b" * 1024),
    ("stars against a name", "*a" * 1024 + "b", "a" * 2048),
    ("stars against slots", "*a" * 256 + "b", "?" * 512 + "c"),
    ("classes", "[ab]*" * 256 + "c", "[ab]" * 256 + "d"),
    ("segments", "**/a/" * 800 + "b", "a/" * 2000 + "c"),
    ("double stars", "**/*a/" * 500, "**/*b/" * 500),
    ("deep", "a/" * 2047 + "a", "?/" * 2047 + "b"),
    ("a long needle", "*" + "a" * 200 + "b*", "a" * 400),
]


@pytest.mark.parametrize(("one", "other"), [pair[1:] for pair in PATHOLOGICAL], ids=[pair[0] for pair in PATHOLOGICAL])
def test_long_patterns_cost_no_more_than_the_product_of_their_lengths(one: str, other: str) -> None:
    patterns = Pattern.parse(one), Pattern.parse(other)
    lines = lines_of(lambda: overlap(*patterns))
    assert 0 < lines < 10 * len(one) * 10 + len(one) * len(other)


def test_marks_beside_wildcards_are_searched_without_trying_every_combination() -> None:
    marked = Pattern.parse("e[\u0300-\u0305]?" * 20)
    stars = Pattern.parse("*[\u0300-\u0305]" * 18 + "*?")
    lines = lines_of(lambda: overlap(marked, stars))
    assert 10_000 < lines < 1_000_000
    witness = overlap(marked, stars)
    assert witness is not None
    assert matches(marked, witness) and matches(stars, witness)


INDEXED = ["src", "src/a.py", "src/b.py", "src/*/x.py", "src/**/y.py", "lib/a.py", "lib/[ab]/x", "**/z", "docs/*.md"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("src/a.py", ["**/z", "src", "src/**/y.py", "src/*/x.py", "src/a.py"]),
        ("src/a.py/b", ["**/z", "src", "src/**/y.py", "src/a.py"]),
        ("src/q/x.py", ["**/z", "src", "src/**/y.py", "src/*/x.py"]),
        ("src/?.py", ["**/z", "src", "src/**/y.py", "src/*/x.py", "src/a.py", "src/b.py"]),
        ("lib", ["**/z", "lib/[ab]/x", "lib/a.py"]),
        ("lib/c", ["**/z"]),
        ("l*/b", ["**/z", "lib/[ab]/x"]),
        ("**", sorted(INDEXED)),
        ("**/nowhere", sorted(INDEXED)),
        ("elsewhere", ["**/z"]),
    ],
)
def test_an_index_finds_what_overlaps_in_an_order_that_history_does_not_change(query: str, found: list[str]) -> None:
    asked = Pattern.parse(query)
    for texts in (INDEXED, INDEXED[::-1]):
        index = PatternIndex(map(Pattern.parse, texts))
        assert [pattern.text for pattern in index.overlapping(asked)] == found
        first = index.first_overlapping(asked)
        assert first is not None
        assert first.text in found


def test_an_index_is_a_set() -> None:
    index = PatternIndex()
    source, glob = Pattern.parse("src/a"), Pattern.parse("src/*/b")
    assert (len(index), source in index, index.first_overlapping(source)) == (0, False, None)
    index.add(source)
    index.add(Pattern.parse("./src//a/"))
    index.add(glob)
    assert (len(index), source in index, glob in index, Pattern.parse("src") in index) == (2, True, True, False)
    assert Pattern.parse("src/*") not in index
    index.discard(Pattern.parse("src"))
    index.discard(Pattern.parse("src/a/b/c"))
    index.discard(Pattern.parse("src/*/c"))
    assert (len(index), index.overlapping(Pattern.parse("src"))) == (2, [glob, source])
    index.discard(source)
    index.discard(source)
    assert (len(index), source in index, index.overlapping(Pattern.parse("src"))) == (1, False, [glob])
    index.discard(glob)
    assert (len(index), index.first_overlapping(Pattern.parse("**"))) == (0, None)


def test_a_discarded_pattern_leaves_the_folder_above_it_in_place() -> None:
    outer, inner = Pattern.parse("a/*"), Pattern.parse("a/*/c/d")
    index = PatternIndex([outer, inner])
    index.discard(outer)
    assert index.overlapping(Pattern.parse("a/b/c")) == [inner]
    index.add(outer)
    index.discard(inner)
    assert index.overlapping(Pattern.parse("a/b/c")) == [outer]


def index_of(count: int) -> PatternIndex:
    return PatternIndex(Pattern.parse(f"src/package{i % 100}/module{i}.py") for i in range(count))


@pytest.mark.parametrize("query", ["src/package7/module7.py", "src/package7/none.py", "lib/*/x.py", "src/package7/*7"])
def test_an_index_of_ten_thousand_is_asked_about_one_folder_alone(query: str) -> None:
    asked = Pattern.parse(query)
    small, large = index_of(1_000), index_of(10_000)
    costs = [lines_of(lambda index=index: index.first_overlapping(asked)) for index in (small, large)]  # type: ignore[misc]
    assert costs[1] <= max(100, 12 * costs[0])
    if asked.literal:
        assert costs[1] == costs[0] < 60


def test_churn_leaves_nothing_behind_in_an_index() -> None:
    index = PatternIndex([Pattern.parse("keep/me")])
    asked = Pattern.parse("**/x")
    before = lines_of(lambda: index.overlapping(asked))
    for i in range(500):
        index.add(Pattern.parse(f"a{i}/*/b{i}"))
        index.discard(Pattern.parse(f"a{i}/*/b{i}"))
    assert lines_of(lambda: index.overlapping(asked)) == before
