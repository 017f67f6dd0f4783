"""Where things are: the store, the graph that is meant, the logs of a repository."""

from __future__ import annotations

import difflib
import hashlib
from pathlib import Path

from dispatch.cli.ending import RefusedError
from dispatch.errors import UnknownSliceError
from dispatch.offline import StoredGraph
from dispatch.store import SqliteStore, Store, default_url, open_store
from dispatch.view.text import listed
from harness.local.errors import RepositoryError
from harness.local.log import log_path
from harness.local.repository import locate

DIGEST_LENGTH = 8


def store_at(url: str) -> Store:
    """The store that was named, or the user's own."""
    return open_store(url or default_url())


def graph_of(plan_name: str, repository: Path) -> str:
    """The graph that a plan has in a repository: two repositories never share one by accident.

    `repository` is any folder in it; all its worktrees have the same graph.
    """
    return f"{plan_name}-{repository_digest(repository)}"


def repository_digest(folder: Path) -> str:
    """A short name for the repository that `folder` is in. Raises `RepositoryError` if it is in none."""
    common, _ = locate(folder)
    return hashlib.sha256(str(common).encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_LENGTH]


def stored_graph(url: str, name: str) -> StoredGraph:
    """The graph that is meant, read from its store."""
    store = existing_store(url)
    return StoredGraph.read(store, name or only_graph(store))


def existing_store(url: str) -> SqliteStore:
    """The store that was named, if it can hold what another process has written."""
    store = store_at(url)
    if not isinstance(store, SqliteStore):
        raise RefusedError(f"{store.url} ends with the process that made it; name another store with --store")
    return store


def only_graph(store: SqliteStore) -> str:
    """The store's only graph, or the only one that belongs to the repository we are in."""
    names = store.graphs()
    if not names:
        raise RefusedError(f"{store.url} holds no graph; `run` a plan first, or name another store with --store")
    if len(names) == 1:
        return names[0]
    here = [name for name in names if name.endswith(f"-{_digest_here()}")]
    if len(here) == 1:
        return here[0]
    raise RefusedError(f"name one of these graphs with --graph: {listed(here or names, 12)}")


def _digest_here() -> str:
    try:
        return repository_digest(Path.cwd())
    except (RepositoryError, OSError):
        return "no repository"


def known_slice(graph: StoredGraph, slice_id: str) -> str:
    """`slice_id`, if the graph has it; else a refusal that suggests what may have been meant."""
    nodes = graph.machine.graph.nodes
    if slice_id in nodes:
        return slice_id
    close = difflib.get_close_matches(slice_id[:100], nodes, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "; `list` shows them all"
    raise RefusedError(f"{UnknownSliceError(slice_id)} in graph {graph.name!r}{hint}")


def log_in(repository: Path, graph: StoredGraph, slice_id: str, attempt: int) -> Path:
    """Where the output of an attempt is, if it was run in that repository. Raises `RepositoryError` if it is none."""
    common, _ = locate(repository)
    return log_path(common / "dispatch", graph.machine.graph_id, slice_id, attempt)
