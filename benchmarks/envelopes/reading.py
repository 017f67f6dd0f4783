"""What the authority's tables hold in the end, as the database's driver gives it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from benchmarks.envelopes.checker import Grave, Row

_ITEMS = "SELECT id, tenant, state, attempt, submitted_at, deadline FROM {}items"
_OUTCOMES = (
    "SELECT i.id, o.ended, o.text, o.ended_at FROM {0}outcomes AS o JOIN {0}items AS i ON i.seq = o.item"
    " ORDER BY o.item, o.number"
)
_GRAVES = "SELECT digest, cause, job_id, tenant, count FROM {}graves"
_UNENDED = "SELECT count(*) FROM {}items WHERE state NOT IN ('succeeded', 'failed', 'cancelled', 'dead_letter')"
Ask = Callable[[str], list[tuple[Any, ...]]]


@contextlib.contextmanager
def asking(uri: str) -> Iterator[Ask]:
    """Answers statements in which `{}` stands before each table."""
    if uri.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(uri.removeprefix("sqlite:///"), timeout=30.0)) as file:
            yield lambda statement: file.execute(statement.format("")).fetchall()
    else:
        with contextlib.closing(psycopg.connect(uri)) as server:
            yield lambda statement: server.execute(statement.format("agent_dispatch.").encode()).fetchall()


def unended(uri: str, named: str = "") -> int:
    """How many items have not ended, of those whose id begins so."""
    with asking(uri) as ask:
        return int(ask(f"{_UNENDED} AND substr(id, 1, {len(named)}) = '{named}'")[0][0])


def rows(uri: str) -> dict[str, Row]:
    with asking(uri) as ask:
        items, outcomes = ask(_ITEMS), ask(_OUTCOMES)
    ends: dict[str, list[tuple[str, str, float]]] = defaultdict(list)
    for name, ended, text, at in outcomes:
        ends[name].append((ended, text, at))
    return {
        name: Row(tenant, state, attempt, submitted_at, deadline, tuple(ends[name]))
        for name, tenant, state, attempt, submitted_at, deadline in items
    }


def graves(uri: str) -> dict[str, Grave]:
    with asking(uri) as ask:
        return {digest: Grave(*rest) for digest, *rest in ask(_GRAVES)}
