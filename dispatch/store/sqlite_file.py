"""The file of a SQLite store. Everything here raises `StoreError` or `StoreUnavailableError`, each with one line that
says what to do."""

from __future__ import annotations

from dispatch.store.codec import ORPHANED_ATTEMPT
from dispatch.store.refusals import TERMS
from harness.database.queries import migrations
from harness.database.sqlite_file import FileKind

APPLICATION_ID = 0x51C3D15B  #: marks a SQLite file as one of ours
_STORE = FileKind(
    application_id=APPLICATION_ID,
    migrations=migrations("dispatch.store", "sqlite"),
    terms=TERMS,
    name="store",
    advice="`run` a plan first, or name another store",
    upgrade="`run` a plan on it once to bring it up to date",
    orphan=ORPHANED_ATTEMPT,
)
connect, connect_to_read = _STORE.connect, _STORE.connect_to_read
meaning, insist, refuse_after_fork = _STORE.meaning, _STORE.insist, _STORE.refuse_after_fork
