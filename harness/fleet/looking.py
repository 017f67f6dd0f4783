"""Looking at a fleet without making one, and telling by its variable what can't be used.

A message of a file's says which, by its path, and no path is told to whoever reads a worker's log. So what can't be
used goes by the variable that names it, which is also what there is to change.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from harness.fleet.errors import FleetBrokenError, FleetUnavailableError
from harness.fleet.opening import open_authority
from harness.fleet.ports import Authority
from harness.fleet.settings import FleetSettings, default_uri

_SQLITE = "sqlite:///"
_DEFAULTS = ("state.db", "queue.db")


@contextlib.contextmanager
def authority_to_look_at(settings: FleetSettings) -> Iterator[Authority]:
    """The authority, if there is one: a file that is missing stays missing. Raises `FleetBrokenError`."""
    with naming_authority(settings):
        if is_missing(settings.state_db_uri):
            raise FleetBrokenError("there is none yet: a worker makes it, or whoever submits the first turn")
        with contextlib.closing(open_authority(settings)) as authority:
            yield authority


@contextlib.contextmanager
def naming_authority(settings: FleetSettings) -> Iterator[None]:
    """What can't be used within is the authority."""
    with _naming("STATE_DB_URI", settings.state_db_uri, ""):
        yield


@contextlib.contextmanager
def naming_transport(settings: FleetSettings) -> Iterator[None]:
    """What can't be used within is the transport."""
    if settings.backend == "kafka":
        with _naming(
            "KAFKA_BOOTSTRAP_SERVERS", "", "; see that it names brokers that run, and can be reached from here"
        ):
            yield
    else:
        with _naming(queue_variable(settings), settings.queue_uri, ""):
            yield


def queue_variable(settings: FleetSettings) -> str:
    """What names the transport's database: the authority's variable, where that is the same one."""
    return "STATE_DB_URI" if settings.is_one_database else "TASK_QUEUE_URI"


@contextlib.contextmanager
def _naming(variable: str, uri: str, advice: str) -> Iterator[None]:
    """A refusal of Kafka's says itself what to do, unless it is that nobody answers."""
    about = label(variable, uri)
    try:
        yield
    except FleetUnavailableError as problem:
        raise FleetUnavailableError(f"{about}: {_without_path(problem, uri)}{advice}") from problem
    except FleetBrokenError as problem:
        raise FleetBrokenError(f"{about}: {_without_path(problem, uri)}") from problem


def label(variable: str, uri: str) -> str:
    """The variable, and what it stands for where it is not set."""
    return f"{variable} (unset: a file in the user's data folder)" if uri in map(default_uri, _DEFAULTS) else variable


def _without_path(problem: Exception, uri: str) -> str:
    """Its text, in which a file and its folder are called that."""
    text = str(problem)
    if not uri.startswith(_SQLITE):
        return text
    path = Path(uri.removeprefix(_SQLITE))
    text = text.replace(str(path), "its file")
    if path.parent != Path(path.anchor):
        text = text.replace(str(path.parent), "its folder")
    return text if ";" in text else f"{text}; name a file in a folder on a local disk that can be written to"


def is_missing(uri: str) -> bool:
    """Whether it names a file that is not there, or holds nothing yet."""
    path = uri.removeprefix(_SQLITE)
    if path == uri:
        return False
    found = _found(Path(path))
    return found is None or (stat.S_ISREG(found.st_mode) and found.st_size == 0)


def why_not_made(uri: str) -> str:
    """Of a file that is missing: what is in the way of making it; nothing if nothing is."""
    folder = Path(uri.removeprefix(_SQLITE)).parent
    while (found := _found(folder)) is None and folder != folder.parent:
        folder = folder.parent
    if found is None or not stat.S_ISDIR(found.st_mode):
        return "its file can't be made: what should be a folder is none"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "its file can't be made: its folder is not writable"
    if os.statvfs(folder).f_blocks == 0:  # a file system without files of ours, such as /proc
        return "its file can't be made: there can be no files where it should be"
    return ""


def _found(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
