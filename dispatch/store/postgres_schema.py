"""The tables of a PostgreSQL store, in a schema of their own: found, made, brought up to date, or refused."""

from __future__ import annotations

import attrs

from dispatch.errors import StoreError
from harness.database.killpoint import killpoint
from harness.database.postgres_wire import Statement, Wire, statement
from harness.database.queries import migrations, named_blocks

SQL = named_blocks("dispatch.store", "postgres.sql")
BEGIN, BEGIN_READING = Statement(SQL["begin"]), Statement(SQL["begin_reading"])
COMMIT, ROLLBACK = Statement(SQL["commit"]), Statement(SQL["rollback"])
MIGRATION_PATIENCE_S = 60.0  #: others may be migrating, and new indexes take their time
_MIGRATIONS = migrations("dispatch.store", "postgres")


@attrs.frozen
class _Surroundings:
    encoding: str
    database: str
    role: str
    has_schema: bool
    is_ours: bool
    has_others: bool
    may_create: bool


def limits(lock_s: float, statement_s: float) -> Statement:
    """How long what follows in the transaction may wait for a lock, run, or lie idle."""
    return statement(SQL["limit"], round(lock_s * 1000), round(statement_s * 1000))


def limit_session(wire: Wire, limits: Statement, patience_s: float) -> None:
    """The same for every transaction on `wire`, if it leads to the server itself: `wire.limited` says so.

    They cost a lone change an eighth, when they are set anew in its transaction.
    """
    pid = str(wire.server_pid).encode()
    (result,) = wire.run([Statement(SQL["limit_session"], (*limits.values, pid))], patience_s)
    wire.limited = result.ntuples > 0


def make_ready(wire: Wire, url: str) -> None:
    """Make the tables, or bring them up to date. Raises `StoreError` if that isn't for this role to do."""
    if _version(wire, url) == len(_MIGRATIONS):
        return
    first = [BEGIN, limits(MIGRATION_PATIENCE_S, MIGRATION_PATIENCE_S), Statement(SQL["lock_schema"])]
    wire.run(first, MIGRATION_PATIENCE_S + 1)
    version = _version(wire, url)  # another process may have been here while we waited for the lock
    around = _look_around(wire)
    if not around.may_create and version < len(_MIGRATIONS):
        raise _not_ours_to_make(around, version, url)
    schema = [] if around.has_schema else [Statement(SQL["make_schema"])]
    steps = [Statement(text) for statements in _MIGRATIONS[version:] for text in statements]
    wire.run([*schema, *steps, statement(SQL["set_version"], len(_MIGRATIONS))], MIGRATION_PATIENCE_S)
    killpoint("postgres.before-migration-commit")
    wire.run([COMMIT], MIGRATION_PATIENCE_S)
    killpoint("postgres.after-migration-commit")


def check_ready(wire: Wire, url: str) -> None:
    """Raises `StoreError` unless the tables are there and up to date."""
    version = _version(wire, url)
    if version == 0:
        raise StoreError(f"there is no store at {url}; `run` a plan first, or name another store")
    if version < len(_MIGRATIONS):
        raise StoreError(f"{url} was made by an older version; `run` a plan on it once to bring it up to date")


def _version(wire: Wire, url: str) -> int:
    """0 if there is none yet. Raises for what is another program's, of a newer version, or in a foreign encoding."""
    around = _look_around(wire)
    if around.encoding != "UTF8":
        raise StoreError(
            f"{url} keeps text as {around.encoding}, which lacks characters; create a database with ENCODING 'UTF8'"
        )
    if not around.is_ours:
        if around.has_others:
            raise StoreError(f"{url} has a schema `dispatch` of another program; name another database")
        return 0
    (result,) = wire.run([Statement(SQL["find_version"])], MIGRATION_PATIENCE_S)
    version = int(result.get_value(0, 0) or b"0") if result.ntuples else 0
    if version > len(_MIGRATIONS):
        raise StoreError(
            f"{url} was written by a newer version (schema {version}, known here: {len(_MIGRATIONS)}); upgrade"
        )
    return version


def _look_around(wire: Wire) -> _Surroundings:
    (result,) = wire.run([Statement(SQL["look_around"])], MIGRATION_PATIENCE_S)
    encoding, database, role, *flags = [(result.get_value(0, n) or b"").decode() for n in range(result.nfields)]
    return _Surroundings(encoding, database, role, *(flag == "t" for flag in flags))


def _not_ours_to_make(around: _Surroundings, version: int, url: str) -> StoreError:
    if version:
        return StoreError(f"{url} was made by an older version; `run` once as the owner of its tables to upgrade them")
    if around.has_schema:
        return StoreError(
            f"{url} has an empty schema `dispatch` in which role {around.role!r} may not create tables; "
            f"GRANT CREATE ON SCHEMA dispatch TO it, or `run` once as the schema's owner"
        )
    return StoreError(
        f"{url} has no schema `dispatch`, and role {around.role!r} may not create it; `run` once as a role that may, "
        f"or CREATE SCHEMA dispatch AUTHORIZATION that role"
    )
