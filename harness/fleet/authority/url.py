"""Authorities by URI."""

from __future__ import annotations

import re

from harness.fleet.errors import InvalidSettingError
from harness.fleet.ports import Authority

_KINDS = "an authority is postgresql://user@host/database or sqlite:////absolute/path"


def open_work_items(uri: str) -> Authority:
    """The authority that `uri` names; nothing is opened or made yet. Raises `InvalidSettingError`, which repeats no
    password.

    What follows `sqlite:///` is the path as it stands: nothing in it is escaped. `postgresql://` and `postgres://` are
    libpq's, with everything they may hold.
    """
    if re.match(r"postgres(ql)?://", uri):
        from harness.fleet.authority.postgres import PostgresWorkItems  # not above: psycopg takes long to load

        return PostgresWorkItems(uri)
    path = uri.removeprefix("sqlite:///")
    if path in ("", uri) or "\0" in path:
        raise InvalidSettingError("STATE_DB_URI", f"names no database; {_KINDS}")
    from harness.fleet.authority.sqlite import SqliteWorkItems

    return SqliteWorkItems(path)
