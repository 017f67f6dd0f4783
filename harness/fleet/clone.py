"""A worker's clone: a bare repository of its own, in which it runs agents for whoever shares its remote.

The remote is the worker's setting, never a turn's: what comes from a queue says which branches, not which machine.
Several processes may share a clone. What a turn needs lies under names that are its work item's alone; it is removed
when its work is on the remote.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import attrs
import platformdirs

from harness.fleet.agent_turn import main_branch, work_branch, work_branches
from harness.fleet.envelope import opaque
from harness.fleet.errors import InvalidSettingError
from harness.local.errors import GitError
from harness.local.git import Git, require_git
from harness.local.lock import FileLock
from harness.local.merge import combine
from harness.local.record import Records
from harness.local.repository import identity_of
from harness.session import Assignment

REMOTE, CLONE = "AGENT_DISPATCH_REMOTE", "AGENT_DISPATCH_CLONE"
ABSENT = re.compile(r"couldn't find remote ref")
STALE = re.compile(r"stale info|fetch first|reference already exists|cannot lock ref")


class NoMainError(Exception):
    """The remote has no branch with the graph's main: it isn't the remote that the graph's scheduler pushes to."""


@attrs.frozen
class Start:
    """What a turn begins with, in commits.

    `main` is the graph's main. `begun` is what the remote's work branch had when this attempt began; empty if it is not
    there. `commit` is what the agent begins with: main, with `begun` unless the two `conflict`.
    """

    main: str
    begun: str
    commit: str
    conflict: bool


