"""What is known of the last attempt at a slice, on disk: enough to settle what a killed process left.

One record per graph and slice, replaced whole. The attempt that is named in it is the only one that may merge: it asks,
under the repository's lock, right before main moves, and another takes the record over under the same lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from enum import Enum
from pathlib import Path

import attrs

from harness.local.lock import FileLock
from harness.local.process import ProcessMark
from harness.session import Assignment, SessionPhase
from harness.text import sanitize

TITLE_LIMIT = 256
UNFINISHED = ".*.new"  #: the files that `write_whole` has not finished
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")


@attrs.frozen
class Record:
    """An attempt. `phase` is how it ended, None while it hasn't; `session` its folder's name, `<slice>@<attempt>`.

    `token` is in the environment of all its processes, `mark` is its agent. `worktree` is the name of its folder.
    `branch`, the `wanted` one or that with a number, is noted once it is checked out, before its agent runs. `base` is
    the commit it began with, `work` the one it wants merged once it has ended well, `intended` the merge that is about
    to become main. `kept` is the ref that has its unmerged work, and `resume` whether the next attempt goes on from it.
    `left_out` says what of its work no commit could hold, and where that is, in one line. `taken`: another process has
    taken the slice, or its graph, over and told this attempt's processes to stop. `host` is the random name of the host
    that runs it; empty if an earlier release wrote it.
    """

    session: str
    graph_id: str
    slice_id: str
    attempt: int
    token: str
    grace_s: float
    title: str = ""
    wanted: str = ""
    worktree: str = ""
    branch: str = ""
    base: str = ""
    work: str = ""
    mark: ProcessMark | None = None
    intended: str = ""
    phase: SessionPhase | None = None
    detail: str = ""
    error: str = ""
    checkpoint: str = ""
    pull_request_url: str = ""
    kept: str = ""
    resume: bool = False
    turns: int = 0
    taken: bool = False
    left_out: str = ""
    host: str = ""

    @classmethod
    def of(cls, assignment: Assignment, token: str, host: str = "") -> Record:
        return cls(
            session=assignment.assignment_id,
            graph_id=assignment.graph_id,
            slice_id=assignment.slice_id,
            attempt=assignment.attempt,
            token=token,
            grace_s=assignment.recipe.grace_s,
            title=sanitize(assignment.title, TITLE_LIMIT) or assignment.slice_id,
            wanted=assignment.branch,
            host=host,
        )

    @property
    def note(self) -> str:
        """How the worktree's lock file names the session."""
        return f"{self.graph_id}/{self.session}"

    def to_json(self) -> str:
        return json.dumps(attrs.asdict(self, value_serializer=plain))

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Another release may have written it: what is missing has its default, and what is unknown is left out."""
        known = {field.name for field in attrs.fields(cls)}
        fields = {name: value for name, value in json.loads(text).items() if name in known}
        mark, phase = fields.get("mark"), fields.get("phase")
        fields["mark"] = None if mark is None else ProcessMark(**mark)
        fields["phase"] = None if phase is None else SessionPhase(phase)
        return cls(**fields)


def plain(_of: object, _field: object, value: object) -> object:
    """An enum's member as its value, for JSON."""
    return value.value if isinstance(value, Enum) else value


