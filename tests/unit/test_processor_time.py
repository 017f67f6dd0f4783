"""What our own sessions used is told from what others used, whoever ended, waited or was orphaned in between."""

from __future__ import annotations

import os
from collections.abc import Iterable

import attrs
import pytest

from harness.processor_time import Sample, busy_s, own_s, psutil_sample
from harness.procfs import TICKS_PER_S, ProcessStat

HARNESS = 10  # our pid
LEADER, CHILD, ORPHAN = 100, 101, 102


def process(pid: int, parent: int, used_s: float, started_s: float = 50.0) -> ProcessStat:
    return ProcessStat(
        pid=pid,
        state="R",
        parent=parent,
        group=LEADER,
        session=LEADER,
        threads=1,
        start_ticks=int(started_s * TICKS_PER_S),
        cpu_ticks=int(used_s * TICKS_PER_S),
        waited_ticks=0,
    )


def sample(members: Iterable[ProcessStat] = (), waited_s: float = 0.0, since_boot_s: float = 100.0) -> Sample:
    return Sample(
        at=since_boot_s,
        since_boot_s=since_boot_s,
        busy_s=0.0,
        members={(stat.pid, stat.start_ticks): stat for stat in members},
        waited_s=waited_s,
        pid=HARNESS,
    )


@attrs.frozen
class Case:
    name: str
    before: Sample
    after: Sample
    used_s: float


CASES = [
    Case("nothing runs", sample(), sample(), 0.0),
    Case(
        "they go on",
        sample([process(LEADER, HARNESS, 1.0), process(CHILD, LEADER, 2.0)]),
        sample([process(LEADER, HARNESS, 1.5), process(CHILD, LEADER, 4.0)]),
        2.5,
    ),
    Case("one was started meanwhile", sample(), sample([process(LEADER, HARNESS, 0.7, started_s=100.5)]), 0.7),
    Case("one came and went between the two", sample(waited_s=3.0), sample(waited_s=3.8), 0.8),
    Case(
        "one ended and was waited for by us",
        sample([process(LEADER, HARNESS, 40.0)], waited_s=5.0),
        sample(waited_s=45.3),
        0.3,
    ),
    Case(
        "one ended and was waited for by its parent",
        sample([process(LEADER, HARNESS, 1.0), process(CHILD, LEADER, 30.0)]),
        sample([process(LEADER, HARNESS, 31.2)]),
        0.2,
    ),
    Case(
        "child and parent ended, one waiting for the other",
        sample([process(LEADER, HARNESS, 1.0), process(CHILD, LEADER, 30.0)], waited_s=2.0),
        sample(waited_s=33.5),
        0.5,
    ),
    Case(
        "an orphan ended: its total is lost, and takes nothing from the others'",
        sample([process(LEADER, HARNESS, 1.0), process(ORPHAN, 1, 90.0)]),
        sample([process(LEADER, HARNESS, 1.4)]),
        0.4,
    ),
    Case(
        "one was registered that had run for long",
        sample(),
        sample([process(LEADER, HARNESS, 500.0, started_s=20.0)]),
        0.0,
    ),
    Case(
        "its pid was used again",
        sample([process(CHILD, 1, 9.0)]),
        sample([process(CHILD, 1, 0.5, started_s=100.2)]),
        0.5,
    ),
    Case("never negative", sample([process(LEADER, HARNESS, 9.0)], waited_s=1.0), sample(waited_s=1.0), 0.0),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_our_sessions_used(case: Case) -> None:
    assert own_s(case.before, case.after) == pytest.approx(case.used_s)


STAT = b"""cpu  1000 100 200 9000 50 10 20 30 400 0
cpu0 600 50 100 4000 25 5 10 15 200 0
cpu1 400 50 100 5000 25 5 10 15 200 0
intr 1 2 3
ctxt 55
"""


@pytest.mark.parametrize(
    ("processors", "ticks"),
    [({0}, 780), ({1}, 580), ({0, 1}, 1360), ({0, 7}, 1360), (set(), 1360)],
    ids=["the first", "the second", "both", "one that isn't listed", "none"],
)
def test_busy_time_is_that_of_the_processors_we_may_use(processors: set[int], ticks: int) -> None:
    assert busy_s(STAT, processors) == pytest.approx(ticks / TICKS_PER_S)


def test_without_proc_the_same_is_told_by_psutil() -> None:
    group = os.getpgid(0)
    told = psutil_sample({group}, at=7.0)
    assert told.at == 7.0
    assert told.busy_s > 0
    assert os.getpid() in {pid for pid, _ in told.members}
    assert told.numbers() == {group}
    assert psutil_sample(set(), at=7.0).members == {}
