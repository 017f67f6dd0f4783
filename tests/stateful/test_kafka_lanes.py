"""Partitions of Kafka that come and go, and what is fetched, received, acknowledged and given back meanwhile."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from harness.fleet.transport.kafka_lanes import FULL, Lanes, Out, Record, Standing


class LanesMachine(RuleBasedStateMachine):
    """Whatever comes and goes: a partition's records are settled in order, each at most once while it is here."""

    outs: Bundle[Out] = Bundle("outs")
    partitions = st.integers(0, 2)

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes()
        self.now = 0.0
        self.end = dict.fromkeys(range(3), 0)  # the next offset to be fetched, of each partition
        self.committed = dict.fromkeys(range(3), 0)

    @rule(partition=partitions)
    def assigned(self, partition: int) -> None:
        """It begins where it was committed."""
        self.lanes.open([partition])
        self.end[partition] = self.committed[partition]

    @rule(partition=partitions)
    def revoked(self, partition: int) -> None:
        self.lanes.end([partition])

    @rule(partition=partitions, count=st.integers(1, FULL))
    def fetched(self, partition: int, count: int) -> None:
        """Nothing comes of a partition that is paused."""
        for _ in range(count if partition in self.lanes.partitions else 0):
            self.end[partition] += 1
            if self.lanes.take_in(partition, Record(self.end[partition] - 1, b"x", self.now)):
                self.lanes.end([partition])  # a full one would have to be paused: that it says so is enough
                return

    @rule(target=outs, limit=st.integers(0, 3))
    def receive(self, limit: int) -> object:
        self.now += 1.0
        return multiple(*self.lanes.hand_out(limit, self.now))

    @rule(out=consumes(outs))
    def acknowledge(self, out: Out) -> None:
        if self.lanes.find(out.ticket) is not None:
            assert out.record.offset == self.committed[out.partition], "the lowest that is not acknowledged"
            self.lanes.commit(out.partition, out.record.offset + 1)
            self.committed[out.partition] += 1
            assert out.standing is Standing.DONE

    @rule(out=consumes(outs), delay=st.sampled_from([0.0, 2.0]))
    def give_back(self, out: Out, delay: float) -> None:
        if self.lanes.find(out.ticket) is not None:
            self.lanes.give_back(out, self.now + delay)

    @invariant()
    def fits_together(self) -> None:
        self.lanes.check()


TestLanesMachine = LanesMachine.TestCase