class Records:
    """The records of a repository, and the folders of the sessions that are not yet settled."""

    def __init__(self, root: Path) -> None:
        self._records, self._sessions = root / "records", root / "sessions"
        self._lock = FileLock(root / "records.lock")

    def read(self, graph_id: str, slice_id: str) -> Record | None:
        """None if the slice has had no attempt."""
        try:
            text = self._path(graph_id, slice_id).read_text("utf-8")
        except FileNotFoundError:
            return None
        return Record.from_json(text)

    def replace(self, record: Record) -> None:
        """Makes it the slice's record, whatever the one before was: whoever has that one is out."""
        with self._lock.held():
            write_whole(self._path(record.graph_id, record.slice_id), record.to_json())

    def update(self, record: Record, *, durably: bool = False) -> bool:
        """Writes what has become of an attempt; false, and nothing written, if it may not: `refusal` says why.

        One that was taken since can only be written to its end. One that somebody removed is written anew. At one
        stroke for who reads it, and for a kill; `durably` also for a loss of power.
        """
        with self._lock.held():
            if self.refusal(record):
                return False
            path, text = self._path(record.graph_id, record.slice_id), record.to_json()
            (write_durably if durably else write_whole)(path, text)
            return True

    def refusal(self, record: Record) -> str:
        """Why the attempt may not go on, in words; empty if it may.

        Without its record it may, unless another attempt at the slice has files here: who took it over made them.
        """
        latest = self.read(record.graph_id, record.slice_id)
        if latest is None:
            own = self.folder(record.graph_id, record.session)
            rivals = [path for path in own.parent.glob(f"{record.slice_id}@*") if path != own]
            return "its record was removed, and there is another attempt at this slice" if rivals else ""
        if latest.token != record.token:
            return "another process has taken this slice over, for a later attempt"
        if latest.taken and not record.taken and record.phase is None:
            return "another process has taken this graph over"
        return ""

    def take(self, record: Record) -> Record:
        """Keeps the slice's attempt, if it has not ended, from merging any more; its record as it is then.

        Called before its processes are told to stop by another process than its own. That one may live, suspended
        say, and would take an agent that heeds SIGTERM and exits with 0 for one that is done.
        """
        with self._lock.held():
            latest = self.read(record.graph_id, record.slice_id)
            if latest is None or latest.phase is not None:
                return latest or record
            taken = attrs.evolve(latest, taken=True)
            write_whole(self._path(record.graph_id, record.slice_id), taken.to_json())
            return taken

    def is_anothers(self, record: Record) -> bool:
        """Whether a session of the same name has taken its place, and its folder too."""
        latest = self.read(record.graph_id, record.slice_id)
        return latest is not None and latest.token != record.token and latest.session == record.session

    def folder(self, graph_id: str, session: str) -> Path:
        """Where the session's files are while it isn't settled."""
        return self._sessions / graph_id / session

    def unsettled(self) -> list[Record]:
        """The records of the sessions, of any graph, that have not come to an end: running, or left by a kill."""
        found = []
        for folder in sorted(self._sessions.glob("*/*")):
            record = self.read(folder.parent.name, folder.name.rpartition("@")[0])
            if record is not None and record.session == folder.name:
                found.append(record)
        return found

    def under_way(self, graph_id: str) -> list[Record]:
        """The records of the graph's attempts that have not ended, as far as is known."""
        found = (self.read(graph_id, path.stem) for path in sorted((self._records / graph_id).glob("*.json")))
        return [record for record in found if record is not None and record.phase is None]

    def prune(self, before: float) -> int:
        """Removes records that were last written before then (Unix seconds) and that nobody needs; says how many.

        Those are the merged ones whose merge is a commit: should an attempt be made again at such a slice, by a graph
        that never heard of the merge, main's history tells it. Of a slice that changed nothing only the record knows.
        """
        return sum(self._drop_merged(path) for path in self._records.glob("*/*.json") if path.stat().st_mtime < before)

    def resumable(self) -> set[str]:
        """The refs that the next attempts at slices go on from."""
        found = (self.read(path.parent.name, path.stem) for path in self._records.glob("*/*.json"))
        return {record.kept for record in found if record and record.resume and record.phase is not SessionPhase.MERGED}

    def forget(self, graph_id: str) -> None:
        """Removes all records of a graph that is over and will never be heard of again."""
        with self._lock.held(), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._records / graph_id)

    def drop_unfinished(self) -> None:
        """Removes what a kill left of records that were being written."""
        drop_unfinished(self._records, f"*/{UNFINISHED}", self._lock)

    def _drop_merged(self, path: Path) -> bool:
        with self._lock.held():  # under which it is read again: another attempt may have taken it over
            record = self.read(path.parent.name, path.stem)
            if record is None or record.phase is not SessionPhase.MERGED or not record.intended:
                return False
            if self.folder(record.graph_id, record.session).exists():
                return False
            path.unlink()
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
            return True

    def _path(self, graph_id: str, slice_id: str) -> Path:
        return self._records / graph_id / f"{slice_id}.json"


def write_whole(path: Path, text: str, *, synced: bool = False) -> None:
    """Replaces a file's contents: a reader, and a process killed meanwhile, finds the old text or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)


def write_durably(path: Path, text: str) -> None:
    """The same, and on the disk when it returns."""
    write_whole(path, text, synced=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def drop_unfinished(folder: Path, pattern: str, lock: FileLock) -> None:
    """Removes the files that match and that nobody is writing: who writes there holds the lock."""
    if any(folder.glob(pattern)):
        with lock.held():
            for path in folder.glob(pattern):
                path.unlink()
