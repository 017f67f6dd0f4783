"""Real children: how they end, what they write, and that nothing of them is left."""

from __future__ import annotations

import errno
import functools
import gc
import io
import logging
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
import trio

from harness import procfs
from harness.local.process import Child, Exit, ProcessWatcher, Running, find_by_token, is_alive, mark_of
from harness.procfs import ProcessTable, Snapshot
from tests.integration.family import LIMIT_S, Ended, Family, eventually

IGNORES_SIGTERM = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


def python(source: str) -> tuple[str, ...]:
    return sys.executable, "-c", source


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    watcher = ProcessWatcher()
    watcher.start()
    family = Family(watcher, tmp_path)
    yield family
    watcher.stop(kill=True)
    assert family.left() == []


def descriptors() -> int:
    """Those that are in use, and not only not yet collected."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def zombies() -> list[int]:
    stats = filter(None, map(procfs.stat_of, procfs.pids()))
    return [stat.pid for stat in stats if stat.parent == os.getpid() and stat.state == "Z"]


# How a child ends.


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [
        ("exit 0", 0, None),
        ("exit 3", 3, None),
        ("exit 255", 255, None),
        ("kill -TERM $$", None, signal.SIGTERM),
        ("kill -KILL $$", None, signal.SIGKILL),
        ("kill -SEGV $$", None, signal.SIGSEGV),
    ],
)
def test_exit_codes_and_signals(family: Family, script: str, code: int | None, number: int | None) -> None:
    exit_ = family.run("sh", "-c", script)
    assert (exit_.code, exit_.signal) == (code, number)
    assert (exit_.stopped, exit_.quiet, exit_.killed, exit_.survivors) == (False, False, False, ())
    assert exit_.ran_s > 0


def test_a_child_gets_its_folder_environment_and_an_empty_input(family: Family) -> None:
    env = {"PATH": os.environ["PATH"], "GREETING": "hello"}
    exit_ = family.run("sh", "-c", "cat; pwd; echo $GREETING; env | wc -l", env=env)
    assert exit_.code == 0
    folder, greeting, count = family.log.read_text().split()
    assert (folder, greeting) == (str(family.folder), "hello")
    assert int(count) <= len(env) + 4  # what a shell adds itself


def test_a_child_leads_a_session_of_its_own(family: Family) -> None:
    running, ended, lines = family.start("sh", "-c", "echo ready; exec sleep 1000")
    lines.wait("ready")
    assert os.getsid(running.pid) == os.getpgid(running.pid) == running.pid
    assert running.mark.pid == running.pid
    assert is_alive(running.mark)
    running.kill()
    ended.wait()
    assert not is_alive(running.mark)


def test_stopping_is_a_sigterm_that_may_be_answered(family: Family) -> None:
    script = "trap 'echo saved; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    running, ended, lines = family.start("sh", "-c", script)
    lines.wait("ready")
    running.stop(grace_s=LIMIT_S)
    exit_ = ended.wait()
    assert (exit_.code, exit_.stopped, exit_.killed, exit_.last_line) == (7, True, False, "saved")


def test_one_that_ignores_sigterm_is_killed_after_the_grace(family: Family) -> None:
    running, ended, lines = family.start("sh", "-c", IGNORES_SIGTERM)
    lines.wait("ready")
    asked_at = time.monotonic()
    running.stop(grace_s=0.3)
    exit_ = ended.wait()
    assert time.monotonic() - asked_at >= 0.3
    assert (exit_.signal, exit_.stopped, exit_.killed) == (signal.SIGKILL, True, True)


def test_the_grace_may_be_shortened_and_not_lengthened(family: Family) -> None:
    running, ended, lines = family.start("sh", "-c", IGNORES_SIGTERM)
    lines.wait("ready")
    running.stop(grace_s=10 * LIMIT_S)
    running.stop(grace_s=0.1)
    running.stop(grace_s=10 * LIMIT_S)
    assert ended.wait().killed


@pytest.mark.parametrize("grace_s", [0.0, -1.0, float("nan")])
def test_no_grace_is_no_wait(family: Family, grace_s: float) -> None:
    running, ended, lines = family.start("sh", "-c", IGNORES_SIGTERM)
    lines.wait("ready")
    running.stop(grace_s)
    assert ended.wait().signal == signal.SIGKILL


def test_killing_asks_nobody(family: Family) -> None:
    running, ended, lines = family.start("sh", "-c", "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done")
    lines.wait("ready")
    running.kill()
    exit_ = ended.wait()
    assert (exit_.signal, exit_.stopped, exit_.killed) == (signal.SIGKILL, True, True)
    assert "asked" not in family.log.read_text()


def test_stopping_one_that_has_ended_changes_nothing(family: Family) -> None:
    ended = Ended()
    running = family.watcher.spawn(family.child("sh", "-c", "exit 5"), ended)
    exit_ = ended.wait()
    running.stop(0.0)
    running.kill()
    assert family.run("true").code == 0
    assert ended.exits == [exit_]
    assert (exit_.code, exit_.stopped) == (5, False)


def test_the_number_of_a_group_that_is_gone_is_sent_no_signal(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """By then it may be the number of somebody else's."""
    ended, sent = Ended(), list[tuple[int, int]]()
    running = family.watcher.spawn(family.child("true"), ended)
    ended.wait()
    monkeypatch.setattr(os, "killpg", lambda *call: sent.append(call))
    running.stop(0.0)
    running.kill()
    assert family.run("true").code == 0
    assert sent == []


