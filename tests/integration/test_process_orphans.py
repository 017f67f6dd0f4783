"""What outlives a program that was killed, or forgot to stop its watcher, is found and ended, and nothing else is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from harness.local.orphans import ProcessMark, end_group, find_by_token, is_alive, mark_of
from tests.integration.family import LIMIT_S, eventually

ROOT = Path(__file__).parents[2]

# A program that starts one child with a watcher, says its mark once the child is ready, and does what it is told to.
PROGRAM = """
import json, os, sys, threading
from pathlib import Path
from harness.local.process import Child, ProcessWatcher
folder, token, script, then = Path(sys.argv[1]), *sys.argv[2:]
said = threading.Event()
watcher = ProcessWatcher()
watcher.start()
env = {**os.environ, "DISPATCH_SESSION": token}
child = Child(("bash", "-c", script), folder, env, folder / "log", on_line=lambda line: said.set())
exits, ended = [], threading.Event()
running = watcher.spawn(child, lambda exit_: (exits.append(exit_), ended.set()))
assert said.wait(60)
mark = running.mark
print(json.dumps([mark.pid, mark.start_ticks, mark.boot_id]), flush=True)
exec(then)
"""
TREE = "sleep 1000 & setsid sleep 1000 & (trap '' TERM; echo ready; while :; do sleep 0.05; done) & wait"


@attrs.frozen
class Program:
    """The program, and the child that it started."""

    process: subprocess.Popen[str]
    mark: ProcessMark


@attrs.define
class Stage:
    folder: Path
    token: str = attrs.field(factory=lambda: f"test-{uuid.uuid4().hex}")
    programs: list[subprocess.Popen[str]] = attrs.field(factory=list)

    def program(self, script: str, then: str, prelude: str = "") -> Program:
        argv = [sys.executable, "-c", prelude + PROGRAM, str(self.folder), self.token, script, then]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.programs.append(process)
        assert process.stdout is not None
        return Program(process, ProcessMark(*json.loads(first_line(process.stdout.fileno()))))

    def orphans_of_a_killed_program(self, script: str = TREE) -> ProcessMark:
        program = self.program(script, "sys.stdin.read()")
        program.process.kill()
        program.process.wait(LIMIT_S)
        return program.mark


def first_line(descriptor: int) -> bytes:
    """And not a byte more: `communicate` would not find it again."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, 1)
        assert piece, f"it ended after {line!r}"
        line += piece
    return line


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    for process in stage.programs:
        process.kill()
        process.communicate()
    end_group(ProcessMark(0, 0, ""), stage.token, grace_s=0.0)
    assert find_by_token(stage.token) == []


def test_the_tree_of_a_killed_program_is_ended(stage: Stage) -> None:
    mark = stage.orphans_of_a_killed_program()
    assert is_alive(mark)
    assert len(find_by_token(stage.token)) >= 4
    began = time.monotonic()
    end_group(mark, stage.token, grace_s=0.5)
    assert time.monotonic() - began >= 0.5  # one of them ignores SIGTERM
    assert find_by_token(stage.token) == []
    assert not is_alive(mark)
    end_group(mark, stage.token, grace_s=0.5)


