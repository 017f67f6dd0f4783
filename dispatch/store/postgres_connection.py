"""How a PostgreSQL store is connected to, and what the server's refusals mean to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dispatch.errors import DispatchError, StoreError
from dispatch.store.codec import ORPHANED_ATTEMPT
from dispatch.store.postgres_schema import STORE
from harness.database.postgres_wire import BrokenError, RefusedError

_ORPHANED = "23503"
wire_to = STORE.wire_to


def meaning(error: RefusedError | BrokenError, url: str) -> DispatchError:
    """What an error of the server means to the caller."""
    if isinstance(error, RefusedError) and error.code == _ORPHANED:
        return StoreError(ORPHANED_ATTEMPT)
    return STORE.meaning(error, url)


@contextlib.contextmanager
def meaningful(url: str) -> Iterator[None]:
    """What the server or the connection refuses within the block means what `meaning` says."""
    try:
        yield
    except (RefusedError, BrokenError) as error:
        raise meaning(error, url) from error