LEAVES_ONE_THAT_IGNORES_SIGTERM = "trap '' TERM; while :; do sleep 0.05; done & exit 5"
END_AT_ONCE = [lambda running: running.stop(0.0), Running.kill]


@pytest.mark.parametrize("end", END_AT_ONCE, ids=["stop", "kill"])
def test_ending_what_one_that_ended_by_itself_left_behind_does_not_change_how_it_ended(
    family: Family, monkeypatch: pytest.MonkeyPatch, end: Callable[[Running], None]
) -> None:
    monkeypatch.setattr("harness.local.running.LEFTOVER_GRACE_S", 100 * LIMIT_S)
    ended = Ended()
    running = family.watcher.spawn(family.child("sh", "-c", LEAVES_ONE_THAT_IGNORES_SIGTERM), ended)
    eventually(lambda: not is_alive(running.mark), "it has ended")
    end(running)
    exit_ = ended.wait()
    assert (exit_.code, exit_.stopped, exit_.killed) == (5, False, True)


@pytest.mark.parametrize("end", END_AT_ONCE, ids=["stop", "kill"])
def test_nor_does_it_when_the_watcher_learns_of_the_end_later_than_of_the_wish(
    family: Family, end: Callable[[Running], None]
) -> None:
    """As on a machine that is overloaded: the thread gets no turn between the two."""
    ended, held, go_on = Ended(), threading.Event(), threading.Event()
    running = family.watcher.spawn(family.child("sh", "-c", LEAVES_ONE_THAT_IGNORES_SIGTERM), ended)
    family.watcher.later(0.0, lambda: (held.set(), go_on.wait(LIMIT_S)))
    assert held.wait(LIMIT_S)
    eventually(lambda: not is_alive(running.mark), "it has ended")
    end(running)
    go_on.set()
    exit_ = ended.wait()
    assert (exit_.code, exit_.stopped, exit_.killed) == (5, False, True)


def test_one_that_is_suspended_hears_sigterm(family: Family) -> None:
    source = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
while True: signal.pause()
"""
    running, ended, lines = family.start(*python(source))
    lines.wait("ready")
    os.killpg(running.pid, signal.SIGSTOP)
    eventually(lambda: getattr(procfs.stat_of(running.pid), "state", "") == "T", "it is suspended")
    running.stop(grace_s=LIMIT_S)
    assert ended.wait().code == 7


def test_what_a_wrapper_leaves_behind_has_the_grace_too_and_is_asked_once(family: Family) -> None:
    """A shell dies of SIGTERM at once; the agent it wrapped is saving its work meanwhile."""
    agent = """
import signal, sys, time
asked = 0
def save(*_):
    global asked
    asked += 1
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while not asked:
    time.sleep(0.01)
until = time.monotonic() + 3.0
while time.monotonic() < until:
    time.sleep(0.01)
print("saved after", asked, flush=True)
"""
    running, ended, lines = family.start("sh", "-c", f"'{sys.executable}' -c '{agent}'; echo never")
    lines.wait("ready")
    running.stop(grace_s=LIMIT_S)
    exit_ = ended.wait()
    assert (exit_.signal, exit_.stopped, exit_.killed) == (signal.SIGTERM, True, False)
    assert exit_.last_line == "saved after 1"


def test_one_whose_first_thread_has_ended_still_runs(family: Family) -> None:
    source = """
