"""`--follow`: a stored graph shown anew whenever it has changed, until somebody stops it."""

from __future__ import annotations

import time
from collections.abc import Callable

from dispatch.cli.ending import complain
from dispatch.cli.places import LastingStore
from dispatch.errors import StoreUnavailableError
from dispatch.offline import StoredGraph

LOOK_S = 5.0  #: how long one wait lasts; what it waits for ends it
REST_S = 0.2  #: between two showings at least, so that a burst of changes is shown once
SHARE = 4  #: a showing that took t seconds is followed by none for SHARE * t
AWAY_S = 1.0  #: between two tries while the store is out of reach


def follow(store: LastingStore, graph: str, show: Callable[[StoredGraph, bool], None]) -> None:
    """Show the graph now and after each change; `show` is told whether it is the first time.

    Returns never. While the store is out of reach it says so, once.
    """
    problem, first = "", True
    with store.follow(graph) as follower:
        while True:
            try:
                if follower.wait(LOOK_S):
                    began = time.monotonic()
                    show(StoredGraph.of(store, graph, *follower.read()), first)
                    first = False
                    time.sleep(max(REST_S, SHARE * (time.monotonic() - began)))
                problem = ""
            except StoreUnavailableError as error:
                if not problem:
                    complain(f"{error}; trying again")
                problem = str(error)
                time.sleep(AWAY_S)
