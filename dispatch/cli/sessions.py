"""Where the sessions of a run go: onto this machine, or onto the fleet that the environment names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from harness import LocalSessionHost, SessionHost
from harness.local import RunningSession
from harness.local.git import Git
from harness.local.repository import locate

FLEET_PLACES = 16  #: turns at once, unless the plan or the command line says otherwise: the queue holds what waits


class Binds(Protocol):
    """What a graph is bound to: a repository, and a branch of it."""

    @property
    def main(self) -> str: ...

    def bind(self, graph_id: str) -> None: ...

    def bound(self, graph_id: str) -> str | None: ...


class Sessions(SessionHost, Binds, Protocol):
    """What a run needs of its host."""

    def running(self) -> Sequence[RunningSession]: ...

    def log_path(self, graph_id: str, slice_id: str, attempt: int) -> Path: ...

    def close(self, timeout: float = ...) -> bool: ...


@contextlib.contextmanager
def sessions_of(repository: Path, main: str | None, *, fleet: bool) -> Iterator[Sessions]:
    """The host of a run, which closes it before the block is left. Raises what the fleet or the repository refuses."""
    if not fleet:
        yield LocalSessionHost(repository, main=main)
        return
    from harness.fleet.errors import NotReadyError
    from harness.fleet.host import FleetSessionHost
    from harness.fleet.looking import naming_authority, naming_transport
    from harness.fleet.opening import open_fleet
    from harness.fleet.settings import FleetSettings, problems

    if wrong := problems(os.environ):
        raise NotReadyError([str(problem) for problem in wrong])
    remote = remote_of(repository, os.environ)
    with contextlib.closing(open_fleet(FleetSettings.of(os.environ))) as opened:
        with naming_authority(opened.settings):  # else nobody would hear that it can't be used before something waits
            opened.authority.overtaken(1)
        with naming_transport(opened.settings):
            opened.transport.depth()
        local = LocalSessionHost(repository, main=main)
        yield FleetSessionHost(local, repository, remote, opened.queue, opened.authority)


def remote_of(repository: Path, environ: Mapping[str, str]) -> str:
    """Through which repository commits pass: the one that the environment names, else the remote `origin`."""
    from harness.fleet.clone import REMOTE, checked_remote
    from harness.fleet.errors import InvalidSettingError

    if environ.get(REMOTE):
        return checked_remote(environ[REMOTE])
    common, _ = locate(repository)
    if Git(common, {"GIT_DIR": str(common)})("config", "--get", "remote.origin.url", ok=(0, 1)).line:
        return "origin"
    raise InvalidSettingError(
        REMOTE, "is not set, and this repository has no remote 'origin'; name the one that workers push to"
    )
