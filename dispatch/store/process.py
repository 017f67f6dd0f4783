"""Who owns a claim, and whether that process still lives."""

from __future__ import annotations

import enum
import os
import secrets
from pathlib import Path

import attrs


@attrs.frozen
class Owner:
    """One claim's owner. `token` is random and decides; the rest serves to learn that its process is gone.

    `started` counts clock ticks from the boot to the start of the process, so that a pid used again is told apart.
    `boot` and `pid_namespace` say in which machine's run, and in which container, the pid means anything; either may
    be empty where the system doesn't tell.
    """

    token: str
    pid: int
    started: int
    boot: str
    pid_namespace: str


class Presence(enum.Enum):
    """What can be known from here about a process."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"  #: another machine, another container, or another boot


def this_process() -> Owner:
    """The calling process, with a token of its own for each call."""
    pid = os.getpid()
    return Owner(secrets.token_hex(16), pid, _start_ticks(pid) or 0, _boot_id(), _pid_namespace())


def presence_of(owner: Owner) -> Presence:
    """Whether `owner`'s process still runs, as far as this process can see."""
    here = (_boot_id(), _pid_namespace())
    if "" in here or here != (owner.boot, owner.pid_namespace):
        return Presence.UNKNOWN
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return Presence.GONE
    except PermissionError:
        pass  # it lives, as somebody else's; its start may still be readable
    ticks = _start_ticks(owner.pid)
    if ticks is None:
        return Presence.UNKNOWN
    return Presence.ALIVE if ticks == owner.started else Presence.GONE


def _start_ticks(pid: int) -> int | None:
    """None if the process can't be read; -1 if it is dead and only waits to be reaped.

    Source: proc(5), /proc/pid/stat: the state is the third field and the start the 22nd; the second, the command in
    parentheses, may hold spaces and parentheses itself.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
