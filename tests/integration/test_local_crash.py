"""A scheduler is killed while its agents run: what it left is ended, saved and gone on with; nothing happens twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import attrs
import pytest

from harness.local.lock import FileLock
from harness.local.orphans import ProcessMark, mark_of
from harness.local.record import Record, Records
from harness.session import SessionPhase
from tests.integration.killable import ROOT, Scheduler, reports, scheduler
from tests.integration.workshop import Repo, alive, assignment, in_environment, make_repo, until, workshop

__all__ = ["scheduler"]  # the fixture
MERGED = SessionPhase.MERGED
EVERY = os.environ.get("EVERY_FAULT") == "1"  # the long form


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo")


def kill(pid: int, scheduler: Scheduler) -> None:
    os.kill(pid, signal.SIGKILL)
    assert scheduler.end() == -9


def test_the_agents_of_a_killed_scheduler_are_gone_before_their_slice_begins_again(
    repo: Repo, tmp_path: Path, scheduler: Scheduler
) -> None:
    """With a child of its own that left the process group, and that is deaf to SIGTERM."""
    trace = tmp_path / "trace"
    child = f"setsid sh -c 'trap \"\" TERM; echo $$ >> {trace}; while :; do sleep 0.05; done' & "
    script = f"{child} echo part > part.txt; echo $$ >> {trace}; while :; do sleep 0.05; done"
    pid = scheduler.start(repo, tmp_path / "out", ("s1", 1, script, ()))
    until(lambda: trace.exists() and len(trace.read_text().split()) == 2)
    kill(pid, scheduler)
    left = [int(word) for word in trace.read_text().split()]
    assert all(map(alive, left))
    with workshop(repo) as shop:
        look = f"for p in {left[0]} {left[1]}; do grep State /proc/$p/status | grep -v Z; done > seen.txt; "
        one = assignment("s1", look + "cat part.txt >> seen.txt", attempt=2)
        record = Records(repo.root).read("graph1", "s1")
        assert record is not None
        Records(repo.root).replace(attrs.evolve(record, grace_s=0.3))
        [state] = shop.run(one)
    assert state.phase is MERGED
    assert repo.show("main", "seen.txt") == "part"
    assert not any(map(alive, left))


def test_what_a_killed_scheduler_left_of_other_slices_is_ended_too(
    repo: Repo, tmp_path: Path, scheduler: Scheduler
) -> None:
    script = "touch $DISPATCH_DIR/here; echo work > $DISPATCH_SLICE.txt; while :; do sleep 0.05; done"
    names = [f"s{n}" for n in range(6)]
    pid = scheduler.start(repo, tmp_path / "out", *((name, 1, script, ()) for name in names))
    sessions = repo.root / "sessions" / "graph1"
    until(lambda: len(list(sessions.glob("*/here"))) == 6)
    kill(pid, scheduler)
    with workshop(repo) as shop:
        [state] = shop.run(assignment("other", "true"))
        assert state.phase is MERGED
        until(lambda: in_environment(f"DISPATCH_DIR={sessions}") == [])
        until(lambda: not list(sessions.iterdir()))
        [again] = shop.run(assignment("s3", "true", attempt=2))
        assert again.phase is MERGED
    assert repo.show("main", "s3.txt") == "work"
    kept = [f"refs/dispatch/keep/{name}/1" for name in names]
    kept.remove("refs/dispatch/keep/s3/1")  # main has it
    assert repo.refs("refs/dispatch/keep") == kept
    assert repo.refs("refs/heads") == ["refs/heads/main"]


def test_no_session_begins_while_an_agent_of_a_killed_scheduler_runs(
    repo: Repo, tmp_path: Path, scheduler: Scheduler
) -> None:
    """Also of another slice: the two may contend, and the one that is left has no place under the cap any more."""
    trace = tmp_path / "trace"
    script = f"trap '' TERM; echo $$ > {trace}; while :; do sleep 0.05; done"
    pid = scheduler.start(repo, tmp_path / "out", ("s1", 1, script, ()))
    until(lambda: trace.exists() and trace.read_text().endswith("\n"))
    kill(pid, scheduler)
    left = int(trace.read_text())
    record = Records(repo.root).read("graph1", "s1")
    assert record is not None
    Records(repo.root).replace(attrs.evolve(record, grace_s=1.0))
    with workshop(repo) as shop:
        look = f"grep State /proc/{left}/status | grep -v Z > seen.txt; true"
        [state] = shop.run(assignment("other", look))
    assert state.phase is MERGED
    assert repo.show("main", "seen.txt") == "", "it still ran"


def test_what_a_killed_scheduler_left_is_ended_also_if_nothing_is_submitted(
    repo: Repo, tmp_path: Path, scheduler: Scheduler
) -> None:
    script = "touch $DISPATCH_DIR/here; echo work > s1.txt; while :; do sleep 0.05; done"
    pid = scheduler.start(repo, tmp_path / "out", ("s1", 1, script, ()))
    session = repo.root / "sessions" / "graph1" / "s1@1"
    until((session / "here").exists)
    kill(pid, scheduler)
    with workshop(repo):
        pass
    assert in_environment(f"DISPATCH_DIR={session}") == []
    assert not session.exists()
    assert repo.refs("refs/dispatch/keep") == ["refs/dispatch/keep/s1/1"]
    assert repo.refs("refs/heads") == ["refs/heads/main"]


def test_a_living_schedulers_sessions_are_left_alone(repo: Repo, tmp_path: Path, scheduler: Scheduler) -> None:
    script = "touch $DISPATCH_DIR/here; until [ -e $DISPATCH_DIR/go ]; do sleep 0.02; done; echo hi > b.txt"
    scheduler.start(repo, tmp_path / "out", ("s1", 1, script, ()))
    folder = repo.root / "sessions" / "graph1" / "s1@1"
    until((folder / "here").exists)
    with workshop(repo) as shop:
        assert shop.run(assignment("other", "true", graph="graph2"))[0].phase is MERGED
    (folder / "go").touch()
    assert scheduler.end() == 0
    assert reports(tmp_path / "out") == [["s1@1", "merged", ""]]


def test_a_suspended_scheduler_cannot_merge_what_another_took_over(
    repo: Repo, tmp_path: Path, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes up with an agent that ended well meanwhile, and finds that the slice isn't its own any more."""
    monkeypatch.setattr("harness.local.settle.WAIT_S", 0.2)
    script = "touch $DISPATCH_DIR/here; trap 'echo old > old.txt; exit 0' TERM; while :; do sleep 0.02; done"
    pid = scheduler.start(repo, tmp_path / "out", ("s1", 1, script, ()))
    until((repo.root / "sessions" / "graph1" / "s1@1" / "here").exists)
    until(lambda: (record := Records(repo.root).read("graph1", "s1")) is not None and record.mark is not None)
    with FileLock(
        repo.root / "records.lock"
    ).held():  # it is past that; suspended with a lock it would keep all waiting
        os.kill(pid, signal.SIGSTOP)
    try:
        with workshop(repo) as shop:
            [state] = shop.run(assignment("s1", "echo new > new.txt", attempt=2))
            assert state.phase is MERGED
    finally:
        os.kill(pid, signal.SIGCONT)
    assert scheduler.end() == 0
    [[name, phase, detail]] = reports(tmp_path / "out")
    assert (name, phase) == ("s1@1", "closed")
    assert "later attempt" in detail
    assert repo.files() == ["a.txt", "new.txt"]
    assert repo.show("refs/dispatch/keep/s1/1", "old.txt") == "old"
    repo.check_sound()


