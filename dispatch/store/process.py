"""Who owns a claim, and whether that process still lives."""

from __future__ import annotations

import enum
import os
import secrets
from pathlib import Path

import attrs

from harness.procfs import boot_id, stat_of


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
    stat = stat_of(os.getpid())
    return Owner(
        token=secrets.token_hex(16),
        pid=os.getpid(),
        started=stat.start_ticks if stat is not None else 0,
        boot=boot_id(),
        pid_namespace=_pid_namespace(),
    )


def presence_of(owner: Owner) -> Presence:
    """Whether `owner`'s process still runs, as far as this process can see."""
    here = (boot_id(), _pid_namespace())
    if "" in here or here != (owner.boot, owner.pid_namespace):
        return Presence.UNKNOWN
    import psutil  # not above: it takes long to load, and no other process is ever asked about in most runs

    if not psutil.pid_exists(owner.pid):
        return Presence.GONE
    stat = stat_of(owner.pid)
    if stat is None:  # it ended this moment, or /proc hides it from us
        return Presence.UNKNOWN
    return Presence.GONE if stat.ended or stat.start_ticks != owner.started else Presence.ALIVE


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
