"""What may travel through a queue."""

from __future__ import annotations

import json
import math
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.fleet.envelope import ENVELOPE_LIMIT, AgentTurnEnvelope, decode, digest, encode, opaque
from harness.fleet.errors import InvalidTurnError

PLAIN = AgentTurnEnvelope("job", "session", "agent", "ref", "tenant", 1, 99.5, 2, 12.25)
TEXT = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=40)
ENVELOPES = st.builds(
    AgentTurnEnvelope,
    TEXT, TEXT, TEXT, TEXT | st.just(""), TEXT,
    st.integers(0, 3),
    st.none() | st.floats(0, 1e11),
    st.integers(0, 2**31),
    st.floats(0, 1e11),
)  # fmt: skip


@given(ENVELOPES)
def test_what_is_written_is_read_again(envelope: AgentTurnEnvelope) -> None:
    assert decode(encode(envelope)) == envelope


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job_id", ""), ("job_id", "  "), ("job_id", None), ("job_id", 7), ("job_id", "a\0b"), ("job_id", "a\nb"),
        ("job_id", "\ud800"), ("job_id", "x" * 513), ("session_id", ""), ("session_id", "\x1b[2J"), ("kind", ""),
        ("tenant", ""), ("payload_ref", 3), ("payload_ref", "x" * 513), ("priority", -1), ("priority", 4),
        ("priority", 1.0), ("priority", True), ("priority", "1"), ("deadline", -1.0), ("deadline", math.nan),
        ("deadline", math.inf), ("deadline", "soon"), ("deadline", True), ("attempt", -1), ("attempt", 2**31 + 1),
        ("enqueued_at", None), ("enqueued_at", -0.5), ("enqueued_at", 10**400),
    ],
)  # fmt: skip
def test_a_field_outside_its_grammar_is_refused_by_its_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidTurnError) as refused:
        attrs.evolve(PLAIN, **{field: value})
    assert refused.value.field == field
    fields = attrs.asdict(PLAIN) | {"v": 1, field: value}
    with pytest.raises(InvalidTurnError):
        decode(json.dumps(fields).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (None, "is empty"),
        (b"", "is empty"),
        (b"\xff\xfe", "is not JSON in UTF-8"),
        (b"{", "is not JSON in UTF-8"),
        (b"[" * 15_000, "is not JSON in UTF-8"),
        (b"[1]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b"{}", "is not 1; a newer version wrote it"),
        (b'{"v": 2}', "is not 1; a newer version wrote it"),
        (b'{"v": true}', "is not 1; a newer version wrote it"),
        (b'{"v": 1}', "job_id: is missing"),
        (encode(PLAIN)[:-1] + b',"more":1}', "has a field that is not known here"),
        (b" " * (ENVELOPE_LIMIT + 1), "bytes; 16,384 are the most"),
    ],
)
def test_bytes_that_are_no_envelope_are_refused(raw: bytes | None, problem: str) -> None:
    with pytest.raises(InvalidTurnError, match=problem):
        decode(raw)


@given(st.binary(max_size=200))
def test_no_bytes_bring_another_error(raw: bytes) -> None:
    with pytest.raises(InvalidTurnError):
        decode(raw)


def test_references_say_nothing_and_keep_apart_what_differs() -> None:
    assert PLAIN.group == attrs.evolve(PLAIN, job_id="other", kind="k").group
    assert PLAIN.group != attrs.evolve(PLAIN, tenant="other").group
    assert opaque("a", "bc") != opaque("ab", "c")
    assert len(opaque("x")) == 32
    assert digest(b"x") == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
