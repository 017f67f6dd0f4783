"""A user's repository, as the host sees it: where it is, what main is, and the steps that write to it.

Everything of ours lies under `<git common dir>/dispatch`, where `git status` doesn't look: worktrees, sessions, locks.
Steps that write what worktrees share (refs, registrations) hold one lock, between threads and between processes.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from harness.local.errors import GitError, RepositoryError
from harness.local.git import Git, Output, require_git
from harness.local.lock import FileLock
from harness.text import sanitize

OBJECT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
KEEP = "refs/dispatch/keep"
UNFINISHED = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
}
NOBODY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "dispatch"), ("EMAIL", "dispatch@localhost"))
}


@attrs.frozen
class Checkout:
    """A work tree of the user's that has main checked out: its git directory and its folder."""

    git_dir: Path
    folder: Path

    def git(self, repository: Repository) -> Git:
        """Runs git there, wherever the folder's own `.git` may point."""
        return Git(
            self.folder, {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.folder)} | dict(repository.identity)
        )


@attrs.frozen
class Repository:
    """`common` is the git common directory, resolved; `main` a branch's short name; `home` the main work tree, if any.

    `identity` holds the variables that name an author where the user has configured none.
    """

    common: Path
    main: str
    home: Path | None
    identity: Mapping[str, str]
    lock: FileLock
    git: Git

    @classmethod
    def open(cls, folder: Path, main: str | None = None) -> Repository:
        """Raises `RepositoryError`, one line that says the way out, for a repository that can't be worked with."""
        common, home = locate(folder)
        git = Git(common, {"GIT_DIR": str(common)})
        branch = main or current_branch(folder)
        if not git("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}", ok=(0, 1)).line:
            raise missing_branch(git, folder, branch)
        identity = identity_of(git)
        lock = FileLock(common / "dispatch" / "lock")
        return cls(common, branch, home, identity, lock, attrs.evolve(git, extra={**git.extra, **identity}))

    @property
    def root(self) -> Path:
        """Where everything of ours lies."""
        return self.common / "dispatch"

    @property
    def main_ref(self) -> str:
        return f"refs/heads/{self.main}"

    @contextlib.contextmanager
    def writing(self) -> Iterator[Git]:
        """Alone among all that write what worktrees share; the commands run by its git keep it so if we are killed."""
        with self.lock.held() as descriptor:
            yield self.git.holding(descriptor)

    def tip(self, ref: str) -> str:
        """The object a full ref name stands for; empty if there is none.

        A loose ref is read from its file, which is what git does too and takes no process.
        """
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = (self.common / ref).read_text("ascii").strip()
            if OBJECT.fullmatch(text):
                return text
        return self.git("rev-parse", "--verify", "--quiet", ref, ok=(0, 1)).line

    def contains(self, ancestor: str, descendant: str) -> bool:
        """Whether the history of `descendant` has `ancestor`; false if either is no commit here."""
        return (
            ancestor == descendant
            or self.git("merge-base", "--is-ancestor", ancestor, descendant, ok=(0, 1, 128)).code == 0
        )

    def on_main(self, name: str) -> bool:
        """Whether main has the commit that a branch, else a revision, of that name stands for; false if none does."""
        if name.startswith("-") or not name.isprintable():
            return False
        ref = f"refs/heads/{name}"
        return self.contains(ref if self.tip(ref) else name, self.main_ref)

    def keep(self, git: Git, commit: str, name: str) -> str:
        """A ref under `refs/dispatch/keep/` that has `commit`, so that neither we nor a gc can lose it.

        Called while `writing`. A name that another commit has is left to it: the new one gets a number.
        """
        for number in range(1, 10_000):
            ref = f"{KEEP}/{name}" + (f"-{number}" if number > 1 else "")
            taken = self.tip(ref)
            if taken == commit or (taken and self.contains(commit, taken)):
                return ref
            if not taken or self.contains(taken, commit):
                git("update-ref", "--create-reflog", "-m", "dispatch: keep", ref, commit)
                return ref
        raise RepositoryError(f"{KEEP}/{name} has 10,000 successors; look through them with: git for-each-ref {KEEP}")

    def has_ref_to(self, commit: str) -> bool:
        """Whether the history of some ref, whichever, has the commit."""
        return bool(self.git("for-each-ref", "--count=1", "--format=x", f"--contains={commit}").line)

    def kept_on_main(self) -> list[tuple[str, str]]:
        """The refs under `refs/dispatch/keep/`, with their commits, that main has by now."""
        said = self.git("for-each-ref", f"--merged={self.main_ref}", "--format=%(refname) %(objectname)", KEEP).line
        return [(ref, commit) for ref, _, commit in (line.partition(" ") for line in said.splitlines())]

    def checkouts(self, ref: str) -> Iterator[Checkout]:
        """The user's work trees that have the branch checked out now. Read from files: it may change at any time."""
        return (checkout for checkout in self.work_trees() if head_of(checkout.git_dir) == f"ref: {ref}")

    def work_trees(self) -> Iterator[Checkout]:
        """All work trees of the user's; one whose folder is gone is none any more."""
        if self.home is not None:
            yield Checkout(self.common, self.home)
        for git_dir in linked(self.common):
            folder = folder_of(git_dir)
            if folder is not None and folder.is_dir() and self.root not in folder.parents:
                yield Checkout(git_dir, folder)

    def check_checkouts(self) -> None:
        """Raises `RepositoryError` if a work tree of the user's has something under way that merges would disturb."""
        for checkout in self.work_trees():
            on_main = head_of(checkout.git_dir) == f"ref: {self.main_ref}"
            for name, what in UNFINISHED.items():
                if (checkout.git_dir / name).exists() and (on_main or self._rebases_main(checkout)):
                    raise RepositoryError(
                        f"a {what} is unfinished in {checkout.folder};"
                        f" finish it, or give it up with: git {what} --abort"
                    )
            changed = dirty_paths(checkout.git(self)) if on_main else []
            if changed:
                raise RepositoryError(
                    f"{self.main} is checked out in {checkout.folder} with uncommitted changes to {listing(changed)};"
                    " commit them, or put them aside with: git stash"
                )

    def _rebases_main(self, checkout: Checkout) -> bool:
        """Whether a rebase of main is under way there. HEAD is detached meanwhile; main moves at the end."""
        for name in ("rebase-merge", "rebase-apply"):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                if (checkout.git_dir / name / "head-name").read_text("utf-8").strip() == self.main_ref:
                    return True
        return False


