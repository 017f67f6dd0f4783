"""An interrupt at a moment when nothing has begun, or all is over, ends the program without a word."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.e2e.desk import Desk

# The program, interrupted where it looks for a module for the first time; or at the interpreter's end.
PROGRAM = """
import atexit, os, runpy, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)
moment = sys.argv.pop(1)

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Tripwire:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            sys.meta_path.remove(self)
            interrupt()

if moment == "exit":
    atexit.register(interrupt)
else:
    sys.meta_path.insert(0, Tripwire())
runpy.run_module("dispatch", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("moment", ["dispatch.cli", "typer", "dispatch.cli.run", "dispatch.store", "rich", "exit"])
def test_an_interrupt_while_it_starts_or_ends_leaves_no_traceback(desk: Desk, moment: str) -> None:
    plan = desk.plan('[slices.a]\ncommand = ["true"]\n')
    done = subprocess.run(
        (sys.executable, "-c", PROGRAM, moment, "plan", str(plan)),
        cwd=desk.repo,
        env=desk.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT)  # which are the same to a shell
