"""A SQLite file of ours: how it is made, opened and brought up to date, and what its errors mean.

A connection commits by hand (`isolation_level=None`); each setting that durability rests on is read back, because
SQLite answers a refused PRAGMA with silence.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic

import attrs

from harness.database.filesystem import network_type
from harness.database.killpoint import killpoint
from harness.database.terms import E, Terms

BUSY_TIMEOUT_S = 1.0  #: how long a statement waits for another program's lock
OPENING_TIMEOUT_S = 10.0  #: the same while a file is opened, when others may be making it
WAL_LIMIT_BYTES = 16 * 2**20  #: what is kept of a write-ahead log that grew beyond it, once it has been copied back
_SETTINGS: dict[str, str | int] = {
    "journal_mode": "wal",
    "synchronous": 2,  # FULL: a commit is on the disk when it returns
    "foreign_keys": 1,
    "journal_size_limit": WAL_LIMIT_BYTES,
    "cache_size": -16_000,  # KiB, so that a transaction of 100,000 rows is not written twice
}
_inherited: set[Path] = set()  #: files that this process's parent had open when it forked


class _Connection(sqlite3.Connection):
    """Open for writing on the file `path`."""

    path: Path

    def close(self) -> None:
        _open.discard(self)
        if self.path not in _inherited:
            super().close()


_open: weakref.WeakSet[_Connection] = weakref.WeakSet()


@attrs.frozen
class FileKind(Generic[E]):
    """What sets one kind of file apart, and all that is done to files of that kind.

    `application_id` marks them, `migrations` holds the statements of each, as `queries.migrations` gives them. Paths
    are absolute, and everything raises in the `terms`. The rest is words of messages: `name` is what the file is to its
    user ("store"); `advice` says what to do about one that isn't there, `upgrade` about an older one, and `orphan` is
    all that is said of a row that was written without the one it belongs to.
    """

    application_id: int
    migrations: Sequence[Sequence[str]]
    terms: Terms[E]
    name: str
    advice: str
    upgrade: str
    orphan: str

    def connect(self, path: Path, network: Callable[[Path], str] = network_type) -> sqlite3.Connection:
        """Open the file at `path` for writing; make it, its folder and its tables if they are missing.

        `network` tells the type of the network file system a path is on, if it is on one.
        """
        self._refuse_unusable(path, network)
        self._make(path)
        try:
            connection = sqlite3.connect(
                path, OPENING_TIMEOUT_S, isolation_level=None, check_same_thread=False, factory=_Connection
            )
        except sqlite3.Error as error:
            raise self.meaning(error, path) from error
        connection.path = path
        _open.add(connection)
        with self._closing_on_error(connection, path):
            version = self._version(connection, path)  # before anything is set: a stranger's file stays as it is
            for name, value in _SETTINGS.items():
                self.insist(connection, path, name, value)
            if version < len(self.migrations):
                self._migrate(connection, path)
            self.insist(connection, path, "busy_timeout", round(BUSY_TIMEOUT_S * 1000))
        return connection

    def connect_to_read(self, path: Path) -> sqlite3.Connection:
        """Open the file at `path` for reading alone. A missing one is refused, and stays missing."""
        self._refuse_unusable(path, network_type)
        if not path.exists():
            raise self.terms.error(f"there is no {self.name} at {path}; {self.advice}")
        uri = f"{path.as_uri()}?mode=ro"
        try:
            connection = sqlite3.connect(
                uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self.meaning(error, path) from error
        with self._closing_on_error(connection, path):
            version = self._version(connection, path)
            if version == 0:
                raise self.terms.error(f"the {self.name} at {path} is empty; {self.advice}")
            if version < len(self.migrations):
                raise self.terms.error(f"{path} was made by an older version; {self.upgrade}")
        return connection

    def meaning(self, error: sqlite3.Error, path: Path) -> E:
        """What `error` means to the caller, by its primary result code. Source: sqlite.org/rescode.html."""
        refused, unavailable, elsewhere = self.terms.error, self.terms.unavailable, f"name another {self.name}"
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
                return unavailable(f"{path} is locked by another program; end that one, or wait for it")
            case sqlite3.SQLITE_FULL:
                return unavailable(f"the disk is full: {path} can't grow; free some space")
            case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_NOMEM:
                return unavailable(f"{path} can't be read or written ({error}); check the disk and its free space")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                return refused(f"{path} is read-only; make the file and its folder writable, or {elsewhere}")
            case sqlite3.SQLITE_CANTOPEN:
                return refused(
                    f"{path} can't be opened; make the file and its folder readable and writable, or {elsewhere}"
                )
            case sqlite3.SQLITE_NOTADB:
                return refused(f"{path} is not a SQLite database; move it away, or {elsewhere}")
            case sqlite3.SQLITE_CORRUPT:
                return refused(f"{path} is damaged ({error}); move it away, or restore it from a backup")
            case sqlite3.SQLITE_CONSTRAINT if "FOREIGN KEY" in str(error):
                return refused(self.orphan)
            case _:
                return refused(f"{path} can't be used: {error}")

    def insist(self, connection: sqlite3.Connection, path: Path, name: str, value: str | int) -> None:
        """Set and read back. Refuses the file if SQLite keeps something else."""
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
        (answer,) = connection.execute(f"PRAGMA {name}").fetchone()
        if answer != value:
            raise self.terms.error(
                f"{path}: SQLite refuses {name} = {value} and keeps {answer}; name a path on a local disk"
            )

    def refuse_after_fork(self, path: Path) -> None:
        """Refuses a file that the parent had open: a new connection would be no better than the old one.

        SQLite keeps count of its locks by process, and takes the parent's, which the child doesn't have, for its own.
        """
        if path in _inherited:
            raise self.terms.error(
                f"{path} was open when this process was forked; use it from the parent, or from a new program"
            )

    def _refuse_unusable(self, path: Path, network: Callable[[Path], str]) -> None:
        self.refuse_after_fork(path)
        if path.is_dir():
            raise self.terms.error(f"{path} is a folder; name a file in it")
        shared = network(path)
        if shared:
            raise self.terms.error(
                f"{path} lies on a network file system ({shared}), which damages it; name a local path"
            )

    def _make(self, path: Path) -> None:
        """The file is made here, for its owner alone, rather than by SQLite, which would go by the umask.

        `mknod` doesn't open it. To open and close a database beside SQLite drops every lock this process has on it.
        """
        refused, parent = self.terms.error, path.parent
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mknod(path, stat.S_IFREG | 0o600)
                killpoint("sqlite.after-create")
        except (FileExistsError, NotADirectoryError) as error:
            raise refused(f"{parent} is not a folder; name another place for the {self.name}") from error
        except PermissionError as error:
            raise refused(f"{path} can't be made: {parent} is not writable; name another {self.name}") from error
        except OSError as error:
            raise self.terms.unavailable(f"{path} can't be made: {error.strerror}") from error

    def _version(self, connection: sqlite3.Connection, path: Path) -> int:
        """The schema's version; 0 for a file that holds nothing yet. Refuses a stranger's or a newer file."""
        application, version, tables = connection.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)"
            " FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if application != self.application_id and (application or version or tables):
            raise self.terms.error(f"{path} is a SQLite database of another program; name another {self.name}")
        newest = len(self.migrations)
        if version > newest:
            raise self.terms.error(
                f"{path} was written by a newer version (schema {version}, known here: {newest}); upgrade"
            )
        return int(version)

    def _migrate(self, connection: sqlite3.Connection, path: Path) -> None:
        """Under the write lock, so that of two processes one migrates and the other finds it done."""
        connection.execute("BEGIN IMMEDIATE")
        for statements in self.migrations[self._version(connection, path) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {len(self.migrations)}")
        killpoint("sqlite.before-migration-commit")
        connection.execute("COMMIT")
        killpoint("sqlite.after-migration-commit")

    @contextlib.contextmanager
    def _closing_on_error(self, connection: sqlite3.Connection, path: Path) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            connection.close()
            raise self.meaning(error, path) from error
        except BaseException:
            connection.close()
            raise


def identity(path: Path) -> tuple[int, int]:
    """Device and inode; (0, 0) for what isn't there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_dev, found.st_ino)


def _leave_to_the_parent() -> None:
    """In the child of a fork, see to it that no inherited connection is ever used or closed, not even at exit.

    SQLite would act on the parent's file by what it knew before the fork.
    """
    for connection in list(_open):
        _inherited.add(connection.path)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


os.register_at_fork(after_in_child=_leave_to_the_parent)
