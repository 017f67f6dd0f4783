"""The file of a SQLite store: how it is made, opened and brought up to date, and what its errors mean.

A connection commits by hand (`isolation_level=None`); each setting that durability rests on is read back, because
SQLite answers a refused PRAGMA with silence.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from dispatch.errors import DispatchError, StoreError, StoreUnavailableError
from dispatch.store.codec import ORPHANED_ATTEMPT
from dispatch.store.filesystem import network_type
from dispatch.store.killpoint import killpoint
from dispatch.store.queries import migrations

APPLICATION_ID = 0x51C3D15B  #: marks a SQLite file as one of ours
BUSY_TIMEOUT_S = 1.0  #: how long a statement waits for another program's lock
OPENING_TIMEOUT_S = 10.0  #: the same while a store is opened, when others may be making it
WAL_LIMIT_BYTES = 16 * 2**20  #: what is kept of a write-ahead log that grew beyond it, once it has been copied back
INHERITED: set[Path] = set()  #: files that this process's parent had open when it forked
_SETTINGS: dict[str, str | int] = {
    "journal_mode": "wal",
    "synchronous": 2,  # FULL: a commit is on the disk when it returns
    "foreign_keys": 1,
    "journal_size_limit": WAL_LIMIT_BYTES,
    "cache_size": -16_000,  # KiB, so that a batch of 100,000 slices is not written twice
}
_MIGRATIONS = migrations("sqlite")


def connect(path: Path, network: Callable[[Path], str] = network_type) -> sqlite3.Connection:
    """Open the store at `path` for writing; make it, its folder and its tables if they are missing.

    `network` tells the type of the network file system a path is on, if it is on one. Raises `StoreError` or
    `StoreUnavailableError`, each with one line that says what to do.
    """
    _refuse_unusable(path, network)
    _make(path)
    try:
        connection = sqlite3.connect(path, timeout=OPENING_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise meaning(error, path) from error
    with _closing_on_error(connection, path):
        version = _version(connection, path)  # before anything is set: a stranger's file stays as it is
        for name, value in _SETTINGS.items():
            insist(connection, path, name, value)
        if version < len(_MIGRATIONS):
            _migrate(connection, path)
        insist(connection, path, "busy_timeout", round(BUSY_TIMEOUT_S * 1000))
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open the store at `path` for reading alone. A missing one is a `StoreError`, and stays missing."""
    _refuse_unusable(path, network_type)
    if not path.exists():
        raise StoreError(f"there is no store at {path}; `run` a plan first, or name another store")
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    except sqlite3.Error as error:
        raise meaning(error, path) from error
    with _closing_on_error(connection, path):
        version = _version(connection, path)
        if version == 0:
            raise StoreError(f"the store at {path} is empty; `run` a plan first, or name another store")
        if version < len(_MIGRATIONS):
            raise StoreError(f"{path} was made by an older version; `run` a plan on it once to bring it up to date")
    return connection


def meaning(error: sqlite3.Error, path: Path) -> DispatchError:
    """What `error` means to the caller, by its primary result code. Source: sqlite.org/rescode.html."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return StoreUnavailableError(f"{path} is locked by another program; end that one, or wait for it")
        case sqlite3.SQLITE_FULL:
            return StoreUnavailableError(f"the disk is full: {path} can't grow; free some space")
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_NOMEM:
            return StoreUnavailableError(
                f"{path} can't be read or written ({error}); check the disk and its free space"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreError(f"{path} is read-only; make the file and its folder writable, or name another store")
        case sqlite3.SQLITE_CANTOPEN:
            return StoreError(
                f"{path} can't be opened; make the file and its folder readable and writable, or name another store"
            )
        case sqlite3.SQLITE_NOTADB:
            return StoreError(f"{path} is not a SQLite database; move it away, or name another store")
        case sqlite3.SQLITE_CORRUPT:
            return StoreError(f"{path} is damaged ({error}); move it away, or restore it from a backup")
        case sqlite3.SQLITE_CONSTRAINT if "FOREIGN KEY" in str(error):
            return StoreError(ORPHANED_ATTEMPT)
        case _:
            return StoreError(f"{path} can't be used: {error}")


def identity(path: Path) -> tuple[int, int]:
    """Device and inode; (0, 0) for what isn't there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_dev, found.st_ino)


def refuse_after_fork(path: Path) -> None:
    """Raises `StoreError` for a file that the parent had open: a new connection would be no better than the old one.

    SQLite keeps count of its locks by process, and takes the parent's, which the child doesn't have, for its own.
    """
    if path in INHERITED:
        raise StoreError(f"{path} was open when this process was forked; use it from the parent, or from a new program")


def _refuse_unusable(path: Path, network: Callable[[Path], str]) -> None:
    refuse_after_fork(path)
    if path.is_dir():
        raise StoreError(f"{path} is a folder; name a file in it")
    shared = network(path)
    if shared:
        raise StoreError(f"{path} lies on a network file system ({shared}), which damages it; name a local path")


def _make(path: Path) -> None:
    """The file is made here, for its owner alone, rather than by SQLite, which would go by the umask.

    `mknod` doesn't open it. To open and close a database beside SQLite drops every lock this process has on it.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mknod(path, stat.S_IFREG | 0o600)
            killpoint("sqlite.after-create")
    except (FileExistsError, NotADirectoryError) as error:
        raise StoreError(f"{path.parent} is not a folder; name another place for the store") from error
    except PermissionError as error:
        raise StoreError(f"{path} can't be made: {path.parent} is not writable; name another store") from error
    except OSError as error:
        raise StoreUnavailableError(f"{path} can't be made: {error.strerror}") from error


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema's version; 0 for a file that holds nothing yet. Raises for a stranger's or a newer file."""
    application, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreError(f"{path} is a SQLite database of another program; name another store")
    if version > len(_MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer version (schema {version}, known here: {len(_MIGRATIONS)}); upgrade"
        )
    return int(version)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Under the write lock, so that of two processes one migrates and the other finds it done."""
    connection.execute("BEGIN IMMEDIATE")
    for statements in _MIGRATIONS[_version(connection, path) :]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")
    killpoint("sqlite.before-migration-commit")
    connection.execute("COMMIT")
    killpoint("sqlite.after-migration-commit")


def insist(connection: sqlite3.Connection, path: Path, name: str, value: str | int) -> None:
    """Set and read back. Raises `StoreError` if SQLite keeps something else."""
    connection.execute(f"PRAGMA {name} = {value}").fetchall()
    (answer,) = connection.execute(f"PRAGMA {name}").fetchone()
    if answer != value:
        raise StoreError(f"{path}: SQLite refuses {name} = {value} and keeps {answer}; name a path on a local disk")


@contextlib.contextmanager
def _closing_on_error(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        connection.close()
        raise meaning(error, path) from error
    except BaseException:
        connection.close()
        raise
