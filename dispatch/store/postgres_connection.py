"""How a PostgreSQL store is connected to, and what the server's refusals mean to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg

from dispatch.errors import DispatchError, StoreError
from dispatch.store.codec import ORPHANED_ATTEMPT
from dispatch.store.refusals import TERMS
from harness.database.postgres import Connect, Location, lost_connection, no_connection, refused_statement
from harness.database.postgres_wire import BrokenError, RefusedError, Wire


def wire_to(location: Location, connect: Connect, *, prepares: bool = True) -> Wire:
    """A new connection. Raises `StoreError` or `StoreUnavailableError`."""
    try:
        return Wire(connect(location.conninfo), StoreError, prepares=prepares)
    except psycopg.Error as error:
        raise no_connection(error, location.url, TERMS) from error


def meaning(error: RefusedError | BrokenError, url: str) -> DispatchError:
    """What an error of the server means to the caller."""
    if isinstance(error, BrokenError):
        return lost_connection(error, url, TERMS)
    match error.code:
        case "23503":
            return StoreError(ORPHANED_ATTEMPT)
        case "42501":
            return StoreError(
                f"{url}: {error}; GRANT this role USAGE ON SCHEMA dispatch,"
                " and SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dispatch"
            )
        case code:
            return refused_statement(code, error, url, TERMS)


@contextlib.contextmanager
def meaningful(url: str) -> Iterator[None]:
    """What the server or the connection refuses within the block means what `meaning` says."""
    try:
        yield
    except (RefusedError, BrokenError) as error:
        raise meaning(error, url) from error
