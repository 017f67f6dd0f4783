"""The grammar of intents, and the order of urgencies."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.errors import InvalidIntentError
from dispatch.intent import Intent, Urgency, canonical, check_intent
from dispatch.store import Changes, IntentRow
from dispatch.store.codec import check as check_storable

SOON = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
EAST, WEST = (dt.timezone(dt.timedelta(hours=hours)) for hours in (12, -12))
FINE: list[dict[str, Any]] = [
    {},
    {"id": "a" * 256},
    {"id": "ship it / now – größer 😀"},
    {"statement": "two\nlines\tand \x1b[0m"},
    {"statement": ""},
    {"scope": "anything at all"},
    {"urgency": Urgency.URGENT},
    {"deadline": SOON},
    {"deadline": dt.datetime.max.replace(tzinfo=EAST)},
    {"supersedes": "i"},
    {"terms": ("", " ", "src\n")},
    {"terms": ["src"]},
]
FLAWS: list[tuple[str, Any]] = [
    *(("id", junk) for junk in ("", "a" * 257, "a\nb", "a\0", "\ud800", None, 7, b"i")),
    *(("statement", junk) for junk in ("a\0b", "\udfff", None, 7)),
    *(("scope", junk) for junk in ("a\0", "a\n", None)),
    *(("urgency", junk) for junk in (4, "URGENT", None)),
    *(("deadline", junk) for junk in (SOON.replace(tzinfo=None), SOON.date(), "2030-01-01T00:00:00Z", 7)),
    ("deadline", dt.datetime.max.replace(tzinfo=WEST)),
    ("deadline", dt.datetime.min.replace(tzinfo=EAST)),
    *(("supersedes", junk) for junk in ("a\0", None, 7)),
    *(("terms", junk) for junk in ("src", {"src"}, None, ("src", 7), ("a\0",), ["\ud800"])),
]


@pytest.mark.parametrize("fields", FINE)
def test_what_is_in_the_grammar_is_taken(fields: dict[str, Any]) -> None:
    check_intent(Intent(**{"id": "i", "statement": "s", **fields}))


@pytest.mark.parametrize(("field", "junk"), FLAWS)
def test_what_is_outside_is_refused_by_its_field(field: str, junk: Any) -> None:
    with pytest.raises(InvalidIntentError) as refused:
        check_intent(Intent(**{"id": "i", "statement": "s", field: junk}))
    assert refused.value.field == field
    assert str(refused.value) == f"{field}: {refused.value.problem}"
    assert "\n" not in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("junk", [None, "i", {"id": "i"}])
def test_what_is_no_intent_is_refused(junk: Any) -> None:
    with pytest.raises(InvalidIntentError, match="must be an Intent"):
        check_intent(junk)


def test_urgencies_are_in_order() -> None:
    order = [Urgency.LOW, Urgency.NORMAL, Urgency.HIGH, Urgency.URGENT]
    assert sorted(Urgency, reverse=True) == order[::-1]
    for one, other in itertools.combinations(order, 2):
        assert one < other
        assert other >= one
        assert not one > other
    with pytest.raises(TypeError):
        assert Urgency.LOW < 2  # type: ignore[operator]


def test_an_intent_as_kept_can_be_changed_by_nobody() -> None:
    terms = ["src"]
    kept = canonical(Intent("i", "s", terms=terms))  # type: ignore[arg-type]
    assert kept == Intent("i", "s", terms=("src",))
    assert canonical(kept) is kept


zones = st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
any_text = st.text(st.characters(), max_size=3) | st.sampled_from(["i", "src", "\0", "\ud800", "a\nb"])


@given(
    st.fixed_dictionaries(
        {"id": any_text, "statement": any_text},
        optional={
            "scope": any_text,
            "deadline": st.datetimes() | st.datetimes(timezones=zones) | st.none(),
            "supersedes": any_text,
            "terms": st.lists(any_text, max_size=2) | st.tuples(any_text),
        },
    )
)
def test_what_is_taken_can_be_stored(fields: dict[str, Any]) -> None:
    """A store that refuses a batch for one value would refuse it for ever."""
    intent = Intent(**fields)
    try:
        check_intent(intent)
    except InvalidIntentError:
        return
    check_storable(Changes(intents=(IntentRow(canonical(intent), 1),)))
