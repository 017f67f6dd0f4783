"""A program's tables in a PostgreSQL database, in a schema of their own: found, made, brought up to date, or refused;
and the limits of time within which everything there happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

import attrs
import psycopg

from harness.database.killpoint import killpoint
from harness.database.postgres import Connect, Location, lost_connection, no_connection, refused_statement
from harness.database.postgres_wire import BrokenError, RefusedError, Statement, Wire, array, statement
from harness.database.queries import named_blocks
from harness.database.terms import E, Terms

SQL = named_blocks("harness.database", "postgres.sql")
BEGIN, BEGIN_READING = Statement(SQL["begin"]), Statement(SQL["begin_reading"])
COMMIT, ROLLBACK = Statement(SQL["commit"]), Statement(SQL["rollback"])
MIGRATION_PATIENCE_S = 60.0  #: others may be migrating, and new indexes take their time


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


@attrs.frozen
class _Surroundings:
    encoding: str
    database: str
    role: str
    has_schema: bool
    is_ours: bool
    has_others: bool
    may_create: bool


@attrs.frozen
class SchemaKind(Generic[E]):
    """What sets one program's tables apart, and all that is done to bring them about.

    `versions` names the table in `schema` that tells the version of `migrations` (their number), then those of other
    programs of ours that live in the same schema. `lock` is a number of ours for an advisory lock. Everything raises in
    its `terms`. The rest is words of messages: `name` is what the tables are to their user ("store"); `advice` says
    what to do where there are none, `upgrade` what a mere reader does about old ones, `use` what their owner does;
    `privileges` are what a role needs that is refused something.
    """

    schema: str
    versions: Sequence[str]
    lock: int
    migrations: Sequence[Sequence[str]]
    terms: Terms[E]
    name: str
    advice: str
    upgrade: str
    use: str
    privileges: str

    def wire_to(self, location: Location, connect: Connect, *, prepares: bool = True) -> Wire:
        """A new connection, whatever tables there are."""
        try:
            return Wire(connect(location.conninfo), self.terms.error, prepares=prepares)
        except psycopg.Error as error:
            raise no_connection(error, location.url, self.terms) from error

    def meaning(self, error: RefusedError | BrokenError, url: str) -> E:
        """What an error of the server means to the caller."""
        if isinstance(error, BrokenError):
            return lost_connection(error, url, self.terms)
        if error.code == "42501":
            return self.terms.error(f"{url}: {error}; GRANT this role {self.privileges}")
        return refused_statement(error.code, error, url, self.terms)

    def make_ready(self, wire: Wire, url: str) -> None:
        """Make the tables, or bring them up to date. Raises `terms.error` if that isn't for this role to do."""
        if self._version(wire, url) == len(self.migrations):
            return
        limit = limits(MIGRATION_PATIENCE_S, MIGRATION_PATIENCE_S)
        wire.run([BEGIN, limit, statement(SQL["lock_schema"], self.lock)], MIGRATION_PATIENCE_S + 1)
        version = self._version(wire, url)  # another process may have been here while we waited for the lock
        around = self._look_around(wire)
        if not around.may_create and version < len(self.migrations):
            raise self._not_ours_to_make(around, version, url)
        schema = [] if around.has_schema else [Statement(self._named("make_schema"))]
        steps = [Statement(text) for statements in self.migrations[version:] for text in statements]
        note = statement(self._named("set_version"), len(self.migrations))
        wire.run([*schema, *steps, note], MIGRATION_PATIENCE_S)
        killpoint("postgres.before-migration-commit")
        wire.run([COMMIT], MIGRATION_PATIENCE_S)
        killpoint("postgres.after-migration-commit")

    def check_ready(self, wire: Wire, url: str) -> None:
        """Raises `terms.error` unless the tables are there and up to date."""
        version = self._version(wire, url)
        if version == 0:
            raise self.terms.error(f"there is no {self.name} at {url}; {self.advice}")
        if version < len(self.migrations):
            raise self.terms.error(f"{url} was made by an older version; {self.upgrade}")

    def _version(self, wire: Wire, url: str) -> int:
        """0 if there is none yet. Raises for what is another program's, of a newer version or in a foreign encoding."""
        around = self._look_around(wire)
        if around.encoding != "UTF8":
            raise self.terms.error(
                f"{url} keeps text as {around.encoding}, which lacks characters; create a database with ENCODING 'UTF8'"
            )
        if not around.is_ours:
            if around.has_others:
                raise self.terms.error(f"{url} has a schema `{self.schema}` of another program; name another database")
            return 0
        (result,) = wire.run([Statement(self._named("find_version"))], MIGRATION_PATIENCE_S)
        version = int(result.get_value(0, 0) or b"0") if result.ntuples else 0
        if version > len(self.migrations):
            raise self.terms.error(
                f"{url} was written by a newer version (schema {version}, known here: {len(self.migrations)}); upgrade"
            )
        return version

    def _look_around(self, wire: Wire) -> _Surroundings:
        looked = Statement(SQL["look_around"], (self.schema.encode(), self.versions[0].encode(), array(self.versions)))
        (result,) = wire.run([looked], MIGRATION_PATIENCE_S)
        encoding, database, role, *flags = [(result.get_value(0, n) or b"").decode() for n in range(result.nfields)]
        return _Surroundings(encoding, database, role, *(flag == "t" for flag in flags))

    def _not_ours_to_make(self, around: _Surroundings, version: int, url: str) -> E:
        if version:
            return self.terms.error(
                f"{url} was made by an older version; {self.use} once as the owner of its tables to upgrade them"
            )
        if around.has_schema:
            return self.terms.error(
                f"{url} has an empty schema `{self.schema}` in which role {around.role!r} may not create tables; "
                f"GRANT CREATE ON SCHEMA {self.schema} TO it, or {self.use} once as the schema's owner"
            )
        return self.terms.error(
            f"{url} has no schema `{self.schema}`, and role {around.role!r} may not create it; {self.use} once as a "
            f"role that may, or CREATE SCHEMA {self.schema} AUTHORIZATION that role"
        )

    def _named(self, block: str) -> str:
        return SQL[block].replace("{schema}", self.schema).replace("{version}", self.versions[0])