def locate(folder: Path) -> tuple[Path, Path | None]:
    """The git common directory and the main work tree of the repository that `folder` is in."""
    if not folder.is_dir():
        raise RepositoryError(f"{folder} is no folder; name a git repository")
    require_git(folder)
    try:
        said = Git(folder)("rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-common-dir")
        git_dir = Git(folder)("rev-parse", "--path-format=absolute", "--git-dir")
    except GitError as error:
        if "not a git repository" in error.said:
            raise RepositoryError(f"{folder} is not in a git repository; make one with: git init") from error
        raise RepositoryError(str(error)) from error
    bare, _, common = path_of(said).partition("\n")
    if bare == "true":
        return Path(common).resolve(), None
    return Path(common).resolve(), main_work_tree(folder, Path(common), Path(path_of(git_dir)))


def path_of(said: Output) -> str:
    """The path at the end of an answer; it may itself end with a newline."""
    return said.out.removesuffix("\n")


def main_work_tree(folder: Path, common: Path, git_dir: Path) -> Path | None:
    """The work tree that is no linked one; None if its place isn't recorded and `folder` isn't in it."""
    top = Git(folder)("rev-parse", "--show-toplevel", ok=(0, 128))
    if git_dir == common and top.code == 0:
        return Path(path_of(top)).resolve()
    configured = path_of(Git(common, {"GIT_DIR": str(common)})("config", "--get", "core.worktree", ok=(0, 1)))
    if configured:
        return (common / configured).resolve()
    is_bare = Git(common, {"GIT_DIR": str(common)})("config", "--get", "--bool", "core.bare", ok=(0, 1)).line == "true"
    return None if is_bare or common.name != ".git" else common.parent.resolve()


def current_branch(folder: Path) -> str:
    """The branch checked out in `folder`."""
    said = Git(folder)("symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1))
    if said.code:
        raise RepositoryError(f"HEAD is detached in {folder}; check the branch to merge into out, or name it as main")
    return said.line


def missing_branch(git: Git, folder: Path, branch: str) -> RepositoryError:
    """Why there is no commit on the branch."""
    if git("rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1)).code and not git("for-each-ref", "--count=1").line:
        return RepositoryError(f"{folder} has no commit yet; make one with: git commit --allow-empty -m 'first commit'")
    return RepositoryError(f"there is no branch {branch!r} in {folder}; make it with: git branch {branch}")


def identity_of(git: Git) -> Mapping[str, str]:
    """The variables needed to commit: none where the user has said who they are."""
    said = git("config", "--get-regexp", r"^user\.(name|email)$", ok=(0, 1)).line
    known = {line.split(" ", 1)[0] for line in said.split("\n")}
    missing = {field for field in ("name", "email") if f"user.{field}" not in known}
    return {
        name: value
        for name, value in NOBODY.items()
        if name.rsplit("_", 1)[1].lower() in missing and name not in os.environ
    }


def dirty_paths(git: Git) -> list[str]:
    """Tracked files that differ from the commit checked out; a submodule's own dirt doesn't count."""
    said = git("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
    return [entry[3:] for entry in said.out.split("\0") if entry]


def head_of(git_dir: Path) -> str:
    try:
        return (git_dir / "HEAD").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def linked(common: Path) -> Iterator[Path]:
    """The git directories of all linked worktrees."""
    with contextlib.suppress(FileNotFoundError), os.scandir(common / "worktrees") as entries:
        yield from sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))


def folder_of(git_dir: Path) -> Path | None:
    """The folder a linked worktree is registered for; None if the registration can't be read."""
    try:
        return Path(os.fsdecode((git_dir / "gitdir").read_bytes()).strip()).parent
    except OSError:
        return None


def listing(paths: Sequence[str], most: int = 3) -> str:
    """The first few of them in words."""
    shown = ", ".join(sanitize(path, 100) for path in paths[:most])
    return shown + (f" and {len(paths) - most} more" if len(paths) > most else "")
