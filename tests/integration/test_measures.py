"""This very machine, measured."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from harness.measures import HostMeasures, worker_cap
from harness.processor_time import linux_sample, own_s
from harness.procfs import ProcessTable

BUSY = "import os, time\nwhile time.process_time() < {seconds}: pass\n"


def busy_child(seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", BUSY.format(seconds=seconds)], start_new_session=True)


def test_this_host_has_processors_and_says_how_many() -> None:
    measures = HostMeasures()
    count = len(os.sched_getaffinity(0))
    assert 0 < measures.cores <= count
    assert f"affinity {count}" in measures.derivation
    assert 1 <= worker_cap(measures.cores, measures.load) <= count


def test_a_session_s_processor_time_is_counted_while_it_runs_and_after() -> None:
    table = ProcessTable(trust_s=0.0)
    processors = os.sched_getaffinity(0)
    before = linux_sample(set(), processors, table, time.monotonic())
    with busy_child(0.5) as child:
        child.wait(60)
        after = linux_sample({child.pid}, processors, table, time.monotonic())
    used_s = own_s(before, after)
    assert 0.4 <= used_s < 2.0
    assert after.busy_s - before.busy_s >= used_s - 0.1


def test_a_whole_tree_counts_also_where_it_left_the_group() -> None:
    """The leader's children do the work, in process groups of their own, as a shell with job control has it."""
    script = f"set -m; {sys.executable} -c '{BUSY.format(seconds=0.5)}' & wait; echo done; read line"
    table = ProcessTable(trust_s=0.0)
    pipe = subprocess.PIPE
    with subprocess.Popen(["bash", "-c", script], start_new_session=True, stdin=pipe, stdout=pipe) as child:
        processors = os.sched_getaffinity(0)
        before = linux_sample({child.pid}, processors, table, time.monotonic())
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        after = linux_sample({child.pid}, processors, table, time.monotonic())
        child.communicate(timeout=60)
    assert 0.4 <= own_s(before, after) < 2.0


def test_a_reading_is_cheap() -> None:
    now = 0.0
    measures = HostMeasures(lambda: (os.getpgid(0),), clock=lambda: now)
    costs = []
    for _ in range(30):
        now += 1.5
        began = time.thread_time()
        assert measures.load >= 0.0
        costs.append(time.thread_time() - began)
    assert min(costs) < 0.005  # a millisecond is the aim; the processes of a big machine take longer to list


def test_threads_may_ask_at_once() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.3
        return now

    measures = HostMeasures(clock=clock)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(50):
                assert measures.cores > 0
                assert measures.load >= 0
                assert measures.derivation
                measures.exclude(os.getpgid(0))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