import ctypes, os, threading
def work():
    print("ready", flush=True)
    with open("go") as file: file.read()
    print("worked", flush=True)
    os._exit(9)
threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    os.mkfifo(family.folder / "go")
    running, ended, lines = family.start(*python(source))
    lines.wait("ready")
    eventually(lambda: getattr(procfs.stat_of(running.pid), "state", "") == "Z", "its first thread ended")
    assert is_alive(running.mark)
    assert ended.exits == []
    (family.folder / "go").write_text("")
    exit_ = ended.wait()
    assert (exit_.code, exit_.last_line) == (9, "worked")


# The quiet limit.


def test_one_that_writes_nothing_for_too_long_is_ended(family: Family) -> None:
    exit_ = family.run("sh", "-c", "echo begun; exec sleep 1000", quiet_limit_s=0.3)
    assert (exit_.signal, exit_.quiet, exit_.stopped, exit_.killed) == (signal.SIGTERM, True, False, False)
    assert exit_.last_line == "begun"
    assert exit_.ran_s >= 0.3


def test_and_killed_if_it_does_not_heed_that(family: Family) -> None:
    exit_ = family.run("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done", quiet_limit_s=0.2, quiet_grace_s=0.1)
    assert (exit_.signal, exit_.quiet, exit_.killed) == (signal.SIGKILL, True, True)


def test_output_puts_the_quiet_limit_off(family: Family) -> None:
    exit_ = family.run("sh", "-c", "for i in 1 2 3 4 5 6; do printf .; sleep 0.5; done", quiet_limit_s=2.0)
    assert (exit_.code, exit_.quiet) == (0, False)
    assert exit_.ran_s > 2.0


def test_one_that_is_being_stopped_is_not_quiet(family: Family) -> None:
    running, ended, lines = family.start("sh", "-c", IGNORES_SIGTERM, quiet_limit_s=0.3)
    lines.wait("ready")
    running.stop(grace_s=0.6)
    exit_ = ended.wait()
    assert (exit_.stopped, exit_.quiet) == (True, False)


# What a child leaves behind.


def test_a_grandchild_that_holds_the_pipe_does_not_keep_it_from_ending(family: Family) -> None:
    exit_ = family.run("sh", "-c", "sleep 1000 & exit 0")
    assert (exit_.code, exit_.killed) == (0, False)
    assert family.left() == []


def test_a_grandchild_that_ignores_sigterm_is_killed(family: Family) -> None:
    exit_ = family.run("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done & exit 0")
    assert (exit_.code, exit_.killed) == (0, True)
    assert family.left() == []


@pytest.mark.parametrize(
    "escape",
    ["setsid sleep 1000 &", "set -m; sleep 1000 &", "setsid setsid sh -c 'cd /; sleep 1000; :' &"],
    ids=["another session", "another group", "a daemon"],
)
def test_one_that_left_the_group_is_found(family: Family, escape: str) -> None:
    assert family.run("bash", "-c", f"{escape} exit 4").code == 4
    assert family.left() == []


def test_one_that_shed_every_tie_is_not_waited_for_but_a_second(family: Family) -> None:
    """Nothing tells it from a stranger any more, and it holds the pipe open."""
    escape = "setsid env -i sh -c 'echo > shed; exec sleep 1000' & pid=$!"
    exit_ = family.run("sh", "-c", f"{escape}; until [ -e shed ]; do sleep 0.01; done; echo $pid")
    assert exit_.code == 0
    mark = mark_of(int(exit_.last_line))
    try:
        assert is_alive(mark)
    finally:
        os.kill(mark.pid, signal.SIGKILL)


def test_of_a_hundred_trees_that_are_stopped_nothing_is_left(family: Family) -> None:
    script = "(setsid sleep 1000 & sleep 1000) & (trap '' TERM; sleep 1000 & wait; sleep 1000) & echo ready; wait"
    started = [family.start("bash", "-c", script) for _ in range(100)]
    for _, _, lines in started:
        lines.wait("ready")
    for running, _, _ in started:
        running.stop(grace_s=0.5)
    exits = [ended.wait() for _, ended, _ in started]
    assert family.left() == []
    assert zombies() == []
    assert all(exit_.stopped and exit_.survivors == () for exit_ in exits)


