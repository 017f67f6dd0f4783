"""ctrl-C and its like: a run that is stopped leaves nothing behind, and can be gone on with."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.e2e.desk import Desk, end, until

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP

# Each attempt says that it is up, and then works until it is told to stop; a second attempt has nothing left to do.
PATIENT = """
cap = 2
[defaults]
grace_s = 60
command = ["sh", "-c", '''
  echo half > $DISPATCH_SLICE.txt
  test $DISPATCH_ATTEMPT -gt 1 && exit 0
  trap "touch $MARKS/$DISPATCH_SLICE.stopped; exit 0" TERM
  touch $MARKS/$DISPATCH_SLICE.up
  while :; do sleep 0.05; done''']
[slices.a]
[slices.b]
[slices.c]
needs = "a"
command = ["sh", "-c", "touch $MARKS/c.up; cp a.txt c.txt"]
"""
STUBBORN = PATIENT.replace('trap "touch $MARKS/$DISPATCH_SLICE.stopped; exit 0" TERM', 'trap "" TERM')


def under_way(desk: Desk, plan: str, *more: str, **streams: object) -> subprocess.Popen[str]:
    """A run whose first two sessions are at work."""
    process = desk.start("run", desk.plan(plan), *more, **streams)
    until(lambda: desk.mark("a.up").exists() and desk.mark("b.up").exists(), process)
    return process


@pytest.mark.parametrize(("number", "status"), [(INT, 130), (TERM, 143), (HUP, 129)])
def test_the_first_signal_stops_at_safepoints_and_run_goes_on(desk: Desk, number: signal.Signals, status: int) -> None:
    process = under_way(desk, PATIENT)
    code, out, err = end(process, number)
    assert (code, err) == (status, "")
    assert desk.mark("a.stopped").exists()
    assert desk.mark("b.stopped").exists()
    assert "stopping at safepoints – press ctrl-C again to stop at once" in out
    assert "of 3 slices merged" in out
    assert "the same `run` goes on from here" in out
    desk.check_clean()
    listed = desk.document("list")
    assert listed["owner"] is None
    assert listed["paused"] is None

    again = desk.run("run", desk.folder / "plan.toml")
    assert again.returncode == 0
    assert sorted(desk.merged()) == ["a", "b", "c"]
    assert (desk.repo / "c.txt").read_text() == "half\n"
    desk.check_clean()


def test_a_second_signal_stops_at_once(desk: Desk) -> None:
    process = under_way(desk, STUBBORN)
    process.send_signal(INT)
    assert process.stdout is not None
    while "stopping at safepoints" not in process.stdout.readline():
        pass
    began = time.monotonic()
    code, out, _ = end(process, INT)
    assert time.monotonic() - began < 30, "their grace is a minute"
    assert code == 130
    assert "stopping at once" in out
    desk.check_clean()
    assert desk.run("run", desk.folder / "plan.toml").returncode == 0
    assert sorted(desk.merged()) == ["a", "b", "c"]


def test_two_signals_in_one_moment_stop_at_once(desk: Desk) -> None:
    process = under_way(desk, STUBBORN)
    assert end(process, INT, TERM)[0] in (130, 143)
    desk.check_clean()


def test_signals_are_heeded_alike_before_the_run_has_said_its_first_word(desk: Desk) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with contextlib.suppress(BlockingIOError):  # nothing more fits in: the run stands still before its first line
        while True:
            os.write(theirs, bytes(4096))
    os.set_blocking(theirs, True)
    process = under_way(desk, STUBBORN, stdout=theirs)
    os.close(theirs)
    for number in (INT, TERM):
        process.send_signal(number)
    with open(ours, "rb") as pipe:  # noqa: PTH123 - a descriptor
        assert b"stopping at once" in pipe.read()
    assert end(process)[0] in (130, 143)
    desk.check_clean()


def test_nothing_is_launched_after_the_first_signal(desk: Desk) -> None:
    process = under_way(desk, PATIENT + "[slices.z]\n")
    end(process, INT)
    assert not desk.mark("c.up").exists()
    assert not desk.mark("z.up").exists()


def test_a_pipe_that_nobody_reads_any_more_stops_the_run(desk: Desk) -> None:
    process = under_way(desk, PATIENT)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.send_signal(HUP)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (129, 141)
    assert err == ""
    desk.check_clean()


def test_a_reader_that_leaves_early_stops_the_run_by_itself(desk: Desk) -> None:
    """`run ... | head -1`: the next line that can't be written says that nobody is interested."""
    plan = PATIENT + '[slices.quick]\ncommand = ["sh", "-c", "until test -e $MARKS/go; do sleep 0.05; done"]\n'
    process = desk.start("run", desk.plan(plan), "--cap", "3")
    until(lambda: desk.mark("a.up").exists() and desk.mark("b.up").exists(), process)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    desk.mark("go").touch()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, "")
    assert desk.mark("a.stopped").exists()
    desk.check_clean()


