"""What processes do with a PostgreSQL store alone; the rest is in `store_child.py`."""

from __future__ import annotations

import importlib
import os
from multiprocessing.connection import Connection

from dispatch.errors import DispatchError
from harness.database import killpoint
from tests.integration.store_child import batch, last_whole_batch, never_waits, store_at


def life_up_to(where: str, pipe: Connection, passage: int) -> None:
    """A life of an owner that ends at that exchange with the server, its message sent and no answer read.

    It tells each batch that was acknowledged.
    """
    os.environ["DISPATCH_KILLPOINT"] = f"postgres.after-send:{passage}"
    importlib.reload(killpoint)
    store = store_at(where, never_waits)
    store.claim("default")
    for number in (1, 2):
        store.write(batch(number))
        pipe.send(number)
    store.renew()
    store.release()
    pipe.send("lived on")


def forking(where: str, pipe: Connection) -> None:
    """Fork with the store open; the child tries to use it and ends as a program ends, and the parent goes on."""
    store = store_at(where, never_waits)
    store.claim("default")
    store.write(batch(1))
    forked = os.fork()
    if forked == 0:
        for use in (store.load, store.renew, lambda: store.write(batch(2)), store.release):
            try:
                pipe.send(use())
            except DispatchError as error:
                pipe.send(type(error).__name__)
        anew = store_at(where, never_waits)
        pipe.send(anew.claim("other").epoch)
        anew.release()
        del store, anew
        raise SystemExit(0)
    os.waitpid(forked, 0)
    for number in range(2, 6):
        store.write(batch(number))
    pipe.send(last_whole_batch(store.load()))
    store.release()