def test_a_suspended_scheduler_does_not_merge_what_its_successor_stopped(
    repo: Repo, tmp_path: Path, scheduler: Scheduler
) -> None:
    """It wakes up while its successor still waits for it, and finds an agent that heeded SIGTERM and left with 0."""
    here = repo.root / "sessions" / "graph1" / "s1@1" / "here"
    script = f"echo half > work.txt; trap 'exit 0' TERM; echo $$ > {here}; while :; do sleep 0.02; done"
    pid = scheduler.start(repo, tmp_path / "out", ("s1", 1, script, ()))
    until(lambda: here.exists() and here.read_text().endswith("\n"))
    until(lambda: (record := Records(repo.root).read("graph1", "s1")) is not None and record.mark is not None)
    agent = int(here.read_text())
    with FileLock(repo.root / "records.lock").held():  # suspended with a lock it would keep all waiting
        os.kill(pid, signal.SIGSTOP)
    try:
        with workshop(repo) as shop:
            shop.submit(assignment("s1", "test $(cat work.txt) = half && echo whole > work.txt", attempt=2))
            until(lambda: not alive(agent))
            os.kill(pid, signal.SIGCONT)
            assert shop.reports.end("s1@2").phase is MERGED
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert scheduler.end() == 0
    assert repo.merges() == ["s1"]
    assert repo.show("main", "work.txt") == "whole"
    repo.check_sound()


def test_a_process_that_only_has_the_pid_is_never_signalled(repo: Repo, tmp_path: Path, scheduler: Scheduler) -> None:
    """After a reboot: the mark's pid is somebody else's, or the boot was another."""
    innocent = subprocess.Popen(("sleep", "60"))
    try:
        mark = mark_of(innocent.pid)
        wrong = [
            ProcessMark(mark.pid, mark.start_ticks - 1, mark.boot_id),
            ProcessMark(mark.pid, mark.start_ticks, "another boot"),
        ]
        for number, one in enumerate(wrong):
            slice_id = f"s{number}"
            pid = scheduler.start(repo, tmp_path / "out", (slice_id, 1, "touch $DISPATCH_DIR/here; sleep 60", ()))
            until((repo.root / "sessions" / "graph1" / f"{slice_id}@1" / "here").exists)
            kill(pid, scheduler)
            records = Records(repo.root)
            record = records.read("graph1", slice_id)
            assert record is not None
            records.replace(attrs.evolve(record, mark=one))
            with workshop(repo) as shop:
                assert shop.run(assignment(slice_id, "true", attempt=2))[0].phase is MERGED
            assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_a_slice_that_merged_is_not_run_again_though_its_record_is_lost(repo: Repo, tmp_path: Path) -> None:
    with workshop(repo) as shop:
        shop.run(assignment("s1", "echo hi > b.txt"), assignment("s1x", "echo hi > c.txt"))
        for path in (repo.root / "records" / "graph1").iterdir():
            path.unlink()
        runs = f"touch {tmp_path}/ran"
        [merged] = shop.run(assignment("s1", runs, attempt=2))
        shop.reports.all.clear()
        [other] = shop.run(assignment("s1", "true", attempt=2, graph="graph2"))
        [longer] = shop.run(assignment("s", "echo x > x.txt", attempt=2))
    assert (merged.phase, merged.detail) == (MERGED, "an earlier attempt had merged")
    assert other.detail == "no change"
    assert longer.detail == ""
    assert not (tmp_path / "ran").exists()


