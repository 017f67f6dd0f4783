"""Whatever is put, claimed, given back, acknowledged or let go, in whatever order: each database hands out what the
reference sort says, as many at a time as are asked for.

The memory transport claims by the reference; each database plays the same program beside it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.ports import Receipt
from tests.conformance.transport_rig import START, VISIBILITY_S, MemoryRig, PostgresRig, Rig, SqliteRig, names, turn
from tests.effort import examples

DATABASES = {"sqlite": (SqliteRig, 60), "postgres": (PostgresRig, 25)}

moments = st.one_of(st.none(), st.integers(-3, 8).map(lambda s: START + 10.0 * s))


@attrs.frozen
class Put:
    turns: list[AgentTurnEnvelope]


@attrs.frozen
class Receive:
    limit: int


@attrs.frozen
class Settle:
    """Of those that are out, every one whose place is in `places`, modulo their number."""

    how: str
    places: list[int]
    delay_s: float


@attrs.frozen
class Tick:
    seconds: float


@st.composite
def envelopes(draw: st.DrawFn) -> AgentTurnEnvelope:
    job, tenant, session = draw(st.integers(0, 60)), draw(st.integers(0, 3)), draw(st.integers(0, 5))
    return turn(
        f"job {job}", f"session {session}", tenant=f"tenant {tenant}", priority=draw(st.integers(0, 3)),
        deadline=draw(moments), enqueued_at=START + draw(st.integers(-2, 2)),
    )  # fmt: skip


steps = st.one_of(
    st.lists(envelopes(), max_size=12).map(Put),
    st.integers(1, 7).map(Receive),
    st.builds(
        Settle,
        st.sampled_from(["acknowledge", "acknowledge", "give_back", "extend"]),
        st.lists(st.integers(0, 9), max_size=5),
        st.sampled_from([0.0, 5.0, 30.0]),
    ),
    st.sampled_from([1.0, 10.0, 30.0, VISIBILITY_S]).map(Tick),
)


class Play:
    """One program on one queue; what it answers is noted."""

    def __init__(self, rig: Rig) -> None:
        self._rig, self._transport = rig, rig.client()
        self._out: list[tuple[str, Receipt]] = []

    def do(self, step: Put | Receive | Settle | Tick) -> object:
        match step:
            case Put(turns):
                return self._transport.put_many(turns, 40), self._transport.depth()
            case Receive(limit):
                came = self._transport.receive(limit, 0.0)
                self._out += zip(names(came), [one.receipt for one in came], strict=True)
                return names(came), [one.envelope for one in came]
            case Settle():
                return self._settle(step)
            case Tick(seconds):
                self._rig.clock.now += seconds
                return None

    def _settle(self, step: Settle) -> object:
        chosen = sorted({place % len(self._out) for place in step.places}) if self._out else []
        receipts = [self._out[place][1] for place in chosen]
        match step.how:
            case "acknowledge":
                answers = self._transport.acknowledge(receipts)
            case "extend":
                answers = self._transport.extend(receipts)
            case _:
                answers = self._transport.give_back(receipts, step.delay_s)
        return [(self._out[place][0], type(answer)) for place, answer in zip(chosen, answers, strict=True)]

    def drain(self, batch: int) -> Iterator[object]:
        """All that is left, as time goes by."""
        for _ in range(3):
            while answer := self.do(Receive(batch)):
                yield answer
                if not answer[0]:  # type: ignore[index]
                    break
                yield self.do(Settle("acknowledge", list(range(len(self._out))), 0.0))
            self.do(Tick(VISIBILITY_S))


@pytest.mark.parametrize("database", DATABASES)
def test_every_database_claims_as_the_reference_sorts(database: str) -> None:
    kind, usual = DATABASES[database]

    @settings(max_examples=examples(usual))
    @given(st.lists(steps, max_size=25), st.integers(1, 5))
    def play(program: list[Put | Receive | Settle | Tick], batch: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            rigs = MemoryRig(Path(folder)), kind(Path(folder))
            try:
                reference, other = map(Play, rigs)
                for step in program:
                    assert other.do(step) == reference.do(step), step
                assert list(other.drain(batch)) == list(reference.drain(batch))
            finally:
                for rig in rigs:
                    rig.close()

    play()
