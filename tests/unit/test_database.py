"""A database is refused in the terms and the words of whoever uses it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs
import psycopg
import pytest

from harness.database.postgres import locate, lost_connection, no_connection, refused_statement
from harness.database.sqlite_file import FileKind
from harness.database.terms import Terms


class LedgerError(Exception):
    """The base of both."""


class UnusableError(LedgerError):
    pass


class AwayError(LedgerError):
    pass


TERMS: Terms[LedgerError] = Terms(UnusableError, AwayError)
TABLES = "CREATE TABLE account (id INTEGER PRIMARY KEY)", "CREATE TABLE entry (account INTEGER REFERENCES account)"
LEDGER = FileKind(
    application_id=0x1ED6E4,
    migrations=[[TABLES[0]], [TABLES[1]]],
    terms=TERMS,
    name="ledger",
    advice="open an account first",
    upgrade="book once",
    orphan="there is no such account",
)
URL = "postgresql://host/db"
#: Forks with one file open and one closed again, and tells what either process can do with them.
FORKING = """
import os, sys
from pathlib import Path
from tests.unit.test_database import LEDGER, UnusableError

path, other = Path(sys.argv[1]), Path(sys.argv[1] + "-closed")
inherited = LEDGER.connect(path)
closed = LEDGER.connect(other)
closed.close()
if os.fork() == 0:
    inherited.close()
    said = ["open" if inherited.execute("SELECT 1").fetchone() else ""]
    for file in (path, other):
        try:
            LEDGER.connect(file).close()
            said.append("taken")
        except UnusableError:
            said.append("refused")
    print(*said)
    sys.exit()
assert os.wait()[1] == 0
inherited.execute("INSERT INTO account VALUES (1)")
print("written", *inherited.execute("PRAGMA integrity_check").fetchone())
inherited.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "ledger.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(LEDGER.connect(path)) as connection:
        yield connection


def refusal(path: Path, kind: FileKind[LedgerError] = LEDGER) -> str:
    with pytest.raises(UnusableError) as refused:
        kind.connect(path)
    return str(refused.value)


def reading_refusal(path: Path) -> str:
    with pytest.raises(UnusableError) as refused:
        LEDGER.connect_to_read(path)
    return str(refused.value)


def test_a_file_is_made_with_the_marks_and_tables_of_its_kind(connection: sqlite3.Connection, path: Path) -> None:
    marks = connection.execute("SELECT * FROM pragma_application_id, pragma_user_version").fetchone()
    assert marks == (LEDGER.application_id, 2)
    assert path.stat().st_mode & 0o777 == 0o600
    connection.execute("INSERT INTO account VALUES (1)")
    connection.execute("INSERT INTO entry VALUES (1)")


def test_a_missing_file_stays_missing_for_a_reader(path: Path) -> None:
    assert reading_refusal(path) == f"there is no ledger at {path}; open an account first"
    assert not path.exists()


def test_an_empty_file_is_nothing_to_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.touch()
    assert reading_refusal(path) == f"the ledger at {path} is empty; open an account first"


def test_an_older_file_is_not_read_but_brought_up_to_date_by_a_writer(path: Path) -> None:
    attrs.evolve(LEDGER, migrations=LEDGER.migrations[:1]).connect(path).close()
    assert reading_refusal(path) == f"{path} was made by an older version; book once"
    LEDGER.connect(path).close()
    with closing(LEDGER.connect_to_read(path)) as reader:
        assert reader.execute("SELECT count(*) FROM entry").fetchone() == (0,)


def test_a_newer_file_is_refused(connection: sqlite3.Connection, path: Path) -> None:
    older = attrs.evolve(LEDGER, migrations=LEDGER.migrations[:1])
    assert refusal(path, older) == f"{path} was written by a newer version (schema 2, known here: 1); upgrade"


def test_a_file_of_another_kind_is_refused(connection: sqlite3.Connection, path: Path) -> None:
    other = attrs.evolve(LEDGER, application_id=7, name="diary")
    assert refusal(path, other) == f"{path} is a SQLite database of another program; name another diary"


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"Dear ledger, " * 1000)
    assert refusal(path) == f"{path} is not a SQLite database; move it away, or name another ledger"


def test_a_place_in_a_file_is_refused(connection: sqlite3.Connection, path: Path) -> None:
    assert refusal(path / "x.db") == f"{path} is not a folder; name another place for the ledger"


def test_a_row_without_the_one_it_belongs_to_is_an_orphan(connection: sqlite3.Connection, path: Path) -> None:
    with pytest.raises(sqlite3.IntegrityError) as failed:
        connection.execute("INSERT INTO entry VALUES (5)")
    meant = LEDGER.meaning(failed.value, path)
    assert (type(meant), str(meant)) == (UnusableError, "there is no such account")


def test_a_locked_file_is_away_for_now(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    with closing(sqlite3.connect(path, timeout=0)) as other, pytest.raises(sqlite3.OperationalError) as failed:
        other.execute("BEGIN IMMEDIATE")
    assert isinstance(LEDGER.meaning(failed.value, path), AwayError)


def test_a_forked_child_leaves_the_file_to_its_parent(path: Path) -> None:
    """It is refused a connection to what was open, and can't close what it inherited."""
    words, root = (sys.executable, "-c", FORKING, path), Path(__file__).parents[2]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "open refused taken\nwritten ok\n", "")


@pytest.mark.parametrize("given", ["postgresql://me:pa@ss@host/db", "postgresql://me:a:b@host/db", "host='open"])
def test_a_connection_string_that_is_not_meant_so_is_refused(given: str) -> None:
    with pytest.raises(UnusableError, match="the connection string"):
        locate(given, TERMS)


def test_a_location_shows_no_password() -> None:
    found = locate("postgresql://me:secret@host:5433/db", TERMS)
    assert found.url == "postgresql://me@host:5433/db"
    assert "secret" in found.conninfo
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('connection failed: FATAL:  password authentication failed for user "me"', UnusableError),
        ('FATAL:  database "db" does not exist', UnusableError),
        ("FATAL:  sorry, too many clients already", AwayError),
        ("Connection refused", AwayError),
    ],
)
def test_a_failed_connection_is_told_by_its_text(text: str, meant: type[LedgerError]) -> None:
    assert type(no_connection(psycopg.OperationalError(text), URL, TERMS)) is meant


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("55P03", AwayError),
        ("25006", AwayError),
        ("53100", AwayError),
        ("40P01", AwayError),
        ("58030", AwayError),
        ("42P01", UnusableError),
    ],
)
def test_a_refused_statement_is_told_by_its_code(code: str, meant: type[LedgerError]) -> None:
    assert type(refused_statement(code, "why", URL, TERMS)) is meant


def test_a_lost_connection_is_away_for_now() -> None:
    meant = lost_connection("reset by peer", URL, TERMS)
    assert isinstance(meant, AwayError)
    assert "(reset by peer)" in str(meant)
