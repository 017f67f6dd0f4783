"""How a command ends: its exit status, and one line on stderr for each thing that went wrong.

Statuses: 0 done; 1 a run whose plan has not merged as a whole; 2 a mistake in what was asked for, or something in its
way (plan, repository, store); 70 a defect of this program, whose traceback goes to a file; 128 + n ended by signal n.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import shlex
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import typer

DONE, INCOMPLETE, REFUSED, DEFECT = 0, 1, 2, 70
SIGNALED = 128
PROBLEMS = 20  #: of a plan file that are told, one a line
INTERRUPTED, PIPE_BROKEN = SIGNALED + 2, SIGNALED + 13
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

# What a misused command line raises. Typer shows one of its leaves, but neither it nor where it lives.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class RefusedError(Exception):
    """What the command line itself refuses. The message is one line that says the way out."""


class Interrupted(KeyboardInterrupt):
    """A signal ended the command before there was anything to bring to an end."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


def ended(command: Callable[[], int | None]) -> int:
    """Run a command and tell its exit status; whatever it raises has become a line on stderr."""
    try:
        status = command() or DONE
        sys.stdout.flush()
    except Interrupted as interrupted:
        return SIGNALED + interrupted.signal_number
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as left:  # what typer makes of a broken pipe
        if not isinstance(left.__context__, BrokenPipeError):
            raise
        return PIPE_BROKEN
    except Exception as error:  # noqa: BLE001 - the program's outermost door
        return _failed(error)
    return status


def _failed(error: Exception) -> int:
    """The exit status for an error, told on stderr unless it is that nobody reads stdout any more."""
    reached = flushed()
    gone = isinstance(error, OSError) and error.errno == errno.EIO  # a terminal's, unless stdout can be written to
    if isinstance(error, BrokenPipeError) or (gone and not reached):
        return PIPE_BROKEN
    status, lines = _meaning(error)
    for line in lines:
        complain(line)
    return status


def complain(line: str) -> None:
    """One line on stderr, if there is anybody to read it."""
    from harness.text import sanitize

    with contextlib.suppress(OSError):
        sys.stderr.write(f"error: {sanitize(line, 2000)}\n")
        sys.stderr.flush()


def _meaning(error: Exception) -> tuple[int, tuple[str, ...]]:
    """The status an error ends the program with, and what to say: a line for each thing that is wrong."""
    from dispatch.errors import DispatchError
    from dispatch.plans import PlanFileError
    from harness.fleet.errors import FleetError
    from harness.local.errors import LocalHostError

    if isinstance(error, UsageError):
        return REFUSED, (_usage(error),)
    if isinstance(error, PlanFileError):
        more = len(error.problems) - PROBLEMS
        return REFUSED, (*error.problems[:PROBLEMS], *([f"{error.path}: and {more} more"] if more > 0 else ()))
    if isinstance(error, DispatchError | LocalHostError | RefusedError):
        return REFUSED, (str(error),)
    if isinstance(error, FleetError):
        return REFUSED, _fleet_lines(error)
    if isinstance(error, OSError) and error.errno in FULL:
        return REFUSED, (f"{error.filename or 'the output'} can't be written: {error.strerror}; make room there",)
    if isinstance(error, FileNotFoundError) and _is_nowhere():
        return REFUSED, ("the folder you are in is not there any more; go to one that is with: cd",)
    return DEFECT, (f"{type(error).__name__}: {error}; {_kept(error)}",)


def _fleet_lines(error: Exception) -> tuple[str, ...]:
    """What the fleet says names no server, no user and no file: logs of workers are read by many."""
    from harness.fleet.errors import NotReadyError
    from harness.fleet.privacy import Redactor

    redactor = Redactor.of(os.environ)
    lines = error.problems if isinstance(error, NotReadyError) else (str(error),)
    return tuple(redactor.redacted(each) for each in lines)


def _is_nowhere() -> bool:
    """Whether the working directory has been removed."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _usage(error: Exception) -> str:
    """What is wrong with the command line, and which help says how it is right."""
    message: str = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "slice-dispatch"
    return f"{message.rstrip('.')}; see: {command} --help"


def _kept(error: Exception) -> str:
    """Write the traceback to a file; says where it is."""
    import platformdirs

    folder = Path(platformdirs.user_state_path("slice-dispatch")) / "crashes"
    path = folder / f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}.txt"
    text = "".join(traceback.format_exception(error))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(f"{shlex.join(sys.argv)}\n\n{text}", encoding="utf-8", errors="replace")
    except OSError as problem:
        return f"its traceback can't be kept ({problem})"
    return f"this is a defect; its traceback is in {path}"


def flushed() -> bool:
    """Write out what is buffered of stdout; False if nobody takes it (a closed pipe, a terminal that is gone).

    It then goes nowhere, so that it doesn't fail once more when the interpreter ends.
    """
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return False
    return True