def test_a_command_that_nobody_reads_says_so_by_its_status(desk: Desk) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    process = desk.start("schema", stdout=theirs)
    os.close(theirs)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, "")


def test_a_terminal_that_goes_away_stops_the_run(desk: Desk) -> None:
    desk.env |= {"TERM": "xterm"}
    ours, theirs = pty.openpty()
    process = desk.start("run", desk.plan(PATIENT), stdout=theirs, stderr=theirs, stdin=theirs, start_new_session=True)
    os.close(theirs)
    until(lambda: desk.mark("a.up").exists() and desk.mark("b.up").exists(), process)
    os.close(ours)
    assert process.wait(timeout=60) in (129, 141)
    assert desk.mark("a.stopped").exists()
    desk.check_clean()


# What a shell does: a job has a process group of its own; it is told by the kernel that the job was stopped.
SHELL = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTSTP, signal.SIG_DFL)
job = subprocess.Popen(sys.argv[1:], process_group=0)
sys.stdin.read(1)
os.kill(job.pid, signal.SIGTSTP)
assert os.WIFSTOPPED(os.waitpid(job.pid, os.WUNTRACED)[1])
print("STOPPED", flush=True)
os.kill(job.pid, signal.SIGCONT)
sys.exit(job.wait())
"""


def test_ctrl_z_gives_the_cursor_back_and_the_run_goes_on_later(desk: Desk) -> None:
    desk.env |= {"TERM": "xterm"}
    plan = desk.plan(
        '[slices.a]\ncommand = ["sh", "-c", "touch $MARKS/up; until test -e $MARKS/go; do sleep 0.05; done"]'
    )
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-c", SHELL, sys.executable, "-m", "dispatch", "run", str(plan)]
    streams = {"stdin": subprocess.PIPE, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(command, cwd=desk.repo, env=desk.env, start_new_session=True, **streams) as shell:
        until(desk.mark("up").exists, shell)
        assert shell.stdin is not None
        shell.stdin.write(b"!")
        shell.stdin.close()
        shown, _, after = read_until(ours, b"STOPPED").partition(b"STOPPED")
        desk.mark("go").touch()
        rest = after + read_until(ours, b"1 of 1 slice merged")
        assert shell.wait(60) == 0
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l") >= 0
    assert b"\x1b[?25l" in rest
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)
    desk.check_clean()


def read_until(descriptor: int, words: bytes) -> bytes:
    shown = b""
    while words not in shown:
        assert select.select([descriptor], [], [], 60)[0], f"not shown: {words!r}, only {shown!r}"
        shown += os.read(descriptor, 65536)
    return shown


def test_a_signal_while_the_run_is_being_opened_leaves_nothing(desk: Desk) -> None:
    """It waits for the claim of an owner whose process can't be judged from here."""
    assert desk.run("run", desk.plan('[slices.a]\ncommand = ["true"]\n')).returncode == 0
    store = desk.state / "slice-dispatch" / "graphs.db"
    with sqlite3.connect(store) as database:
        database.execute("UPDATE claims SET expires_at = 9e9, boot = 'another'")
    database.close()
    process = desk.start("run", desk.folder / "plan.toml")
    until(lambda: _has_open(process.pid, store), process)
    code, out, err = end(process, INT)
    assert (code, out, err) == (130, "", "")
    desk.check_clean()


def _has_open(pid: int, path: Path) -> bool:
    """Whether a process has a file open."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            links.append(entry.readlink())
    return path in links
