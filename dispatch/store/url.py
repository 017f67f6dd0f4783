"""Stores by URL."""

from __future__ import annotations

import re

import platformdirs

from dispatch.errors import StoreError
from dispatch.store.memory import MemoryStore
from dispatch.store.port import Store
from dispatch.store.sqlite import SqliteStore

_KINDS = "a store is postgresql://user@host/database, sqlite:///relative/path, sqlite:////absolute/path or memory:"


def open_store(url: str) -> Store:
    """The store that `url` names; nothing is opened or made yet. Raises `StoreError`, which repeats no password.

    What follows `sqlite:///` is the path as it stands: nothing in it is escaped. `postgresql://` and `postgres://` are
    libpq's, with everything they may hold.
    """
    if url == "memory:":
        return MemoryStore()
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)", url)
    if scheme is None:
        raise StoreError(f"a store is named by a URL: {_KINDS}")
    if scheme[0] in ("postgresql", "postgres"):
        from dispatch.store.postgres import PostgresStore  # not above: psycopg takes long to load, and not all need it

        return PostgresStore(url)
    if scheme[0] != "sqlite":
        raise StoreError(f"no store is of the kind {scheme[0]!r}; {_KINDS}")
    path = url.removeprefix("sqlite:///")
    if path in ("", url) or "\0" in path:
        raise StoreError(f"the URL names no file; {_KINDS}")
    return SqliteStore(path)


def default_url() -> str:
    """The store that is used when none is named: a file in the user's state directory (XDG)."""
    return f"sqlite:///{platformdirs.user_state_path('slice-dispatch') / 'graphs.db'}"
