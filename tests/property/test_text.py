"""Whatever the text, what is shown of it is one printable line that fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.text import sanitize

ANYTHING = st.text(st.characters(exclude_categories=())) | st.binary()


@given(ANYTHING, st.integers(-2, 40))
def test_printable_and_within_the_limit(text: str | bytes, limit: int) -> None:
    line = sanitize(text, limit)
    assert line.isprintable()
    assert len(line) <= max(0, limit)


@given(ANYTHING, st.integers(0, 40))
def test_doing_it_again_changes_nothing(text: str | bytes, limit: int) -> None:
    line = sanitize(text, limit)
    assert sanitize(line, limit) == line


@given(st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=30))
def test_what_is_fit_to_show_stays(text: str) -> None:
    assert sanitize(text, 30) == text