def test_a_program_that_forgets_to_close_ends_all_the_same(repo: Repo, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, sys\n"
        "from harness import Assignment, Recipe\n"
        "from harness.local import LocalSessionHost\n"
        f"host = LocalSessionHost({str(repo.path)!r})\n"
        "host.connect(print)\n"
        "recipe = Recipe(command=('sh', '-c', 'touch $DISPATCH_DIR/here; sleep 60'))\n"
        "one = Assignment('s1@1', 's1', 1, recipe, 't', 't', '', 'dispatch/s1/1', 'graph1')\n"
        "asyncio.run(host.submit(one))\n"
        "sys.stdin.readline()\n"
    )
    process = subprocess.Popen(
        (sys.executable, str(program)), stdin=subprocess.PIPE, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    until((repo.root / "sessions" / "graph1" / "s1@1" / "here").exists)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(10) == 0
    with workshop(repo) as shop:
        assert shop.run(assignment("s1", "true", attempt=2))[0].phase is MERGED
    assert in_environment(f"DISPATCH_DIR={repo.root}") == []


@pytest.mark.timeout(900)
def test_killed_at_random_again_and_again_every_slice_merges_once_and_never_runs_twice_at_once(
    repo: Repo, tmp_path: Path, scheduler: Scheduler
) -> None:
    """Judged by the history of main and by a ledger that the agents keep, not by what the host says of itself."""
    ledger, dice, pause = tmp_path / "ledger", random.Random(11), threading.Event()
    script = (
        f'echo "in $DISPATCH_SLICE $$" >> {ledger}; echo $DISPATCH_ATTEMPT >> $DISPATCH_SLICE.txt; sleep 0.1; '
        f'git add -A; git commit -qm "$DISPATCH_SLICE"; sleep 0.05; echo "out $DISPATCH_SLICE $$" >> {ledger}'
    )
    attempts = {f"s{n}": 1 for n in range(24 if EVERY else 6)}
    kills = 0
    for number in range(1000):
        out = tmp_path / f"out{number}"
        work = [(slice_id, attempt, script, ("sleep", "0.02")) for slice_id, attempt in attempts.items()]
        pid = scheduler.start(repo, out, *work)
        if kills < (100 if EVERY else 8):
            pause.wait(dice.uniform(0.02, 0.6))
            with contextlib.suppress(ProcessLookupError):  # all was done by then
                os.kill(pid, signal.SIGKILL)
        kills += scheduler.end() == -9
        for assignment_id, phase, _ in reports(out):
            assert phase == "merged"
            del attempts[assignment_id.partition("@")[0]]
        attempts = {slice_id: attempt + 1 for slice_id, attempt in attempts.items()}
        check_ledger(ledger)
        if not attempts:
            break
    assert attempts == {}
    assert kills >= 3
    assert sorted(repo.merges()) == sorted(set(repo.merges()))
    assert len(repo.merges()) == (24 if EVERY else 6)
    assert repo.files() == sorted(["a.txt", *(f"{slice_id}.txt" for slice_id in repo.merges())])
    assert repo.refs("refs/heads") == ["refs/heads/main"]
    assert len(repo.git("worktree", "list").splitlines()) <= 2 + (24 if EVERY else 6)
    assert in_environment(f"DISPATCH_DIR={repo.root}") == []
    repo.check_sound()


def check_ledger(ledger: Path) -> None:
    """No agent began while an earlier one of the same slice was alive: each `in` is of the only one that lives."""
    last: dict[str, int] = {}
    for line in ledger.read_text().splitlines() if ledger.exists() else []:
        what, slice_id, pid = line.split()
        if what == "in":
            last[slice_id] = int(pid)
        else:
            assert last[slice_id] == int(pid), f"{slice_id}: {pid} was still at work after another had begun"


def test_a_record_can_be_read_back(tmp_path: Path) -> None:
    records = Records(tmp_path)
    record = attrs.evolve(
        Record.of(assignment("s1", "true"), "token"), mark=ProcessMark(1, 2, "b"), phase=MERGED, resume=True
    )
    records.replace(record)
    assert records.read("graph1", "s1") == record
    assert records.read("graph1", "s2") is None
    assert json.loads((tmp_path / "records" / "graph1" / "s1.json").read_text())["phase"] == "merged"
