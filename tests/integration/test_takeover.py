"""A graph that another process takes over, and a claim that runs out: nothing of the old owner's runs on or merges."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from harness.local.lock import FileLock
from harness.local.record import Records
from harness.session import SessionPhase
from tests.integration.killable import Scheduler, reports, scheduler
from tests.integration.workshop import GRAPH, Repo, Workshop, alive, assignment, make_repo, until, workshop

__all__ = ["scheduler"]  # the fixture
MERGED, CLOSED, CANCELED = SessionPhase.MERGED, SessionPhase.CLOSED, SessionPhase.CANCELED
WAITS = "waiting to know who owns the graph"
DEAF = "trap '' TERM; "


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo")


def begin(scheduler: Scheduler, repo: Repo, out: Path, script: str, verify: tuple[str, ...] = ()) -> tuple[int, int]:
    """The pids of a scheduler and of its agent at `s1`, which runs and has half a second when it is told to stop."""
    trace = out.with_name("trace")
    pid = scheduler.start(repo, out, ("s1", 1, f"{script} echo $$ > {trace}; while :; do sleep 0.02; done", verify))
    until(lambda: trace.exists() and trace.read_text().endswith("\n"))
    records = Records(repo.root)
    until(lambda: (record := records.read(GRAPH, "s1")) is not None and record.mark is not None)
    return pid, int(trace.read_text())


def shorten_grace(repo: Repo) -> None:
    record = Records(repo.root).read(GRAPH, "s1")
    assert record is not None
    Records(repo.root).replace(attrs.evolve(record, grace_s=0.5))


def suspend(pid: int, repo: Repo) -> None:
    with FileLock(repo.root / "records.lock").held():  # suspended with a lock it would keep all waiting
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize("suspended", [True, False], ids=["suspended", "alive"])
@pytest.mark.parametrize("heeds", [DEAF, "echo half > half.txt; trap 'exit 0' TERM; "], ids=["deaf", "leaves with 0"])
def test_the_agents_of_the_old_owner_are_gone_before_another_slice_begins(
    repo: Repo, tmp_path: Path, scheduler: Scheduler, suspended: bool, heeds: str
) -> None:
    """Of another slice: the two may contend, and there is no place under the cap for both."""
    pid, agent = begin(scheduler, repo, tmp_path / "out", heeds)
    shorten_grace(repo)
    if suspended:
        suspend(pid, repo)
    try:
        with workshop(repo) as shop:
            [state] = shop.run(assignment("other", f"grep State /proc/{agent}/status | grep -v Z > seen.txt; true"))
            assert state.phase is MERGED
    finally:
        if suspended:
            os.kill(pid, signal.SIGCONT)
    assert repo.show("main", "seen.txt") == "", "it still ran"
    assert scheduler.end() == 0
    [[name, phase, detail]] = reports(tmp_path / "out")
    assert (name, phase) == ("s1@1", "closed")
    assert "another process has taken this graph over" in detail
    assert repo.merges() == ["other"]
    assert repo.files() == ["a.txt", "seen.txt"]
    repo.check_sound()


def test_the_old_owners_slice_goes_on_from_its_work(repo: Repo, tmp_path: Path, scheduler: Scheduler) -> None:
    begin(scheduler, repo, tmp_path / "out", "echo half > half.txt; ")
    shorten_grace(repo)
    with workshop(repo) as shop:
        assert [state.phase for state in shop.run(assignment("other", "true"))] == [MERGED]
        assert [state.phase for state in shop.run(assignment("s1", "cat half.txt", attempt=2))] == [MERGED]
    assert scheduler.end() == 0
    assert repo.show("main", "half.txt") == "half"


def test_what_a_host_runs_itself_is_not_ended_by_its_own_new_claim(repo: Repo, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with workshop(repo) as shop:
        shop.submit(assignment("s1", f"until [ -e {go} ]; do sleep 0.02; done; echo 1 > 1.txt"))
        until(lambda: any(one.pid for one in shop.host.running()))
        shop.host.fence(lambda: True)
        assert shop.run(assignment("s2", "true"))[0].phase is MERGED
        go.touch()
        assert shop.reports.end("s1@1").phase is MERGED
    assert repo.files() == ["1.txt", "a.txt"]


def test_a_new_claim_ends_again_what_others_run_of_the_graph(repo: Repo, tmp_path: Path, scheduler: Scheduler) -> None:
    """This process had the graph, lost it, and takes it back."""
    with workshop(repo) as shop:
        assert shop.run(assignment("before", "true"))[0].phase is MERGED
        _, agent = begin(scheduler, repo, tmp_path / "out", DEAF)
        shorten_grace(repo)
        shop.host.fence(lambda: True)
        assert shop.run(assignment("other", "true"))[0].phase is MERGED
        assert not alive(agent)
    assert scheduler.end() == 0


@pytest.fixture
def owned() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def waits(shop: Workshop) -> Callable[[], bool]:
    return lambda: [one.stage for one in shop.host.running()] == [WAITS]


def lose_while_it_works(shop: Workshop, owned: threading.Event, go: Path) -> str:
    """The claim is lost while `s1` is at work, which then ends and is not merged; main's commit."""
    shop.host.fence(owned.is_set)
    shop.submit(assignment("s1", f"until [ -e {go} ]; do sleep 0.02; done; echo 1 > 1.txt"))
    until(lambda: any(one.pid for one in shop.host.running()))
    owned.clear()
    main = shop.repo.git("rev-parse", "main")
    go.touch()
    return main