def test_those_that_heed_sigterm_need_no_grace(stage: Stage) -> None:
    mark = stage.orphans_of_a_killed_program("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    log = stage.folder / "log"
    log.unlink()  # its pipe is broken; what it saves goes elsewhere
    end_group(mark, stage.token, grace_s=100 * LIMIT_S)
    assert find_by_token(stage.token) == []


def test_a_leader_that_is_suspended_is_ended(stage: Stage) -> None:
    mark = stage.orphans_of_a_killed_program("trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    os.killpg(mark.pid, signal.SIGSTOP)
    end_group(mark, stage.token, grace_s=100 * LIMIT_S)
    assert not is_alive(mark)


def test_without_its_leader_the_group_is_known_by_one_that_carries_the_token(stage: Stage) -> None:
    script = "env -i sleep 1000 & echo $! > plain; sleep 1000 & echo ready; wait"
    mark = stage.orphans_of_a_killed_program(script)
    plain = mark_of(int((stage.folder / "plain").read_text()))
    os.kill(mark.pid, signal.SIGKILL)
    eventually(lambda: not is_alive(mark), "the leader is gone")
    assert is_alive(plain)
    end_group(mark, stage.token, grace_s=5.0)
    assert find_by_token(stage.token) == []
    assert not is_alive(plain)


def test_without_leader_and_token_nothing_is_signalled(stage: Stage) -> None:
    env = {**os.environ, "DISPATCH_SESSION": stage.token}
    script = ["sh", "-c", "sleep 1000 & echo ready; wait"]
    with subprocess.Popen(script, env=env, start_new_session=True, stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None
        assert leader.stdout.readline() == b"ready\n"
        mark = mark_of(leader.pid)
        leader.kill()
    left = find_by_token(stage.token)
    end_group(mark, "another token", grace_s=0.0)
    end_group(mark, "", grace_s=0.0)
    assert find_by_token(stage.token) == left != []


@pytest.mark.parametrize(
    "change", [{"start_ticks": 1}, {"boot_id": "another boot"}], ids=["another start", "another boot"]
)
def test_a_pid_that_was_used_again_is_left_alone(stage: Stage, change: dict[str, object]) -> None:
    mark = stage.orphans_of_a_killed_program("sleep 1000 & echo ready; wait")
    left = find_by_token(stage.token)
    other = ProcessMark(**{**attrs.asdict(mark), **change})
    assert not is_alive(other)
    end_group(other, "another token", grace_s=0.0)
    assert is_alive(mark)
    assert find_by_token(stage.token) == left


def test_a_program_that_forgets_to_stop_the_watcher_exits_at_once_and_quietly(stage: Stage) -> None:
    program = stage.program(TREE, "pass")
    _, errors = program.process.communicate(timeout=LIMIT_S)
    assert (program.process.returncode, errors) == (0, "")
    assert is_alive(program.mark)
    end_group(program.mark, stage.token, grace_s=0.0)


def test_a_program_that_stops_the_watcher_leaves_its_children_alone_or_not(stage: Stage) -> None:
    program = stage.program(TREE, "watcher.stop()")
    _, errors = program.process.communicate(timeout=LIMIT_S)
    assert (program.process.returncode, errors) == (0, "")
    assert is_alive(program.mark)
    end_group(program.mark, stage.token, grace_s=0.0)


def test_after_the_watcher_was_stopped_a_child_can_still_be_signalled(stage: Stage) -> None:
    then = "watcher.stop(); running.stop(5); os.waitid(os.P_PID, running.pid, os.WEXITED); print(exits)"
    program = stage.program("echo ready; exec sleep 1000", then)
    output, errors = program.process.communicate(timeout=LIMIT_S)
    assert (output, errors) == ("[]\n", "")


def test_a_program_that_crashes_in_a_callback_s_thread_still_exits(stage: Stage) -> None:
    program = stage.program("echo ready; exec sleep 1000", "raise SystemExit(3)")
    _, errors = program.process.communicate(timeout=LIMIT_S)
    assert (program.process.returncode, errors) == (3, "")


WITHOUT_PIDFD = "import os\ndel os.pidfd_open\n"


def test_it_all_works_where_the_kernel_has_no_pidfd(stage: Stage) -> None:
    then = (
        "running.stop(0.3); ended.wait(60); watcher.stop(); print(exits[0].signal, exits[0].killed, exits[0].survivors)"
    )
    program = stage.program(TREE, then, prelude=WITHOUT_PIDFD)
    output, errors = program.process.communicate(timeout=LIMIT_S)
    assert (output, errors) == ("15 True ()\n", "")
    assert find_by_token(stage.token) == []


def test_orphans_are_ended_where_the_kernel_has_no_pidfd(stage: Stage) -> None:
    mark = stage.orphans_of_a_killed_program()
    source = (
        "import sys; from harness.local.orphans import *; end_group(ProcessMark(*eval(sys.argv[1])), sys.argv[2], 0.3)"
    )
    argv = [sys.executable, "-c", WITHOUT_PIDFD + source, repr(attrs.astuple(mark)), stage.token]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=LIMIT_S)
    assert find_by_token(stage.token) == []


def test_a_program_that_ignores_sigchld_is_told_so() -> None:
    source = """
import signal
from harness.local.process import ProcessWatcher
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
try:
    ProcessWatcher().start()
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert "SIGCHLD is ignored" in done.stdout
