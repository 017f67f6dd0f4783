"""The cap follows from processors, quota and foreign load, as recorded trees and a hand-moved clock tell them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from harness.measures import HostMeasures, worker_cap
from harness.procfs import TICKS_PER_S

HARNESS = 10
SESSION = 100
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("cores", "load", "cap"),
    [
        (4.0, 0.0, 4),
        (4.0, 0.5, 3),
        (4.0, 1.0, 3),
        (4.0, 1.01, 2),
        (4.0, 3.5, 1),
        (4.0, 9.0, 1),
        (2.5, 0.0, 2),
        (2.5, 0.5, 2),
        (0.5, 0.0, 1),
        (0.0, 0.0, 1),
        (4.0, -1.0, 4),
        (-4.0, 0.0, 1),
        (NAN, 0.0, 1),
        (4.0, NAN, 1),
        (INF, 0.0, 1),
        (4.0, INF, 1),
        (4.0, -INF, 1),
        (INF, INF, 1),
    ],
)
def test_worker_cap(cores: float, load: float, cap: int) -> None:
    assert worker_cap(cores, load) == cap


@attrs.define
class Host:
    """A recorded host, whose clock and counters are moved by hand."""

    root: Path
    processors: int = 4
    now: float = 1000.0
    busy_s: float = 5000.0
    waited_s: float = 0.0
    load_average: float = 0.0

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def session(self, used_s: float, pid: int = SESSION, started_s: float = 0.0) -> None:
        """A process that leads a session of ours."""
        self.write(f"proc/{pid}/stat", stat_line(pid, HARNESS, used_s, 0.0, started_s))

    def record(self) -> None:
        share = int(self.busy_s * TICKS_PER_S / self.processors)
        lines = [f"cpu{number} {share} 0 0 0 0 0 0 0 0 0\n" for number in range(self.processors)]
        self.write("proc/stat", f"cpu {share * self.processors} 0 0 0 0 0 0 0 0 0\n" + "".join(lines))
        self.write("proc/uptime", f"{self.now:.2f} 1.00\n")
        self.write("proc/loadavg", f"{self.load_average:.2f} 0.10 0.05 3/101 8906\n")
        self.write("proc/self/stat", stat_line(HARNESS, 1, 1.0, self.waited_s, 0.0))

    def measures(self, own_groups: Callable[[], tuple[int, ...]] = tuple) -> HostMeasures:
        self.record()
        return HostMeasures(
            own_groups, root=self.root, clock=lambda: self.now, processors=lambda: range(self.processors)
        )

    def passes(self, seconds: float, busy: float) -> None:
        """Time goes by with so many processors busy."""
        self.now += seconds
        self.busy_s += seconds * busy
        self.record()


def stat_line(pid: int, parent: int, used_s: float, waited_s: float, started_s: float) -> str:
    used, waited, started = (int(value * TICKS_PER_S) for value in (used_s, waited_s, started_s))
    return f"{pid} (x) R {parent} {pid} {pid} 0 -1 0 0 0 0 0 {used} 0 {waited} 0 20 0 1 0 {started} 9 9\n"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_an_idle_host_gives_all_its_processors(host: Host) -> None:
    measures = host.measures()
    host.passes(10, busy=0)
    assert (measures.cores, measures.load) == (4.0, 0.0)
    assert measures.derivation == "4 cores (affinity 4) - load 0.0 not our sessions' = cap 4"


def test_foreign_load_is_taken_off(host: Host) -> None:
    measures = host.measures()
    host.passes(10, busy=1.7)
    assert measures.load == 1.7
    assert measures.derivation == "4 cores (affinity 4) - load 1.7 not our sessions' = cap 2"


def test_a_busy_host_allows_one_and_says_so(host: Host) -> None:
    measures = host.measures()
    host.passes(10, busy=4)
    assert measures.derivation == "4 cores (affinity 4) - load 4.0 not our sessions' = cap 1, the least"


def test_the_load_of_our_own_sessions_is_not(host: Host) -> None:
    host.session(used_s=50)
    measures = host.measures(lambda: (SESSION,))
    host.session(used_s=80)
    host.passes(10, busy=3.5)
    assert measures.load == 0.5


def test_nor_that_of_a_session_that_has_ended(host: Host) -> None:
    host.session(used_s=50)
    measures = host.measures(lambda: (SESSION,))
    host.passes(10, busy=3.0)
    (host.root / f"proc/{SESSION}/stat").unlink()
    host.waited_s += 70
    host.record()
    assert measures.load == 1.0


def test_nor_that_of_one_that_came_and_went_meanwhile(host: Host) -> None:
    measures = host.measures()
    host.waited_s += 20
    host.passes(10, busy=2.0)
    assert measures.load == 0.0


def test_a_group_that_was_excluded_is_ours_until_it_is_gone(host: Host) -> None:
    host.session(used_s=50)
    measures = host.measures()
    measures.exclude(SESSION)
    host.passes(10, busy=0)
    assert measures.load == 0.0
    host.session(used_s=60)
    host.passes(1000, busy=0.01)
    assert measures.load == 0.0

    (host.root / f"proc/{SESSION}/stat").unlink()
    host.passes(1000, busy=0)
    assert measures.load == 0.0
    host.session(used_s=0, started_s=host.now)  # another's, which got that number later
    host.passes(1000, busy=0)
    assert measures.load == 0.0
    host.session(used_s=2000, started_s=host.now - 1000)
    host.passes(1000, busy=2)
    assert measures.load == 2.0


@pytest.mark.parametrize(
    ("load_average", "groups", "load"), [(0.0, (), 0.0), (2.5, (), 2.5), (2.5, (SESSION,), 1.5), (0.5, (SESSION,), 0.0)]
)
def test_the_first_reading_takes_the_load_average_less_our_groups(
    host: Host, load_average: float, groups: tuple[int, ...], load: float
) -> None:
    host.load_average = load_average
    measures = host.measures(lambda: groups)
    assert measures.load == load
    assert "(load average)" in measures.derivation


def test_a_reading_is_used_for_a_second(host: Host) -> None:
    measures = host.measures()
    host.passes(10, busy=0)
    assert measures.load == 0.0
    host.passes(0.99, busy=4)
    assert measures.load == 0.0
    host.passes(0.01, busy=4)
    assert measures.load > 0.0


def test_a_change_of_load_is_told_within_seconds_and_not_at_once(host: Host) -> None:
    measures = host.measures()
    host.passes(10, busy=0)
    assert measures.load == 0.0
    told = []
    for _ in range(10):
        host.passes(1, busy=2)
        told.append(measures.load)
    assert told == sorted(told)
    assert told[0] < 1.0
    assert told[-1] == 2.0


def test_a_long_interval_outweighs_what_was_before(host: Host) -> None:
    measures = host.measures()
    host.passes(10, busy=4)
    assert measures.load == 4.0
    host.passes(60, busy=0.0)
    assert measures.load == 0.0


@pytest.mark.parametrize(
    ("busy", "load"), [(0.04, 0.0), (0.2, 0.0), (0.3, 0.3), (0.97, 1.0), (1.2, 1.0), (1.3, 1.3), (2.24, 2.0)]
)
def test_a_little_more_than_a_whole_number_is_no_load(host: Host, busy: float, load: float) -> None:
    measures = host.measures()
    host.passes(100, busy=busy)
    assert measures.load == load


def quota(host: Host, cores: float) -> None:
    host.write("proc/self/cgroup", "0::/me\n")
    host.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    host.write("sys/fs/cgroup/me/cpu.max", f"{int(cores * 100_000)} 100000\n")


def used_in_group(host: Host, used_s: float) -> None:
    host.write("sys/fs/cgroup/me/cpu.stat", f"usage_usec {int(used_s * 1e6)}\n")


def test_a_quota_bounds_the_cores(host: Host) -> None:
    quota(host, 2.5)
    measures = host.measures()
    host.passes(10, busy=0)
    assert measures.cores == 2.5
    assert measures.derivation == "2.5 cores (affinity 4, cgroup quota 2.5) - load 0.0 not our sessions' = cap 2"


def test_a_quota_above_the_affinity_does_not(host: Host) -> None:
    quota(host, 16)
    assert host.measures().cores == 4.0


def test_a_quota_that_is_changed_is_seen(host: Host) -> None:
    quota(host, 2)
    measures = host.measures()
    quota(host, 1)
    host.passes(10, busy=0)
    assert measures.cores == 1.0


@pytest.mark.parametrize(
    ("busy", "load"), [(1.5, 0.0), (2.0, 0.0), (3.0, 1.0), (4.0, 2.0)], ids=["some", "half", "three", "all"]
)
def test_with_a_quota_others_may_use_the_processors_it_leaves_over(host: Host, busy: float, load: float) -> None:
    quota(host, 2)
    used_in_group(host, 10)
    measures = host.measures()
    host.passes(10, busy=busy)
    assert measures.load == load


def test_what_others_use_of_the_same_quota_is_load_and_our_own_use_of_it_is_not(host: Host) -> None:
    quota(host, 2)
    used_in_group(host, 10)
    host.session(used_s=0)
    measures = host.measures(lambda: (SESSION,))
    host.session(used_s=5)
    used_in_group(host, 10 + 5 + 13)
    host.passes(10, busy=1.8)
    assert measures.load == 1.3


def test_what_can_t_be_measured_leaves_one(host: Host) -> None:
    measures = host.measures()
    host.write("proc/uptime", "")
    host.now += 5
    assert worker_cap(measures.cores, measures.load) == 1
    assert "can't be measured" in measures.derivation
    host.passes(100, busy=0)
    assert measures.load == 0.0


def test_where_there_is_no_proc_psutil_is_asked(tmp_path: Path) -> None:
    now = 0.0
    measures = HostMeasures(root=tmp_path, clock=lambda: now, processors=lambda: {0, 1})
    assert measures.cores == 2.0
    now = 1e9  # so long that all that was ever used is next to nothing
    assert measures.load == 0.0
    assert measures.derivation == "2 cores (affinity 2) - load 0.0 not our sessions' = cap 2"
