"""How a session ends: what follows from an agent's exit, in phases and in words. Pure."""

from __future__ import annotations

import errno
import re
import signal

import attrs

from harness.local.process import Exit
from harness.session import Recipe, SessionPhase
from harness.text import sanitize

# A lack of processes, memory, descriptors or room: it may be over at the next attempt.
PASSING = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ETXTBSY}
)
TRY_LATER = 75  #: EX_TEMPFAIL of sysexits.h: the agent can't go on now
LINE_LIMIT = 400
CHECKPOINT_LIMIT = 16 * 1024
URL_LIMIT = 2048
NOTE = "It left this note:"
ADDRESS = re.compile(r"https?://[^/?#]")


@attrs.frozen
class Ending:
    """How a session ended. `detail` and `error` are one line; `resume`: the next attempt goes on from the kept work."""

    phase: SessionPhase
    detail: str = ""
    error: str = ""
    resume: bool = False
    pull_request_url: str = ""


MERGED = Ending(SessionPhase.MERGED)
NO_CHANGE = Ending(SessionPhase.MERGED, detail="no change")
STOPPED = Ending(SessionPhase.CANCELED, detail="stopped at a safepoint", resume=True)
LOST = Ending(SessionPhase.CLOSED, detail="the scheduler was ended while it ran", resume=True)


def closed(detail: str, *, resume: bool = False) -> Ending:
    """It ended without merging; another attempt may do better."""
    return Ending(SessionPhase.CLOSED, detail=sanitize(detail, LINE_LIMIT), resume=resume)


def failed(error: str) -> Ending:
    """It ended in a way that another attempt would not mend."""
    return Ending(SessionPhase.FAILED, error=sanitize(error, LINE_LIMIT))


def agent_ending(exit_: Exit, recipe: Recipe, pull_request_url: str, *, review: bool = False) -> Ending | None:
    """What the end of the agent means; None if its work is to be merged. `review`: it wants that looked at before.

    One that was asked to stop has stopped, whatever it says: it may leave with 0 at a safepoint, far from done.
    """
    if exit_.quiet:
        return closed(f"no output for {recipe.quiet_limit_s:g} s")
    if exit_.stopped:
        return STOPPED
    if pull_request_url:
        detail = f"its pull request waits for review: {pull_request_url}"
        return attrs.evolve(closed(detail), pull_request_url=pull_request_url)
    if exit_.code == 0:
        return closed("pull_request holds no address") if review else None
    return closed(exit_words(exit_), resume=exit_.code == TRY_LATER)


def verify_ending(exit_: Exit, recipe: Recipe) -> Ending | None:
    """What the end of the verify command means; None if it passed."""
    if exit_.quiet:
        return closed(f"verify failed: no output for {recipe.quiet_limit_s:g} s")
    if exit_.stopped:
        return STOPPED
    return None if exit_.code == 0 else closed(f"verify failed: {exit_words(exit_)}")


def spawn_ending(error: OSError, command: str, what: str) -> Ending:
    """What it means that a command can't be started."""
    match error:
        case FileNotFoundError():
            problem = f"{what} not found: {command!r}; {missing_command(command)}"
        case PermissionError():
            problem = f"{what} can't be executed: {command!r}; make it executable with: chmod +x"
            problem += "" if command.startswith("/") else ", and commit that"
        case OSError(errno=number) if number in PASSING:
            return closed(f"{what} can't be started now: {error.strerror}")
        case _:
            problem = f"{what} can't be started: {command!r}: {error.strerror or error}"
    return failed(problem)


def missing_command(command: str) -> str:
    """What to do about a command that isn't there, by where it was looked for."""
    if command.startswith("~"):
        return "~ is not expanded, as no shell reads it: write the full path"
    if command.startswith("/"):
        return "install it there"
    if "/" in command:
        return (
            "it is looked for in the worktree, where only committed files are: commit it, or name it by its full path"
        )
    return "it is looked for on PATH: install it, or name it by its full path"


def exit_words(exit_: Exit) -> str:
    """`exit 1: <its last line>`, `ended by SIGKILL: <its last line>`."""
    how = f"exit {exit_.code}" if exit_.signal is None else f"ended by {signal_name(exit_.signal)}"
    return f"{how}: {exit_.last_line}" if exit_.last_line else how


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def with_left_out(ending: Ending, left_out: str) -> str:
    """The detail of an ending, which says of a merge what it lacks."""
    if ending.phase is not SessionPhase.MERGED:
        return ending.detail
    return "; ".join(filter(None, (ending.detail, left_out)))


def checkpoint_of(ending: Ending, kept: str, said: str, left_out: str = "") -> str:
    """What the next attempt is told: how this one ended, where its work is, and what the agent itself left to say."""
    if ending.phase is SessionPhase.MERGED:
        return ""
    lines = [f"The previous attempt ended: {ending.detail or ending.error}."]
    if kept and ending.resume:
        lines.append(f"Its work is kept as {kept}; this attempt begins with it, merged with main, if the two agree.")
    elif kept:
        lines.append(f"Its work is kept as {kept}; this attempt begins from main without it.")
    if left_out:
        lines.append(f"Of its work was {left_out}.")
    if said:
        lines += [NOTE, said]
    return "\n".join(lines)


def note_in(checkpoint: str) -> str:
    """What the agent itself left to say, of what `checkpoint_of` made."""
    return checkpoint.partition(f"\n{NOTE}\n")[2]


def readable(text: bytes, limit: int = CHECKPOINT_LIMIT) -> str:
    """An agent's text of several lines, each of them printable, cut to `limit` bytes."""
    lines = text[:limit].decode("utf-8", errors="replace").split("\n")
    return "\n".join(sanitize(line, limit) for line in lines).strip("\n")


def is_url(text: str) -> bool:
    """Whether it can be shown and opened as the address of a pull request."""
    return bool(ADDRESS.match(text)) and text.isprintable() and " " not in text and len(text) <= URL_LIMIT


def last_url(text: str) -> str:
    """The last line that is an address, as of a program that tells what it did before; empty if none is."""
    return next(filter(is_url, map(str.strip, reversed(text.splitlines()))), "")
