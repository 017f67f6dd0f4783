"""Which branch each graph merges into: noted once for this repository, and held to.

A graph's slices count as merged because one branch has them. On another branch they would be missing, and what depends
on them would begin without them.
"""

from __future__ import annotations

import json
from pathlib import Path

from harness.local.errors import RepositoryError
from harness.local.lock import FileLock
from harness.local.record import UNFINISHED, drop_unfinished, write_durably


class Bindings:
    """The graphs that a repository knows, one file each. Safe to use from many threads and processes.

    What can't be read counts as no permission: each method raises `RepositoryError` then.
    """

    def __init__(self, root: Path) -> None:
        self._folder = root / "graphs"
        self._lock = FileLock(root / "graphs.lock")

    def read(self, graph_id: str) -> str | None:
        """The branch that the graph merges into; None if it is not known here."""
        path = self._path(graph_id)
        try:
            branch = json.loads(path.read_text("utf-8"))["main"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._unreadable(path) from error
        if not isinstance(branch, str) or not branch:
            raise self._unreadable(path)
        return branch

    def bind(self, graph_id: str, branch: str) -> str:
        """Notes the branch, on the disk when it returns, unless one is noted; answers the one that is, then."""
        with self._lock.held():
            bound = self.read(graph_id)
            if bound is None:
                write_durably(self._path(graph_id), json.dumps({"main": branch}) + "\n")
            return bound or branch

    def drop_unfinished(self) -> None:
        """Removes what a kill left of notes that were being written."""
        drop_unfinished(self._folder, UNFINISHED, self._lock)

    def _path(self, graph_id: str) -> Path:
        return self._folder / f"{graph_id}.json"

    def _unreadable(self, path: Path) -> RepositoryError:
        return RepositoryError(
            f"{path} doesn't say which branch its graph merges into;"
            " remove it if the branch checked out is the right one"
        )


def bound_elsewhere(graph_id: str, bound: str, main: str, *, named: bool) -> RepositoryError:
    """That a graph merges into another branch. `named`: main was given, rather than found checked out."""
    if named:
        return RepositoryError(
            f"graph {graph_id} merges into {bound!r}, but {main!r} is named as main;"
            f" name {bound!r}, or begin a new graph"
        )
    return RepositoryError(
        f"graph {graph_id} merges into {bound!r}, but {main!r} is checked out;"
        f" check {bound} out with: git checkout {bound}, or begin a new graph"
    )
