"""Where graphs are kept: the port, and its adapters for memory and SQLite."""

from dispatch.store.memory import MemoryStore
from dispatch.store.port import (
    AttemptRow,
    Changes,
    Claim,
    Contents,
    GraphRow,
    IntentRow,
    SliceRow,
    Store,
)
from dispatch.store.sqlite import SqliteStore
from dispatch.store.url import default_url, open_store

__all__ = [
    "AttemptRow",
    "Changes",
    "Claim",
    "Contents",
    "GraphRow",
    "IntentRow",
    "MemoryStore",
    "SliceRow",
    "SqliteStore",
    "Store",
    "default_url",
    "open_store",
]
