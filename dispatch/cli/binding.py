"""A graph that is run belongs to one branch of one repository: there its slices have merged, and nowhere else."""

from __future__ import annotations

import contextlib

from dispatch.cli.ending import RefusedError
from dispatch.cli.sessions import Binds
from dispatch.errors import StoreError
from dispatch.store import Store


def bind_if_stored(host: Binds, store: Store, graph: str) -> str:
    """Bind the graph before it is claimed, so that a refused run disturbs nobody; empty if it can't be read yet."""
    with contextlib.suppress(StoreError):  # perhaps there is no store yet; what else is wrong with it, its claim says
        return bind(host, store, graph)
    return ""


def bind(host: Binds, store: Store, graph: str) -> str:
    """Bind a graph to the host's repository and branch, for good, and answer its id; empty if it isn't stored.

    Refused if it is bound to another branch here, or if slices of it were started and it isn't bound here at all.
    """
    contents = store.peek(graph)[0]
    if contents.graph is None:
        return ""
    graph_id = contents.graph.graph_id
    branch = host.bound(graph_id)
    if branch is None and any(row.attempt for row in contents.slices):
        raise RefusedError(
            f"graph {graph!r} was begun in another repository; go on with it there, or start a new one with --graph"
        )
    if branch not in (None, host.main):
        raise RefusedError(
            f"graph {graph!r} merges into {branch!r}, not into {host.main!r}; go on with it there after:"
            f" git checkout {branch}; or start a new one with --graph"
        )
    host.bind(graph_id)
    return graph_id
