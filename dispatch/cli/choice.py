"""Which graph a command means: the one it names, else the one that belongs to the repository it stands in.

A graph belongs to the repositories that its runs have bound it to, whatever its name.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import attrs

from dispatch.cli.ending import RefusedError
from dispatch.cli.places import LastingStore, existing_store, is_graph_of, store_at
from dispatch.errors import StoreError
from dispatch.offline import StoredGraph
from dispatch.store import Store
from dispatch.text import listed
from harness.local.binding import Bindings
from harness.local.errors import GitError, RepositoryError
from harness.local.log import log_path
from harness.local.repository import locate

MOST_NAMES = 12  #: of graphs in one message


@attrs.frozen
class Choice:
    """A store and a place to choose from it: `common` is the git common directory of the repository that `folder` is
    in, None outside of any."""

    store: LastingStore
    folder: Path
    common: Path | None

    @classmethod
    def at(cls, url: str, repository: Path | None) -> Choice:
        """By default where we are. Raises `RepositoryError` if a repository was named and is none."""
        store = existing_store(url)
        if repository is not None:
            folder = repository.resolve()
            return cls(store, folder, locate(folder)[0])
        return cls(store, Path(), common_here())

    def graph(self, name: str, *, changing: bool = False) -> StoredGraph:
        """The graph that is meant, as it stands."""
        return StoredGraph.read(self.store, self.name(name, changing=changing))

    def name(self, name: str, *, changing: bool = False) -> str:
        """The graph of that name, or without one that of the repository. Outside of any, a command that only reads may
        mean the store's only graph; one that is `changing` it has to be told."""
        names = self.store.graphs()
        if not names:
            raise RefusedError(
                f"{self.store.url} holds no graph; `run` a plan first, or name another store with --store"
            )
        return self._named(name, names) if name else self._unnamed(names, changing=changing)

    def branch(self, graph_id: str) -> str | None:
        """The branch that the graph merges into in this repository; None if it doesn't belong here."""
        return None if self.common is None else Bindings(self.common / "dispatch").read(graph_id)

    def own(self, names: Sequence[str]) -> list[str]:
        """Those that belong here."""
        if self.common is None:
            return []
        rows = ((name, self.store.peek(name)[0].graph) for name in names)
        return [name for name, row in rows if row is not None and self.branch(row.graph_id) is not None]

    def log(self, graph: StoredGraph, slice_id: str, attempt: int) -> Path:
        """Where the output of an attempt is. Refused if it isn't in this repository."""
        graph_id = graph.machine.graph_id
        if self.common is None:
            raise RefusedError(
                f"the logs of graph {graph.name!r} are in the repository it was run in; name that one with --repo"
            )
        path = log_path(self.common / "dispatch", graph_id, slice_id, attempt)
        if self.branch(graph_id) is None and not path.exists():  # a program that embeds the scheduler may not bind it
            raise RefusedError(
                f"graph {graph.name!r} was not run in {self._folder}; name its repository with --repo,"
                " or another graph with --graph"
            )
        return path

    @property
    def repository(self) -> str | None:
        """Where the graphs that belong here merge; None outside of any repository."""
        return None if self.common is None else self._folder

    @property
    def _folder(self) -> str:
        return str(self.folder.absolute())

    def _named(self, name: str, names: Sequence[str]) -> str:
        """That very name; else it is short for the only graph of this repository that a plan of that name made."""
        if name in names:
            return name
        meant = self.own([each for each in names if is_graph_of(name, each)])
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise RefusedError(f"{name!r} is short for several graphs; name one with --graph: {_listed(meant)}")
        raise RefusedError(f"there is no graph {name!r} in {self.store.url}; name one with --graph: {_listed(names)}")

    def _unnamed(self, names: Sequence[str], *, changing: bool) -> str:
        if self.common is None:
            if len(names) == 1 and not changing:
                return names[0]
            raise RefusedError(
                f"{self._folder} is in no git repository: name the one that is meant with --repo,"
                f" or the graph with --graph: {_listed(names)}"
            )
        own = self.own(names)
        if len(own) == 1:
            return own[0]
        if own:
            raise RefusedError(f"{self._folder} has several graphs; name one with --graph: {_listed(own)}")
        raise RefusedError(
            f"no graph in {self.store.url} belongs to {self._folder}: `run` a plan there, name another repository"
            f" with --repo, or a graph with --graph: {_listed(names)}"
        )


def common_here() -> Path | None:
    """The git common directory of the repository we are in; None outside of any."""
    try:
        return locate(Path.cwd())[0]
    except FileNotFoundError:  # the folder we are in was removed
        return None
    except RepositoryError as error:
        cause = error.__cause__
        if isinstance(cause, GitError) and "not a git repository" in cause.said:
            return None
        raise


def reaching(store: Store, graph: str, repository: Path) -> str | None:
    """The options with which a command, typed where we are, means `graph`, which belongs to `repository`.

    Empty if it needs none; else with a blank before them. None if no command can reach it.
    """
    if not isinstance(store, LastingStore):
        return None
    common = locate(repository)[0]
    words: list[str] = []
    if Choice(store, repository, common).own(store.graphs()) != [graph]:
        words += ["--graph", graph]
    if store.url != _default_store():
        words += ["--store", store.url]
    if not _is_here(common):
        words += ["--repo", str(repository)]
    return f" {shlex.join(words)}" if words else ""


def _is_here(common: Path) -> bool:
    with contextlib.suppress(RepositoryError):  # of a repository around us that can't be opened
        return common == common_here()
    return False


def _default_store() -> str:
    """The store of a command that names none; empty if that can't be used."""
    with contextlib.suppress(StoreError):
        return store_at(os.environ.get("DISPATCH_STORE", "")).url
    return ""


def _listed(names: Sequence[str]) -> str:
    return listed(tuple(names), MOST_NAMES)
