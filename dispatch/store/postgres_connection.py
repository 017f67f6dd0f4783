"""Where a PostgreSQL store is, how it is connected to, and what the server's refusals mean.

A connection string may hold secrets. What is shown is put together anew from what is known to be none, and what a
malformed one is refused with repeats nothing of it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import attrs
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dispatch.errors import DispatchError, StoreError, StoreUnavailableError
from dispatch.store.codec import ORPHANED_ATTEMPT
from dispatch.store.postgres_wire import BrokenError, RefusedError, Wire

CONNECT_TIMEOUT_S = 5
_SCHEMES = ("postgresql://", "postgres://")
#: What a connection has unless its string says otherwise. A peer that has vanished is noticed within 15 s.
_PARAMETERS: dict[str, str | int] = {
    "application_name": "slice-dispatch",
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


@attrs.frozen(repr=False)
class Location:
    """A database. `conninfo` is for libpq alone; `url` is fit to be shown; `host` names the server in messages."""

    conninfo: str
    url: str

    def __repr__(self) -> str:
        return f"Location({self.url!r})"


def locate(given: str) -> Location:
    """From a URL or libpq's `key=value` form. What it leaves out is libpq's: environment, service and password files.

    Raises `StoreError` for one that libpq can't read, or would read otherwise than it was meant.
    """
    if given.startswith(_SCHEMES):
        _refuse_ambiguous(given)
    try:
        known = conninfo_to_dict(given)
        parameters: dict[str, Any] = {**_PARAMETERS, **known, "client_encoding": "UTF8"}
        conninfo = make_conninfo("", **parameters)
    except psycopg.Error:
        raise StoreError(
            "the connection string can't be read; write postgresql://user@host:port/database, with every special "
            "character of a password percent-encoded"
        ) from None  # libpq's own message repeats pieces of it
    return Location(conninfo, _shown(known))


def _refuse_ambiguous(url: str) -> None:
    """A password with a bare `/`, `?`, `#`, `@` or `:` ends early, and what is left of it passes for a host or a path,
    which messages show."""
    before, at, _ = url.partition("://")[2].rpartition("@")
    if at and (re.search(r"[/?#@\s]", before) or before.count(":") > 1):
        raise StoreError("the connection string holds an '@' or ':' too many; percent-encode the password's specials")


def _shown(known: dict[str, Any]) -> str:
    """Of all parameters, those that tell where and as whom."""
    user, host, port, database = (str(known.get(key) or "") for key in ("user", "host", "port", "dbname"))
    asides = {key: known[key] for key in ("hostaddr", "service") if known.get(key)}
    if "/" in host or "," in host or "," in port:  # a folder of sockets, or several servers
        asides |= {key: value for key, value in (("host", host), ("port", port)) if value}
        host = port = ""
    authority = (quote(user) + "@" if user else "") + (f"[{host}]" if ":" in host else host) + (port and f":{port}")
    query = "?" + urlencode(asides, safe="/,") if asides else ""
    return f"postgresql://{authority}/{quote(database)}{query}"


Connect = Callable[[str], "psycopg.Connection[Any]"]


def connect(conninfo: str) -> psycopg.Connection[Any]:
    """Blocks for as long as names are looked up and a server takes to answer."""
    return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)


def wire_to(location: Location, connect: Connect, *, prepares: bool = True) -> Wire:
    """A new connection. Raises `StoreError` or `StoreUnavailableError`."""
    try:
        return Wire(connect(location.conninfo), prepares=prepares)
    except psycopg.Error as error:
        raise _meaning_of_no_connection(error, location.url) from error


def _meaning_of_no_connection(error: psycopg.Error, url: str) -> DispatchError:
    """libpq gives no code here, only text, perhaps translated: what isn't known is worth another try."""
    text = re.sub(r"^connection (failed|is bad): ", "", " ".join(str(error).split()))
    if re.search(r"password authentication failed|no password supplied|authentication failed", text):
        return StoreError(f"{url} refuses the password ({text}); see that the URL, PGPASSWORD or ~/.pgpass is right")
    if re.search(r'role ".*" does not exist|pg_hba.conf|not permitted to log in', text):
        return StoreError(
            f"{url} lets this user not in ({text}); create the role, or name another with postgresql://user@…"
        )
    if re.search(r'database ".*" does not exist', text):
        return StoreError(f"there is no such database at {url}; create it with createdb, or name another")
    if re.search(r"permission denied for database", text):
        return StoreError(f"{url} can't be used ({text}); GRANT CONNECT on it to this role")
    if re.search(r"too many (clients|connections)|remaining connection slots", text):
        return StoreUnavailableError(f"{url} has no connection left ({text}); end some, or raise max_connections")
    return StoreUnavailableError(f"{url} is out of reach ({text}); see that the server runs and the URL is right")


def meaning(error: RefusedError | BrokenError, url: str) -> DispatchError:
    """What an error of the server means to the caller. Source: postgresql.org/docs/current/errcodes-appendix.html."""
    if isinstance(error, BrokenError):
        return StoreUnavailableError(f"the connection to {url} was lost ({error}); see that the server is well")
    match error.code:
        case "55P03" | "57014":
            return StoreUnavailableError(
                f"{url} is locked by another transaction ({error}); end that one, or wait for it"
            )
        case "25006":
            return StoreUnavailableError(
                f"{url} is read-only for now ({error}); wait for its primary, or name that one"
            )
        case "53100" | "53200" | "53300" | "53400":
            return StoreUnavailableError(f"{url} has run out of something ({error}); free some disk or memory")
        case "40001" | "40P01" | "25P03" | "25P04":
            return StoreUnavailableError(f"{url} ended the transaction ({error}); it will be tried again")
        case "58030" | "XX001" | "XX002":
            return StoreUnavailableError(f"{url} can't read or write its files ({error}); check its disk and its log")
        case "23503":
            return StoreError(ORPHANED_ATTEMPT)
        case "42501":
            return StoreError(
                f"{url}: {error}; GRANT this role USAGE ON SCHEMA dispatch,"
                " and SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dispatch"
            )
        case _:
            return StoreError(f"{url} can't be used: {error} (SQLSTATE {error.code})")


@contextlib.contextmanager
def meaningful(url: str) -> Iterator[None]:
    """What the server or the connection refuses within the block means what `meaning` says."""
    try:
        yield
    except (RefusedError, BrokenError) as error:
        raise meaning(error, url) from error