class Immortal(ProcessTable):
    """Shows a process that never ends in every group, beside those there are."""

    def since(self, start_ticks: int) -> Snapshot:
        stats = super().since(start_ticks).stats
        return Snapshot([*stats, *(attrs.evolve(stat, pid=4_000_000, state="D") for stat in stats if stat.ended)])


def test_what_can_t_be_ended_is_named_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.local.orphans.KILL_LIMIT_S", 0.2)
    watcher = ProcessWatcher(Immortal())
    watcher.start()
    running, ended, lines = Family(watcher, tmp_path).start("sh", "-c", "echo ready; exec sleep 1000")
    lines.wait("ready")
    running.stop(grace_s=0.0)
    exit_ = ended.wait()
    assert exit_.survivors == (4_000_000,)
    assert exit_.killed
    watcher.stop()


class Unreadable(ProcessTable):
    """A table that can't be read, as when no descriptor is left."""

    def since(self, start_ticks: int) -> Snapshot:
        raise OSError(errno.EMFILE, "too many open files")


def test_a_child_that_can_t_be_watched_any_more_is_killed_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = ProcessWatcher(Unreadable())
    watcher.start()
    family = Family(watcher, tmp_path)
    exit_ = family.run("sh", "-c", "sleep 1000 & exit 6")
    assert (exit_.code, exit_.survivors) == (6, ())
    eventually(lambda: family.left() == [], "the rest of its group is gone")
    assert "can't be watched" in caplog.text
    watcher.stop()


# Output.


def test_both_streams_go_into_one_log_in_order(family: Family) -> None:
    family.log.write_text("before\n")
    exit_ = family.run("sh", "-c", "echo one; echo two >&2; echo three")
    assert family.log.read_text() == "before\none\ntwo\nthree\n"
    assert (exit_.output_bytes, exit_.dropped_bytes, exit_.last_line) == (14, 0, "three")


def test_a_flood_on_both_streams_is_drained_and_the_log_is_capped(family: Family) -> None:
    source = """
import os
line = b"x" * 1023 + b"\\n"
for stream in (2, 1):
    for _ in range(50 * 1024):
        os.write(stream, line)
os.write(1, b"done\\n")
"""
    limit = 4 * 1024 * 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    running, ended, _ = family.start(*python(source), log_limit_bytes=limit)
    exit_ = ended.wait()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024  # KiB
    written = 100 * 1024 * 1024 + 5
    assert (exit_.code, exit_.output_bytes, exit_.last_line) == (0, written, "done")
    assert exit_.dropped_bytes == written - limit
    assert limit <= family.log.stat().st_size <= limit + 200
    assert family.log.read_bytes().endswith(b"x\ndone\n")
    assert running.output_bytes == written


BYTES = {
    "invalid UTF-8": (b"\xff\xfe\x80 end\n", "\ufffd\ufffd\ufffd end"),
    "UTF-16": ("end\n".encode("utf-16-le"), "\ufffd"),
    "a lone surrogate": (b"\xed\xa0\x80 end\n", "\ufffd\ufffd\ufffd end"),
    "NUL and escapes": (b"\0\x1b[31mred\x1b[0m\x1b\n", "\ufffdred\ufffd"),
    "a line of 5 MB": (b"x" * 5_000_000, "x" * 299 + "…"),
    "no line end": ("naïve ✓".encode(), "naïve ✓"),
}


@pytest.mark.parametrize("name", BYTES)
def test_whatever_the_bytes_the_child_ends_well(family: Family, name: str) -> None:
    output, line = BYTES[name]
    (family.folder / "output").write_bytes(output)
    exit_ = family.run("cat", "output")
    assert (exit_.code, exit_.output_bytes, exit_.dropped_bytes) == (0, len(output), 0)
    assert exit_.last_line == line
    assert family.log.read_bytes() == output


def test_a_character_cut_at_any_read_is_whole(family: Family) -> None:
    source = """
import os, time
for byte in "a\\U0001f600b\\n".encode():
    os.write(1, bytes([byte]))
    time.sleep(0.01)
"""
    assert family.run(*python(source)).last_line == "a\U0001f600b"


