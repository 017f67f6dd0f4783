"""Slices as text and back: what is put together by hand is the JSON it stands for; other forms of it are read too."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.errors import StoreError
from dispatch.slice import Slice, TouchSet
from dispatch.store import codec
from harness import Recipe
from tests.conformance.store_strategies import GOOD_TEXT, each, edited

TEXTS = st.lists(GOOD_TEXT | st.sampled_from(['"recipe":{', ',"recipe":{}}', "\\", '"']), max_size=3).map(tuple)
RECIPES = edited(st.just(Recipe()), each(TEXTS, "command verify") | each(GOOD_TEXT, "prompt kind"))
SLICES = edited(
    st.builds(Slice, st.just("a"), recipe=RECIPES),
    each(TEXTS.map("".join), "title provenance hold")
    | each(TEXTS, "depends_on required_by contends")
    | {"touch": st.builds(TouchSet, TEXTS, TEXTS)},
)
Form = Callable[[dict[str, object]], str]


@given(SLICES)
def test_a_spec_is_the_json_of_its_fields_and_comes_back(slice_: Slice) -> None:
    text = codec.spec(slice_)
    assert text == codec.dumps(codec.spec_fields(slice_))
    assert codec.declared("a", text) == slice_


def recipe_first(fields: dict[str, Any]) -> str:
    return codec.dumps({"recipe": fields.pop("recipe"), **fields})


@pytest.mark.parametrize("form", [json.dumps, lambda fields: json.dumps(fields, indent=1), recipe_first])
@given(slice_=SLICES)
def test_a_spec_may_be_written_otherwise(form: Form, slice_: Slice) -> None:
    assert codec.declared("a", form(codec.spec_fields(slice_))) == slice_


def test_slices_that_share_a_recipe_share_the_object() -> None:
    one, other = (codec.declared(name, codec.spec(Slice(name, recipe=Recipe(prompt="p")))) for name in "ab")
    assert one.recipe is other.recipe


@pytest.mark.parametrize(
    "spec",
    [
        *("", "null", "[]", "{}", "{", "nonsense", '{"recipe":', '{"recipe":{}', '{"recipe":{}}}', '{"recipe":{}} '),
        *('{"title":"t"}', '{"title":,"recipe":{}}', '{"recipe":{"no":1}}', '{"no":1,"recipe":{}}', '{"recipe":7}'),
        *('{"title":"t""recipe":{}}', '{"title":"t","recipe":{},}', '{"touch":{"recipe":{}}}'),
    ],
)
def test_what_is_no_spec_is_refused_by_name(spec: str) -> None:
    with pytest.raises(StoreError, match=r"the row of 'a' can't be read"):
        codec.decoded(lambda row: codec.declared(*row), [("a", spec)])
