"""Where things are: the store, and the graph of a plan in a repository."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Protocol, runtime_checkable

from dispatch.cli.ending import RefusedError
from dispatch.errors import UnknownSliceError
from dispatch.store import Store, default_url, open_store
from dispatch.store.following import CanBeFollowed
from harness.local.repository import locate

DIGEST_LENGTH = 8


@runtime_checkable
class LastingStore(Store, CanBeFollowed, Protocol):
    """A store that outlives the processes which write to it."""

    def graphs(self) -> tuple[str, ...]:
        """The names of those it holds, sorted."""
        ...


def store_at(url: str) -> Store:
    """The store that was named, or the user's own."""
    return open_store(url or default_url())


def state_folder() -> Path:
    """Where the user's own store is."""
    return Path(default_url().removeprefix("sqlite:///")).parent


def graph_of(plan_name: str, repository: Path) -> str:
    """The graph that a plan has in a repository: two repositories never share one by accident.

    `repository` is any folder in it; all its worktrees have the same graph.
    """
    return f"{plan_name}-{repository_digest(repository)}"


def is_graph_of(plan_name: str, graph: str) -> bool:
    """Whether a plan of that name has that graph in some repository."""
    return re.fullmatch(rf"{re.escape(plan_name)}-[0-9a-f]{{{DIGEST_LENGTH}}}", graph) is not None


def repository_digest(folder: Path) -> str:
    """A short name for the repository that `folder` is in. Raises `RepositoryError` if it is in none."""
    common, _ = locate(folder)
    return hashlib.sha256(str(common).encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_LENGTH]


def existing_store(url: str) -> LastingStore:
    """The store that was named, if it can hold what another process has written."""
    store = store_at(url)
    if not isinstance(store, LastingStore):
        raise RefusedError(f"{store.url} ends with the process that made it; name another store with --store")
    return store


def known_slice(known: Collection[str], graph: str, slice_id: str) -> str:
    """`slice_id`, if it is among those `known` in the graph; else a refusal that suggests what may have been meant."""
    if slice_id in known:
        return slice_id
    close = difflib.get_close_matches(slice_id[:100], known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "; `list` shows them all"
    raise RefusedError(f"{UnknownSliceError(slice_id)} in graph {graph!r}{hint}")