def test_lines_are_told_while_it_runs(family: Family) -> None:
    before = time.monotonic()
    os.mkfifo(family.folder / "go")
    running, ended, lines = family.start("sh", "-c", "echo one; read line < go; echo two")
    lines.wait("one")
    assert running.last_line == "one"
    assert running.output_bytes == 4
    assert before <= running.started_at <= running.last_output_at <= time.monotonic()
    (family.folder / "go").write_text("\n")
    assert ended.wait().code == 0
    assert lines.lines == ["one", "two"]


def test_a_listener_that_fails_is_dropped_and_nothing_else(family: Family, caplog: pytest.LogCaptureFixture) -> None:
    def fail(line: str) -> None:
        raise ValueError(line)

    exit_ = family.run("sh", "-c", "echo one; sleep 0.1; echo two", on_line=fail)
    assert (exit_.code, exit_.last_line) == (0, "two")
    assert caplog.text.count("ValueError: ") == 1
    assert family.log.read_text() == "one\ntwo\n"


def test_a_full_disk_neither_blocks_nor_ends_the_child(family: Family) -> None:
    exit_ = family.run("sh", "-c", "yes | head -c 1000000; echo end", log=Path("/dev/full"))
    assert (exit_.code, exit_.output_bytes, exit_.dropped_bytes, exit_.last_line) == (0, 1_000_004, 1_000_004, "end")


# Many at once, and races.


def test_hundreds_of_quick_children_leave_no_zombie_and_no_descriptor(family: Family) -> None:
    family.run("true")
    before = descriptors()
    reports: list[list[Ended]] = [[] for _ in range(4)]

    def spawn(mine: list[Ended]) -> None:
        for number in range(50):
            mine.append(Ended())
            family.watcher.spawn(family.child("sh", "-c", f"exit {number}"), mine[-1])

    threads = [threading.Thread(target=spawn, args=(mine,)) for mine in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = [[ended.wait().code for ended in mine] for mine in reports]
    assert codes == [list(range(50))] * 4
    assert all(len(ended.exits) == 1 for mine in reports for ended in mine)
    assert zombies() == []
    assert descriptors() == before


def test_children_start_beside_threads_that_are_busy_and_hold_locks(family: Family) -> None:
    """A child that forked with a lock held elsewhere would hang before it becomes the command."""
    over = threading.Event()
    journal = logging.getLogger("test.busy")
    journal.addHandler(logging.StreamHandler(io.StringIO()))
    journal.propagate = False

    def busy() -> None:
        while not over.is_set():
            journal.warning("%s", "x" * 100)

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        reports = [Ended() for _ in range(30)]
        for ended in reports:
            family.watcher.spawn(family.child("true"), ended)
        assert [ended.wait().code for ended in reports] == [0] * 30
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_how_a_program_of_many_threads_was_killed_is_known(family: Family) -> None:
    """Its first thread is gone before the others are; only then can it be reaped."""
    source = """
import threading
for _ in range(50):
    threading.Thread(target=threading.Event().wait).start()
print("ready", flush=True)
"""
    for _ in range(10):
        running, ended, lines = family.start(*python(source))
        lines.wait("ready")
        running.kill()
        assert ended.wait().signal == signal.SIGKILL


@pytest.mark.parametrize("seed", range(3))
def test_stopping_killing_and_ending_by_itself_race_to_one_report(family: Family, seed: int) -> None:
    dice = random.Random(seed)
    started = []
    for _ in range(30):
        ended = Ended()
        life = dice.choice(["0", "0.01", "0.03", "1000"])
        running = family.watcher.spawn(family.child("sh", "-c", f"sleep 1000 & sleep {life}"), ended)
        stop = functools.partial(running.stop, dice.choice([0.0, 0.02]))
        orders: list[Callable[[], None]] = [stop, running.kill, running.kill]
        dice.shuffle(orders)
        started.append((ended, orders))

    def give(position: int) -> None:
        for _, orders in started:
            orders[position]()

    threads = [threading.Thread(target=give, args=(position,)) for position in range(3)]
    for thread in threads:
        thread.start()
    exits = [ended.wait() for ended, _ in started]
    for thread in threads:
        thread.join()
    assert family.run("true").code == 0
    for ended, exit_ in zip((ended for ended, _ in started), exits, strict=True):
        assert ended.exits == [exit_]
        assert exit_.code == 0 or exit_.signal in (signal.SIGTERM, signal.SIGKILL)
        assert exit_.stopped or exit_.code == 0
    assert family.left() == []
    assert zombies() == []


# What can't be started.


@pytest.mark.parametrize(
    ("argv", "fields", "number"),
    [
        (("no-such-command-at-all",), {}, errno.ENOENT),
        (("./text",), {}, errno.EACCES),
        (("./garbage",), {}, errno.ENOEXEC),
        (("true",), {"cwd": Path("/no/such/folder")}, errno.ENOENT),
        (("echo", "a\0b"), {}, errno.EINVAL),
        (("echo", "\ud800"), {}, errno.EINVAL),
        (("echo", *(["x" * 100_000] * 100)), {}, errno.E2BIG),
        (("true",), {"log": Path("/dev/null/log")}, errno.ENOTDIR),
    ],
    ids=["not found", "not executable", "no program", "no folder", "NUL", "surrogate", "too long", "no log"],
)
def test_what_can_t_be_started_says_so_and_leaves_nothing_open(
    family: Family, argv: tuple[str, ...], fields: dict[str, object], number: int
) -> None:
    (family.folder / "text").write_text("hello")
    (family.folder / "garbage").write_bytes(b"\x01\x02\x03")
    (family.folder / "garbage").chmod(0o755)
    ended, before = Ended(), descriptors()
    with pytest.raises(OSError) as caught:
        family.watcher.spawn(family.child(*argv, **fields), ended)
    assert caught.value.errno == number
    assert descriptors() == before
    assert family.run("true").code == 0
    assert ended.exits == []


def test_a_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="argv is empty"):
        Child((), tmp_path, {}, tmp_path / "log")


