"""Where a PostgreSQL database is, how it is connected to, and what the server's refusals mean.

A connection string may hold secrets. What is shown is put together anew from what is known to be none, and what a
malformed one is refused with repeats nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import attrs
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from harness.database.terms import E, Terms

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
    """A database. `conninfo` is for libpq alone; `url` is fit to be shown, and names the server in messages."""

    conninfo: str
    url: str

    def __repr__(self) -> str:
        return f"Location({self.url!r})"


def locate(given: str, terms: Terms[E]) -> Location:
    """From a URL or libpq's `key=value` form. What it leaves out is libpq's: environment, service and password files.

    Raises `terms.error` for one that libpq can't read, or would read otherwise than it was meant.
    """
    if given.startswith(_SCHEMES) and _is_ambiguous(given):
        raise terms.error("the connection string holds an '@' or ':' too many; percent-encode the password's specials")
    try:
        known = conninfo_to_dict(given)
        parameters: dict[str, Any] = {**_PARAMETERS, **known, "client_encoding": "UTF8"}
        conninfo = make_conninfo("", **parameters)
    except psycopg.Error:
        raise terms.error(
            "the connection string can't be read; write postgresql://user@host:port/database, with every special "
            "character of a password percent-encoded"
        ) from None  # libpq's own message repeats pieces of it
    return Location(conninfo, _shown(known))


def _is_ambiguous(url: str) -> bool:
    """A password with a bare `/`, `?`, `#`, `@` or `:` ends early, and what is left of it passes for a host or a path,
    which messages show."""
    before, at, _ = url.partition("://")[2].rpartition("@")
    return bool(at) and (re.search(r"[/?#@\s]", before) is not None or before.count(":") > 1)


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
    """Blocks for as long as names are looked up and a server takes to answer. Raises `psycopg.Error`; see
    `no_connection`."""
    return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)


def no_connection(error: psycopg.Error, url: str, terms: Terms[E]) -> E:
    """What a failed `connect` means to the caller.

    libpq gives no code here, only text, perhaps translated: what isn't known is worth another try.
    """
    text = re.sub(r"^connection (failed|is bad): ", "", " ".join(str(error).split()))
    if re.search(r"password authentication failed|no password supplied|authentication failed", text):
        return terms.error(f"{url} refuses the password ({text}); see that the URL, PGPASSWORD or ~/.pgpass is right")
    if re.search(r'role ".*" does not exist|pg_hba.conf|not permitted to log in', text):
        return terms.error(
            f"{url} lets this user not in ({text}); create the role, or name another with postgresql://user@…"
        )
    if re.search(r'database ".*" does not exist', text):
        return terms.error(f"there is no such database at {url}; create it with createdb, or name another")
    if re.search(r"permission denied for database", text):
        return terms.error(f"{url} can't be used ({text}); GRANT CONNECT on it to this role")
    if re.search(r"too many (clients|connections)|remaining connection slots", text):
        return terms.unavailable(f"{url} has no connection left ({text}); end some, or raise max_connections")
    return terms.unavailable(f"{url} is out of reach ({text}); see that the server runs and the URL is right")


def lost_connection(why: object, url: str, terms: Terms[E]) -> E:
    """What it means that a connection broke."""
    return terms.unavailable(f"the connection to {url} was lost ({why}); see that the server is well")


def refused_statement(code: str, why: object, url: str, terms: Terms[E]) -> E:
    """What the SQLSTATE `code`, with the server's text `why`, means whatever the schema.

    Source: postgresql.org/docs/current/errcodes-appendix.html.
    """
    match code:
        case "55P03" | "57014":
            return terms.unavailable(f"{url} is locked by another transaction ({why}); end that one, or wait for it")
        case "25006":
            return terms.unavailable(f"{url} is read-only for now ({why}); wait for its primary, or name that one")
        case "53100" | "53200" | "53300" | "53400":
            return terms.unavailable(f"{url} has run out of something ({why}); free some disk or memory")
        case "40001" | "40P01" | "25P03" | "25P04":
            return terms.unavailable(f"{url} ended the transaction ({why}); it will be tried again")
        case "58030" | "XX001" | "XX002":
            return terms.unavailable(f"{url} can't read or write its files ({why}); check its disk and its log")
        case _:
            return terms.error(f"{url} can't be used: {why} (SQLSTATE {code})")