def test_main_does_not_move_before_the_claim_is_certain_again(
    repo: Repo, tmp_path: Path, owned: threading.Event
) -> None:
    with workshop(repo) as shop:
        main = lose_while_it_works(shop, owned, tmp_path / "go")
        until(waits(shop))
        assert repo.git("rev-parse", "main") == main
        owned.set()
        assert shop.reports.end("s1@1").phase is MERGED
    assert repo.files() == ["1.txt", "a.txt"]


def test_a_claim_that_is_lost_for_good_closes_and_keeps_the_work(
    repo: Repo, tmp_path: Path, owned: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.local.session.CLAIM_WAIT_S", 0.3)
    with workshop(repo) as shop:
        main = lose_while_it_works(shop, owned, tmp_path / "go")
        state = shop.reports.end("s1@1")
    assert (state.phase, state.detail) == (CLOSED, "another process owns the graph now")
    assert repo.git("rev-parse", "main") == main
    assert repo.files("refs/dispatch/keep/s1/1") == ["1.txt", "a.txt"]


def test_a_session_that_waits_for_its_claim_heeds_a_cancel(repo: Repo, tmp_path: Path, owned: threading.Event) -> None:
    with workshop(repo) as shop:
        lose_while_it_works(shop, owned, tmp_path / "go")
        until(waits(shop))
        shop.cancel("s1@1")
        assert shop.reports.end("s1@1").phase is CANCELED
    assert repo.files("refs/dispatch/keep/s1/1") == ["1.txt", "a.txt"]


def test_a_claim_that_is_lost_during_verify_moves_nothing(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.local.session.CLAIM_WAIT_S", 0.3)
    claim = tmp_path / "claim"
    claim.touch()
    with workshop(repo) as shop:
        shop.host.fence(claim.exists)
        [state] = shop.run(assignment("s1", "echo 1 > 1.txt", verify=("rm", str(claim))))
    assert (state.phase, state.detail) == (CLOSED, "another process owns the graph now")
    assert repo.files() == ["a.txt"]


def test_nothing_begins_before_the_claim_is_certain(repo: Repo, tmp_path: Path, scheduler: Scheduler) -> None:
    """And nothing of another process is ended: this one may have been suspended since it was told to begin."""
    owned = threading.Event()
    _, agent = begin(scheduler, repo, tmp_path / "out", DEAF)
    shorten_grace(repo)
    with workshop(repo) as shop:
        shop.host.fence(owned.is_set)
        shop.submit(assignment("other", "true"))
        until(waits(shop))
        assert alive(agent)
        owned.set()
        assert shop.reports.end("other@1").phase is MERGED
        assert not alive(agent)
    assert scheduler.end() == 0


def remove_records(repo: Repo) -> str:
    """A script for it, which waits until the process that runs it is written down there."""
    records = repo.root / "records"
    return f"until grep -q start_ticks {records}/{GRAPH}/s1.json; do sleep 0.02; done; rm -r {records}"


def test_a_record_that_was_removed_while_its_agent_ran_is_written_anew(repo: Repo) -> None:
    with workshop(repo) as shop:
        [state] = shop.run(assignment("s1", f"{remove_records(repo)}; echo 1 > 1.txt"))
    assert (state.phase, state.detail) == (MERGED, "")
    record = Records(repo.root).read(GRAPH, "s1")
    assert record is not None
    assert record.phase is MERGED


def test_without_its_record_an_attempt_gives_way_to_another_one(repo: Repo) -> None:
    rival = repo.root / "sessions" / GRAPH / "s1@2"
    with workshop(repo) as shop:
        [state] = shop.run(assignment("s1", f"{remove_records(repo)}; mkdir {rival}; echo 1 > 1.txt"))
    assert (state.phase, state.detail) == (
        CLOSED,
        "its record was removed, and there is another attempt at this slice",
    )
    assert repo.files() == ["a.txt"]
    assert repo.files("refs/dispatch/keep/s1/1") == ["1.txt", "a.txt"]
    shutil.rmtree(rival)