# The watcher.


def test_it_takes_children_only_between_start_and_stop(tmp_path: Path) -> None:
    watcher = ProcessWatcher()
    family = Family(watcher, tmp_path)
    with pytest.raises(RuntimeError, match="start"):
        family.run("true")
    watcher.start()
    assert family.run("true").code == 0
    with pytest.raises(RuntimeError):
        watcher.start()
    watcher.stop()
    watcher.stop()
    with pytest.raises(RuntimeError, match="start"):
        family.run("true")
    assert not [thread for thread in threading.enumerate() if thread.name == "dispatch-processes"]


def test_stopping_it_with_kill_reports_every_exit_first(tmp_path: Path) -> None:
    watcher = ProcessWatcher()
    watcher.start()
    family = Family(watcher, tmp_path)
    started = [family.start("sh", "-c", IGNORES_SIGTERM) for _ in range(3)]
    watcher.stop(kill=True)
    assert [[exit_.signal for exit_ in ended.exits] for _, ended, _ in started] == [[signal.SIGKILL]] * 3
    assert family.left() == []


def test_a_callback_may_start_the_next_one_and_stop_the_watcher(tmp_path: Path) -> None:
    watcher = ProcessWatcher()
    watcher.start()
    family = Family(watcher, tmp_path)
    finished = threading.Event()

    def last(exit_: Exit) -> None:
        watcher.stop(kill=True)
        finished.set()

    watcher.spawn(family.child("true"), lambda exit_: void(watcher.spawn(family.child("true"), last)))
    assert finished.wait(LIMIT_S)
    watcher.stop()


def void(_: object) -> None:
    return


def test_a_callback_that_fails_harms_nobody(family: Family, caplog: pytest.LogCaptureFixture) -> None:
    def fail(exit_: Exit) -> None:
        raise ValueError("not today")

    with caplog.at_level(logging.ERROR):
        family.watcher.spawn(family.child("true"), fail)
        assert family.run("sh", "-c", "sleep 0.2; exit 8").code == 8
        eventually(lambda: "not today" in caplog.text, "the failure is logged")


def test_a_child_may_be_started_from_another_event_loop(family: Family) -> None:
    ended = Ended()

    async def spawn() -> None:
        family.watcher.spawn(family.child("sh", "-c", "echo hi; exit 2"), ended)

    trio.run(spawn)
    exit_ = ended.wait()
    assert (exit_.code, exit_.last_line) == (2, "hi")


def test_tokens_are_found_whole(family: Family) -> None:
    running, ended, lines = family.start("sh", "-c", "echo ready; exec sleep 1000")
    lines.wait("ready")
    (token,) = family.tokens
    assert find_by_token(token) == [running.pid]
    assert find_by_token(token[:-1]) == find_by_token("") == []
    running.kill()
    ended.wait()
