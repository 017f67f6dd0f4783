"""Pooled worktrees: a folder to work in, held by one process at a time, cleaned and used again.

A worktree that exists is made ready in a fraction of the time that a new one takes. Each has a lock file beside it: a
process holds the lock for as long as it uses the worktree, and leaves a note in the file of the session it uses it for.
A lock that is free beside a note that names a session is what a killed process leaves; what the session left must be
settled before the worktree is used again.

Git is always told where a worktree's git directory and folder are, never left to find out: a worktree that lost its
`.git` file can't be mistaken for the repository around it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import attrs

from harness.local.errors import GitError, RepositoryError
from harness.local.git import Git
from harness.local.lock import FileLock
from harness.local.repository import Repository, linked

# What git keeps in a worktree's git directory between two commands. Anything else, such as an unfinished rebase or a
# sparse checkout, would reach the next attempt: such a worktree is not used again.
USUAL = frozenset(
    {"HEAD", "ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "AUTO_MERGE", "commondir", "gitdir", "index", "logs", "refs"}
)


@attrs.frozen
class Note:
    """What a worktree's lock file says: its git directory, the session it is used for, why it is kept aside."""

    git_dir: str = ""
    session: str = ""
    aside: str = ""

    @classmethod
    def parse(cls, text: str) -> Note:
        """A note that was cut short by a kill reads as one that names nothing."""
        try:
            fields = json.JSONDecoder().raw_decode(text)[0]
            return cls(**{name: str(fields[name]) for name in ("git_dir", "session", "aside")})
        except (ValueError, KeyError, TypeError):
            return cls()

    def text(self) -> str:
        return json.dumps(attrs.asdict(self)) + "\n"


@attrs.define(eq=False)
class Worktree:
    """One that this process holds. `leftover` names the session a killed process used it for.

    `unsavable`: why a commit can't save all that is in it.
    """

    folder: Path
    git_dir: Path
    lock: FileLock
    repository: Repository
    leftover: str = ""
    unsavable: str = ""
    index_stamp: tuple[int, int] = (0, 0)

    @property
    def git(self) -> Git:
        """Runs git in it. Its commands hold the worktree's lock: it stays ours until they end, should we be killed."""
        return Git(
            self.folder,
            {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.folder), **self.repository.identity},
            (self.lock.descriptor,),
        )

    def intact(self) -> bool:
        """Whether folder and registration still belong together; an agent may have removed or replaced either."""
        try:
            return self.readable() and (self.folder / ".git").read_bytes() == os.fsencode(f"gitdir: {self.git_dir}\n")
        except OSError:
            return False

    def readable(self) -> bool:
        """Whether git, told where both are, can still say what is in it, be its `.git` file as it may."""
        try:
            return stat.S_ISDIR(self.folder.lstat().st_mode) and (self.git_dir / "HEAD").is_file()
        except OSError:
            return False

    def holds_files(self) -> bool:
        """Whether there is anything in its folder that is its own; a link in its place leads to something else's."""
        if self.folder.is_symlink() or not self.folder.is_dir():
            return False
        return any(path.name != ".git" or path.is_dir() for path in self.folder.iterdir())

    def untouched(self) -> bool:
        """Whether nothing was ever checked out in it, which git would take for the removal of every file."""
        return not (self.git_dir / "index").exists() and not self.holds_files()

    def note(self, session: str = "", aside: str = "") -> None:
        """Writes down, for whoever holds the lock next, what it is used for."""
        self.lock.write(Note(str(self.git_dir), session, aside).text())

    def check_out(self, branch: str, commit: str) -> None:
        """Makes it hold exactly `commit`, on a new branch of that name. Called on one whose work is safe.

        Raises `GitError` if the branch exists, or if a hook refuses.
        """
        self.sweep()
        self.unsavable = ""
        self.git("checkout", "-q", "-f", "--no-track", "-b", branch, commit, "--")
        self.index_stamp = self._stamp()

    def check_out_detached(self, commit: str) -> None:
        """Makes it hold exactly `commit`, on no branch. Called on one whose work is safe."""
        self.sweep()
        self.git("checkout", "-q", "-f", "--detach", commit, "--")

    def sweep(self) -> None:
        """Removes what isn't tracked: ignored files too, and empty folders, of which `git status` says nothing."""
        assert self.intact()
        self.drop_stale_locks()
        self.git("clean", "-ffdxq")

    def drop_stale_locks(self) -> None:
        """Removes git's locks on this worktree alone. Called when nothing runs in it: we hold it and its agent is gone,
        so that nobody can be holding them."""
        if self.git_dir.name:  # else it has no registration, and there is nothing to unlock
            for name in ("index.lock", "HEAD.lock"):
                (self.git_dir / name).unlink(missing_ok=True)

    def reusable(self) -> bool:
        """Whether the next attempt would find it as new."""
        if not self.intact():
            return False
        with os.scandir(self.git_dir) as entries:
            if any(entry.name not in USUAL for entry in entries):
                return False
        return self._stamp() == self.index_stamp or not self._hidden_changes()

    def _stamp(self) -> tuple[int, int]:
        """Tells an index that was written since from one that wasn't. Before the first checkout there is none."""
        try:
            status = (self.git_dir / "index").stat()
        except FileNotFoundError:
            return 0, 0
        return status.st_mtime_ns, status.st_ino

    def _hidden_changes(self) -> bool:
        """Whether git was told to look away from a file (assume-unchanged, skip-worktree)."""
        said = self.git("ls-files", "-z", "-v")
        return any(entry[0] == "S" or entry[0].islower() for entry in said.out.split("\0") if entry)