@attrs.frozen
class Clone:
    """A bare repository at `folder`, of which `remote` is the only remote."""

    folder: Path
    remote: str
    git: Git

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Clone:
        """The one that the environment names, made if it isn't there. Raises `InvalidSettingError`, `RepositoryError`
        and `GitError`."""
        remote = checked_remote(environ.get(REMOTE, ""))
        default = platformdirs.user_data_path("slice-dispatch") / "fleet" / f"{opaque(remote)[:12]}.git"
        return cls.open(Path(environ.get(CLONE) or default), remote)

    @classmethod
    def open(cls, folder: Path, remote: str) -> Clone:
        """Made if it isn't there. Raises the same."""
        folder = folder.absolute()
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder.with_name(f"{folder.name}.lock"))
        except OSError as error:
            raise InvalidSettingError(CLONE, f"can't be made: {error.strerror}") from error
        with lock.held():
            require_git(folder.parent)
            if not (folder / "HEAD").exists():
                Git(folder.parent)("init", "--quiet", "--bare", "--", str(folder))
            git = Git(folder, {"GIT_DIR": str(folder)})
            known = git("config", "--get", "remote.origin.url", ok=(0, 1)).line
            if known not in ("", remote):
                raise InvalidSettingError(
                    CLONE, f"is a clone of another remote than {REMOTE} names; name another folder"
                )
            if not known:
                git("config", "remote.origin.url", remote)
        return cls(folder, remote, unattended(attrs.evolve(git, extra={**git.extra, **identity_of(git)})))

    def own_name(self, assignment: Assignment) -> str:
        """What the attempt is known by here, as a graph of its own: hosts of other turns then leave it alone."""
        return opaque(assignment.graph_id, assignment.assignment_id)

    def own_branch(self, assignment: Assignment) -> str:
        """The branch here that the attempt takes for main."""
        return f"dispatch-fleet/{self.own_name(assignment)}"

    def begin(self, assignment: Assignment) -> Start:
        """Fetches, and sets the attempt's own main to what it begins with. Raises `NoMainError`, `GitError`."""
        refs = self._refs(assignment)
        specs = (
            f"+refs/heads/{main_branch(assignment.graph_id)}:{refs}/main",
            f"+refs/heads/{work_branches(assignment)}/*:{refs}/work/*",
        )
        try:
            self.git("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--prune", "--", "origin", *specs)
        except GitError as error:
            if ABSENT.search(error.said):
                raise NoMainError from error
            raise
        main, begun = self._tip(f"{refs}/main"), self._tip(f"{refs}/work/{assignment.attempt}")
        commit, conflict = self._both(main, begun)
        self.git("update-ref", f"refs/heads/{self.own_branch(assignment)}", commit)
        return Start(main, begun, commit, conflict)

    def contains(self, ancestor: str, descendant: str) -> bool:
        """Whether the history of `descendant` has `ancestor`."""
        return self.git("merge-base", "--is-ancestor", ancestor, descendant, ok=(0, 1)).code == 0

    def tip(self, ref: str) -> str:
        """The commit that a ref of the clone stands for; empty if there is none."""
        return self._tip(ref)

    def push(self, assignment: Assignment, commit: str, expected: str) -> str:
        """Makes the remote's work branch `commit` if it is still `expected` (empty: not there); else what it is by now.

        Empty once it is pushed. Raises `GitError` for whatever else is in the way.
        """
        ref = f"refs/heads/{work_branch(assignment)}"
        words = ("push", "--quiet", "--no-verify", f"--force-with-lease={ref}:{expected}", "--", "origin")
        try:
            self.git(*words, f"{commit}:{ref}")
        except GitError as error:
            there = self.git("ls-remote", "--", "origin", ref).out.partition("\t")[0].strip()
            if there == commit:
                return ""
            if STALE.search(error.said) and there != expected:
                return there
            raise
        return ""

    def forget(self, assignment: Assignment, kept: str) -> None:
        """Removes what the attempt left here, its work being on the remote. `kept` is the ref that has it, if any."""
        refs = self._refs(assignment)
        names = self.git("for-each-ref", "--format=%(refname)", f"{refs}/").line.splitlines()
        names += [f"refs/heads/{self.own_branch(assignment)}", *filter(None, [kept])]
        self.git("update-ref", "--stdin", given="".join(f"delete {name}\n" for name in names if self._tip(name)))
        Records(self.folder / "dispatch").forget(self.own_name(assignment))

    def work_ref(self, assignment: Assignment) -> str:
        """The ref here that has what the remote's work branch had when the attempt began."""
        return f"{self._refs(assignment)}/work/{assignment.attempt}"

    def _refs(self, assignment: Assignment) -> str:
        return f"refs/dispatch/fleet/{self.own_name(assignment)}"

    def _tip(self, ref: str) -> str:
        return self.git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", ok=(0, 1)).line

    def _both(self, main: str, begun: str) -> tuple[str, bool]:
        """A commit that has both; main alone, and true, if they conflict."""
        if not begun or self.contains(begun, main):
            return main, False
        if self.contains(main, begun):
            return begun, False
        both = combine(self.git, main, begun, "Merge main into the work kept of an earlier attempt")
        return both or main, not both


def unattended(git: Git) -> Git:
    """The same, whose ssh fails rather than ask what nobody would see; unless it was told which ssh to use, and how."""
    told = any(os.environ.get(name) for name in ("GIT_SSH", "GIT_SSH_COMMAND"))
    if told or git("config", "--get", "core.sshCommand", ok=(0, 1)).line:
        return git
    return attrs.evolve(git, extra={**git.extra, "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"})


def remote_problems(environ: Mapping[str, str]) -> tuple[InvalidSettingError, ...]:
    """What is wrong with the remote that the environment names. It need name none."""
    try:
        if environ.get(REMOTE):
            checked_remote(environ[REMOTE])
    except InvalidSettingError as problem:
        return (problem,)
    return ()


def checked_remote(remote: str) -> str:
    """Raises `InvalidSettingError` unless git could take it for a repository's address."""
    if not remote:
        raise InvalidSettingError(REMOTE, "is not set; name the git repository that agents' work is pushed to")
    if remote.startswith("-") or not remote.isprintable():
        raise InvalidSettingError(
            REMOTE, "is no address of a git repository: it begins with a dash, or can't be printed"
        )
    return str(Path(remote).absolute()) if Path(remote).is_dir() else remote
