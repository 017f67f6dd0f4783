"""The file of a SQLite authority. Its queue may be in it too: the tables of one are there in any case."""

from __future__ import annotations

from harness.database.queries import migrations
from harness.database.sqlite_file import FileKind
from harness.fleet.authority.terms import TERMS

FILE = FileKind(
    application_id=0x51C3D1F0,
    migrations=[*migrations("harness.fleet.authority", "sqlite"), *migrations("harness.fleet.transport", "sqlite")],
    terms=TERMS,
    name="authority",
    advice="submit a turn first, or name another file in STATE_DB_URI",
    upgrade="start a worker on it once to bring it up to date",
    orphan="a row was written without its work item; submit it first",
)
BUSY_TIMEOUT_S = 10.0  #: how long a transaction waits for others; many processes may write