class Pool:
    """The worktrees of a repository. Safe to use from many threads."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self.folder = repository.root / "worktrees"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._mutex = threading.Lock()
        self._free: list[Worktree] = []

    def acquire(self, save: Callable[[Worktree], None]) -> Worktree:
        """One that is intact and whose work is safe: of our own, of a process that is gone, or new.

        `save` is called on one that another process left, before anything in it changes. It may raise; the worktree
        then stays as it is, for later. Raises `GitError` if none can be made.
        """
        with self._mutex:
            worktree = self._free.pop() if self._free else None
        if worktree is not None:
            return worktree if worktree.intact() else self._made_anew(worktree)
        number = 0
        while True:
            number += 1
            worktree = self._take(number, save)
            if worktree is not None:
                return worktree

    def hold(self, folder: str) -> Worktree | None:
        """The worktree of that name as it is, None if somebody holds it. Its `leftover` says what it was used for."""
        lock = FileLock(self.folder / f"{folder}.lock")
        if not lock.try_hold():
            lock.release()
            return None
        note = Note.parse(lock.read())
        return Worktree(self.folder / folder, Path(note.git_dir), lock, self._repository, note.session)

    def release(self, worktree: Worktree) -> None:
        """Takes back one whose work is safe, or can't be made so: then it stays as it is, and is never used again."""
        if worktree.unsavable:
            worktree.note(aside=worktree.unsavable)
            worktree.lock.release()
            return
        worktree.drop_stale_locks()
        if not worktree.reusable():
            self._remove(worktree)
            worktree.lock.release()
            return
        worktree.note()
        with self._mutex:
            self._free.append(worktree)

    def leave(self, worktree: Worktree) -> None:
        """Lets go of one as it is; its note tells the next holder what must be saved."""
        worktree.lock.release()

    def close(self) -> None:
        """Lets go of those not in use; they stay for the next process."""
        with self._mutex:
            free, self._free = self._free, []
        for worktree in free:
            worktree.lock.release()

    def _take(self, number: int, save: Callable[[Worktree], None]) -> Worktree | None:
        """The worktree of that number, made if it isn't there; None if it can't be used."""
        lock = FileLock(self.folder / f"{number}.lock")
        try:
            if not lock.try_hold() or (note := Note.parse(lock.read())).aside:
                lock.release()
                return None
            worktree = Worktree(self.folder / str(number), Path(note.git_dir), lock, self._repository, note.session)
            if note.git_dir or worktree.folder.exists():
                self._find_registration(worktree)
                save(worktree)
                if worktree.unsavable:
                    self.release(worktree)
                    return None
                worktree.drop_stale_locks()
                if worktree.reusable():
                    worktree.note()
                    return worktree
        except BaseException:
            lock.release()
            raise
        return self._made_anew(worktree)

    def _made_anew(self, worktree: Worktree) -> Worktree:
        """The same, made anew, if it was there and lost its folder, its registration or its good order."""
        try:
            if worktree.git_dir.name or worktree.folder.exists():
                self._remove(worktree)
            self._add(worktree)
        except BaseException:
            worktree.lock.release()
            raise
        return worktree

    def _find_registration(self, worktree: Worktree) -> None:
        """Fills in the git directory where the note had none: the process was killed before it could be written."""
        if not worktree.git_dir.name:
            for git_dir in linked(self._repository.common):
                if (git_dir / "gitdir").read_bytes().strip() == os.fsencode(worktree.folder / ".git"):
                    worktree.git_dir = git_dir

    def _add(self, worktree: Worktree) -> None:
        """Makes the worktree, with no file in it yet. One that can't be made leaves neither folder nor registration."""
        folder = worktree.folder
        main = self._repository.main_ref
        try:
            with self._repository.writing() as git:
                # -f: a registration whose folder is gone is no hindrance
                git = git.holding(worktree.lock.descriptor)
                git("worktree", "add", "-f", "-f", "--no-checkout", "--detach", "--", str(folder), main)
            worktree.git_dir = registered(folder, self._repository)
        except (GitError, RepositoryError, OSError):
            self._remove(worktree)
            raise
        worktree.leftover = ""
        worktree.note()

    def _remove(self, worktree: Worktree) -> None:
        """Removes folder and registration of one whose work is safe. It is there no more, whatever state it was in."""
        folder = worktree.folder
        if folder.is_symlink():
            folder.unlink()
        with self._repository.writing() as git:
            if folder.exists():
                shutil.rmtree(folder)
            with contextlib.suppress(GitError):  # it was not registered, which is just as well
                git.holding(worktree.lock.descriptor)("worktree", "remove", "-f", "-f", "--", str(folder))
        worktree.lock.write("")


def registered(folder: Path, repository: Repository) -> Path:
    """The git directory that the new worktree's `.git` file names."""
    text = os.fsdecode((folder / ".git").read_bytes())
    git_dir = Path(text.removeprefix("gitdir: ").rstrip("\n"))
    if git_dir.parent != repository.common / "worktrees":
        raise RepositoryError(f"{folder} was registered in an unexpected place: {git_dir}")
    return git_dir
