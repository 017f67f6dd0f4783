"""Whether a claim's owner still lives, asked of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import attrs
import pytest

from dispatch.store.process import Owner, Presence, presence_of, this_process
from harness.procfs import stat_of


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until its input ends."""
    with subprocess.Popen([sys.executable, "-Sc", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def owner_of(process: subprocess.Popen[bytes]) -> Owner:
    stat = stat_of(process.pid)
    assert stat is not None
    return attrs.evolve(this_process(), pid=process.pid, started=stat.start_ticks)


def test_this_process_is_alive() -> None:
    owner = this_process()
    assert owner.pid == os.getpid()
    assert presence_of(owner) is Presence.ALIVE


def test_every_claim_has_a_token_of_its_own() -> None:
    assert len({this_process().token for _ in range(100)}) == 100


def test_a_process_is_alive_until_it_ends(sleeper: subprocess.Popen[bytes]) -> None:
    owner = owner_of(sleeper)
    assert presence_of(owner) is Presence.ALIVE
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert presence_of(owner) is Presence.GONE, "it only waits to be reaped"
    sleeper.wait()
    assert presence_of(owner) is Presence.GONE


def test_a_pid_used_again_is_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    owner = owner_of(sleeper)
    assert presence_of(attrs.evolve(owner, started=owner.started - 1)) is Presence.GONE


@pytest.mark.parametrize("elsewhere", [{"boot": "another"}, {"pid_namespace": "pid:[1]"}, {"boot": ""}])
def test_what_runs_elsewhere_is_unknown(elsewhere: dict[str, str]) -> None:
    assert presence_of(attrs.evolve(this_process(), **elsewhere)) is Presence.UNKNOWN
    assert presence_of(attrs.evolve(this_process(), pid=2**22 + 1, **elsewhere)) is Presence.UNKNOWN
