"""The grammar of slices and recipes; touch-sets; the sets of states."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from dispatch.errors import InvalidSliceError
from dispatch.slice import EXCLUDING, FINISHED, OCCUPYING, Slice, SliceState, TouchSet, canonical, check_slice
from dispatch.store import Changes, SliceRow
from dispatch.store.codec import check as check_storable
from dispatch.views import SliceView
from harness import Recipe
from tests.effort import examples
from tests.unit.machine_rig import Rig

GOOD_IDS = ["a", "A", "7", "a-b", "a_b", "a.b", "a.b.c", "0" * 80, "x-", "x_", "a.lockx", "lock", "CON", "HEAD"]
BAD_IDS: list[Any] = [
    *("", "a" * 81, "-a", "_a", ".a", "a/b", "a..b", "a.", "a.lock", "a b", " a", "a\n", "a\nb", "a\0"),
    *("é", "ａ", "a@1", "a~1", "@{u}", "a:b", "a*", "../etc", "a\\b", "\ud800", None, 7, b"a", ("a",)),
]
FINE: list[dict[str, Any]] = [
    {},
    {"title": "x" * 256},
    {"title": "Vorderseite – 前端 😀"},
    {"provenance": "a plan", "hold": "because"},
    {"depends_on": ["a"], "required_by": ("b",), "contends": ["c", "c"]},
    {"touch": TouchSet(("src/**/*.py", "docs/[!a-z]?"), ("schema", "two words"))},
    {"touch": TouchSet(["src"], ["schema"])},  # type: ignore[arg-type]
    {"recipe": Recipe(("agent", ""), "Build.\n\tThen \x1b[0m", "feature", ["make"])},  # type: ignore[arg-type]
    {"recipe": Recipe(max_attempts=1, grace_s=0, quiet_limit_s=0)},
    {"recipe": Recipe(max_attempts=2**31, grace_s=1e8, env=(("A", ""), ("A", "2")))},
]
FLAWS: list[tuple[str, dict[str, Any]]] = [
    *(("id", {"id": junk}) for junk in BAD_IDS),
    *(("title", {"title": junk}) for junk in ("x" * 257, "two\nlines", "bell\a", "a\0", "\ud800", None, 7)),
    *((field, {field: junk}) for field in ("provenance", "hold") for junk in ("a\nb", "a\0", "\udfff", None, 7)),
    *((field, {field: (junk,)}) for field in ("depends_on", "required_by", "contends") for junk in BAD_IDS),
    *((field, {field: junk}) for field in ("depends_on", "required_by", "contends") for junk in ("a", None, {"a"}, 7)),
    *(("touch", {"touch": junk}) for junk in (None, "src", ("src",), {"paths": ()})),
    *(("paths", {"touch": TouchSet(junk)}) for junk in ("src", None, {"a"}, ("",), ("/a",), ("a\0",), (7,), (None,))),
    *(("hotspots", {"touch": TouchSet((), junk)}) for junk in ("h", None, ("",), (" ",), ("a\nb",), ("\ud800",), (7,))),
    *(("recipe", {"recipe": junk}) for junk in (None, {"command": ()}, "make")),
    *(("command", {"recipe": Recipe(junk)}) for junk in ("make", None, (7,), ("a\0",), (None,), ("\ud800",))),
    *(("verify", {"recipe": Recipe(verify=junk)}) for junk in ("make", None, ("a\0",))),
    *(("prompt", {"recipe": Recipe(prompt=junk)}) for junk in ("a\0", None, 7)),
    *(("kind", {"recipe": Recipe(kind=junk)}) for junk in ("a\0", "a\nb", None, 7)),
    *(("max_attempts", {"recipe": Recipe(max_attempts=junk)}) for junk in (0, -1, 1.0, True, None, 2**31 + 1, 2**70)),
    *(("grace_s", {"recipe": Recipe(grace_s=junk)}) for junk in (-1, math.nan, math.inf, 1e9, True, None, "3")),
    *(("quiet_limit_s", {"recipe": Recipe(quiet_limit_s=junk)}) for junk in (-1, math.nan, math.inf, True, None)),
    *(("env", {"recipe": Recipe(env=junk)}) for junk in (None, {"A": "1"}, "A=1", (("A",),), (("A", 7),))),
    *(("env", {"recipe": Recipe(env=((name, "1"),))}) for name in ("", "A=B", "a\nb", "a\0", None, 7)),
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD_IDS)
def test_ids_in_the_grammar_are_taken(name: str) -> None:
    check_slice(Slice(name))


@pytest.mark.parametrize("fields", FINE)
def test_what_is_in_the_grammar_is_taken(fields: dict[str, Any]) -> None:
    check_slice(Slice(**{"id": "x", **fields}))


@pytest.mark.parametrize(("field", "fields"), FLAWS)
def test_what_is_outside_is_refused_by_its_field(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidSliceError) as refused:
        check_slice(Slice(**{"id": "x", **fields}))
    assert refused.value.field == field
    assert str(refused.value) == f"{field}: {refused.value.problem}"
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("junk", [None, "x", {"id": "x"}, Recipe()])
def test_what_is_no_slice_is_refused(junk: Any) -> None:
    with pytest.raises(InvalidSliceError, match="must be a Slice"):
        check_slice(junk)


def test_a_slice_as_kept_has_a_title_and_can_be_changed_by_nobody() -> None:
    names, paths, env = ["a"], ["src"], [("A", "1")]
    recipe = Recipe(command=["agent"], verify=["make"], env=env)  # type: ignore[arg-type]
    given_ = Slice("x", "", recipe, names, names, names, TouchSet(paths, paths))  # type: ignore[arg-type]
    kept = canonical(given_)
    assert kept == Slice(
        "x",
        "x",
        Recipe(("agent",), verify=("make",), env=(("A", "1"),)),
        ("a",),
        ("a",),
        ("a",),
        TouchSet(("src",), ("src",)),
    )
    hash(kept)
    assert canonical(kept) is kept


# --- touch-sets ---------------------------------------------------------------------------------------------------

OVERLAPS: list[tuple[TouchSet, TouchSet, bool]] = [
    (TouchSet(), TouchSet(), False),
    (TouchSet(("src",)), TouchSet(), False),
    (TouchSet(("src",)), TouchSet(("src/a.py",)), True),
    (TouchSet(("src/*.py",)), TouchSet(("src/*.pyi", "docs")), False),
    (TouchSet((), ("schema",)), TouchSet(("schema",)), False),
    (TouchSet((), ("schema",)), TouchSet((), ("router", "schema")), True),
    (TouchSet((), ("schema",)), TouchSet((), ("Schema",)), False),
]


@pytest.mark.parametrize(("one", "other", "overlap"), OVERLAPS)
def test_touch_sets_overlap_either_way(one: TouchSet, other: TouchSet, overlap: bool) -> None:
    assert one.overlaps(other) == other.overlaps(one) == overlap


def test_touch_sets_outside_the_grammar_are_refused() -> None:
    with pytest.raises(InvalidSliceError):
        TouchSet(("src",)).overlaps(TouchSet(("/etc",)))


# --- states -------------------------------------------------------------------------------------------------------


def test_the_sets_of_states() -> None:
    assert {state.value for state in OCCUPYING} == {"running", "preempted"}
    assert {state.value for state in EXCLUDING} == {"running", "preempted", "in_review"}
    assert {state.value for state in FINISHED} == {"merged", "canceled"}
    assert len(SliceState) == 7


def test_values_are_frozen_and_slotted() -> None:
    for kind in (Slice, TouchSet, SliceView):
        assert not hasattr(kind, "__dict__") or "__slots__" in vars(kind)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Slice("x").id = "y"  # type: ignore[misc]


# --- what is taken can be stored ----------------------------------------------------------------------------------

any_text = st.text(st.characters(), max_size=3) | st.sampled_from(["", "src", "two words", "\0", "\ud800", "a\nb"])
texts = st.lists(any_text, max_size=2)
numbers = st.integers(1, 5) | st.integers() | st.floats() | st.booleans()
ANY: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("title", "provenance", "hold"), any_text),
    "id": any_text,
    "touch": st.builds(TouchSet, texts.map(tuple), texts),
}
ANY_OF_RECIPE: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("prompt", "kind"), any_text),
    **dict.fromkeys(("command", "verify"), texts),
    **dict.fromkeys(("max_attempts", "grace_s", "quiet_limit_s"), numbers),
    "env": st.lists(st.tuples(any_text, any_text), max_size=1),
}


@st.composite
def some_slices(draw: st.DrawFn) -> Slice:
    """With a few fields that may hold anything of their type."""
    odd = draw(st.sets(st.sampled_from([*ANY, *ANY_OF_RECIPE]), max_size=3))
    recipe = Recipe(**{name: draw(ANY_OF_RECIPE[name]) for name in sorted(odd & ANY_OF_RECIPE.keys())})
    fields = {name: draw(ANY[name]) for name in sorted(odd & ANY.keys())}
    return Slice(**{"id": "x", "recipe": recipe, **fields})


@given(some_slices())
@settings(max_examples=examples(300), deadline=None)
def test_what_is_taken_can_be_stored(slice_: Slice) -> None:
    """A store that refuses a batch for one value would refuse it for ever."""
    try:
        check_slice(slice_)
    except InvalidSliceError as refused:
        event(refused.field)
        return
    event("taken")
    check_storable(Changes(slices=(SliceRow(canonical(slice_), 1, SliceState.QUEUED),)))
    rig = Rig()
    rig.enqueue(slice_)
    check_storable(rig.machine.changes())
