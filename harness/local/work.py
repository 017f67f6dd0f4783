"""What an attempt left in its worktree: told, committed, kept.

The rule all of it serves: no byte that an agent wrote and git doesn't ignore is lost, unless it is on main.
"""

from __future__ import annotations

import attrs

from harness.local.errors import GitError, RefusedCommitError, StrayedError
from harness.local.git import Git
from harness.local.repository import Repository, listing
from harness.local.worktree import Worktree

BY_A_HOOK = 1  #: how `git commit` ends then; for what is wrong otherwise it has 128
UNPUSHED = "git status --porcelain && git rev-list --max-count=1 HEAD --branches --not --remotes"


@attrs.frozen
class Status:
    """A worktree as it stands. `head` is a commit, empty on an unborn branch; `branch` a full ref, empty if detached.

    `dirty`: a commit of everything would have something in it. `nested`: repositories inside it and submodules with
    uncommitted changes, none of which a commit can save.
    """

    head: str
    branch: str
    dirty: bool
    unmerged: tuple[str, ...]
    nested: tuple[str, ...]


def status_of(worktree: Worktree) -> Status:
    """Asks git. No setting of the worktree's hides anything but ignored files."""
    said = worktree.git(
        "status", "--porcelain=v2", "--branch", "-z", "--no-renames",
        "--untracked-files=normal", "--ignore-submodules=none",
    )  # fmt: skip
    head, branch = "", ""
    dirty = False
    unmerged: list[str] = []
    nested: list[str] = []
    for entry in filter(None, said.out.split("\0")):
        match entry[0]:
            case "#":
                _, name, value = entry.split(" ", 2)
                head = value if name == "branch.oid" and value != "(initial)" else head
                branch = f"refs/heads/{value}" if name == "branch.head" and value != "(detached)" else branch
            case "1":
                fields = entry.split(" ", 8)
                own_dirt = fields[2][0] == "S" and fields[2][2:] != ".."
                nested += [fields[8]] if own_dirt else []
                dirty = dirty or not own_dirt or fields[1] != ".M" or fields[2][1] == "C"
            case "u":
                unmerged.append(entry.split(" ", 10)[10])
                dirty = True
            case "?" if is_repository(worktree, entry[2:]):
                nested.append(entry[2:].rstrip("/"))
            case _:
                dirty = True
    return Status(head, branch, dirty, tuple(unmerged), tuple(nested))


def is_repository(worktree: Worktree, path: str) -> bool:
    return path.endswith("/") and (worktree.folder / path / ".git").exists()


def look(worktree: Worktree) -> Status:
    """Its status, with what follows for its use later noted in it. Called when nothing of the attempt runs any more."""
    worktree.drop_stale_locks()
    try:
        status = status_of(worktree)
    except GitError as error:
        if "index file" not in error.said:
            raise
        # it is beyond reading; without one, git goes by the files alone
        (worktree.git_dir / "index").replace(worktree.git_dir / "index.broken")
        status = status_of(worktree)
    worktree.unsavable = worktree.unsavable or unsavable(worktree, status)
    return status


def finished_work(worktree: Worktree, repository: Repository, branch: str, base: str, message: str) -> str:
    """The commit to merge for an attempt that says it is done: what is uncommitted is committed for it.

    Raises `StrayedError` if what it wants merged can't be told, and `RefusedCommitError` if a hook refuses the commit.
    """
    ref = f"refs/heads/{branch}"
    if not worktree.readable():
        worktree.unsavable = unreadable(worktree)
        return repository.tip(ref) or base  # the agent removed it: what it committed before is its work
    if not repository.tip(ref):  # the agent removed its own branch; its files are still relative to something
        worktree.git("update-ref", ref, base)
    status = look(worktree)
    if status.unmerged:
        raise StrayedError(f"conflicts were left unresolved in {listing(status.unmerged)}")
    if status.dirty:
        add_all(worktree.git, status)
        commit_all(worktree.git, message)
        status = attrs.evolve(status, head=worktree.git("rev-parse", "HEAD").line)
    return reconciled(repository, status, ref, base)


def commit_all(git: Git, message: str) -> None:
    """A commit of what is staged, if the hooks that the user has for it allow that."""
    try:
        # --allow-empty: a change of line ends, say, is a difference that leaves nothing to commit
        git("commit", "-q", "--allow-empty", "-F", "-", given=message)
    except GitError as error:
        if error.code == BY_A_HOOK:
            raise RefusedCommitError(error) from error
        raise


def reconciled(repository: Repository, status: Status, ref: str, base: str) -> str:
    """The one commit that has both what HEAD is at and what the attempt's branch has."""
    if status.branch == ref and status.head:
        return status.head
    tip = repository.tip(ref) or base
    if not status.head or repository.contains(status.head, tip):
        return tip
    if repository.contains(tip, status.head):
        return status.head
    where = status.branch.removeprefix("refs/heads/") or "a detached HEAD"
    raise StrayedError(f"commits were made both on {ref.removeprefix('refs/heads/')} and on {where}")


def keep_work(
    worktree: Worktree,
    repository: Repository,
    branch: str,
    base: str,
    name: str,
    message: str,
    *,
    awaited: bool = True,
) -> str:
    """Makes all that the attempt left safe; returns the ref that has it, empty if there is nothing but main's.

    Uncommitted changes become a commit that no hook sees. `base` is the commit the attempt began with, `name` what
    follows `refs/dispatch/keep/`; if nobody awaits the work by that name, what any ref has is safe. The branch, if one
    is named, is removed unless the user has it checked out.
    """
    tip = repository.tip(f"refs/heads/{branch}") if branch else ""
    if worktree.readable():
        head = snapshot(worktree, message)
    else:
        head, worktree.unsavable = tip, unreadable(worktree)
    main = repository.tip(repository.main_ref)
    kept = ""
    with repository.writing() as git:
        for commit in dict.fromkeys(filter(None, (base, tip, head))):
            if not repository.contains(commit, main) and (awaited or not repository.has_ref_to(commit)):
                kept = repository.keep(git, commit, name)
        if lines := farewell(worktree, repository, branch, head or base):
            git("update-ref", "--stdin", given=lines)
    return kept


def keep_commit(worktree: Worktree, repository: Repository, branch: str, commit: str, name: str) -> str:
    """The same for an attempt all of whose work is in one commit, whatever its worktree holds by now."""
    with repository.writing() as git:
        contained = repository.contains(commit, repository.tip(repository.main_ref))
        kept = "" if contained else repository.keep(git, commit, name)
        if lines := farewell(worktree, repository, branch, worktree_commit(worktree) or commit):
            git("update-ref", "--stdin", given=lines)
    return kept


def worktree_commit(worktree: Worktree) -> str:
    """The commit checked out; empty if that can't be told."""
    return worktree.git("rev-parse", "--verify", "-q", "HEAD", ok=(0, 1)).line if worktree.readable() else ""


def farewell(worktree: Worktree, repository: Repository, branch: str, commit: str) -> str:
    """Lines for `git update-ref --stdin`: the worktree leaves its branch for `commit`, and the branch goes.

    A branch that the user has checked out stays.
    """
    lines = ""
    if worktree.readable() and commit:
        lines = f"option no-deref\nupdate worktrees/{worktree.git_dir.name}/HEAD {commit}\n"
    ref = f"refs/heads/{branch}"
    if branch and branch != repository.main and repository.tip(ref) and not any(repository.checkouts(ref)):
        lines += f"delete {ref}\n"
    return lines


def snapshot(worktree: Worktree, message: str) -> str:
    """A commit of all that is in the worktree, on top of its HEAD; HEAD itself if that is all."""
    if worktree.untouched():
        return worktree_commit(worktree)
    status = look(worktree)
    if not status.dirty:
        return status.head
    git = worktree.git
    add_all(git, status)
    tree = git("write-tree").line
    parents = ("-p", status.head) if status.head else ()
    return git("commit-tree", tree, *parents, "-F", "-", given=message).line


def add_all(git: Git, status: Status) -> None:
    """Stages everything but repositories inside the worktree, which a commit could only name."""
    git("add", "-A", "--", ".", *(f":(top,exclude,literal){path}" for path in status.nested))


def unreadable(worktree: Worktree) -> str:
    """The same for one that git can't be asked about."""
    return "it is not registered with git any more" if worktree.holds_files() else ""


def unsavable(worktree: Worktree, status: Status) -> str:
    """Why what the worktree has can't be made safe by a commit; empty if it can."""
    if (worktree.folder / ".git").is_dir():
        return "it was made a repository of its own"
    if status.nested:
        return f"{listing(status.nested)}: a repository of its own, or a submodule with uncommitted changes"
    if (worktree.git_dir / "modules").exists():
        try:
            unpushed = worktree.git("submodule", "--quiet", "foreach", "--recursive", UNPUSHED).out
        except GitError as error:
            return str(error)
        return "a submodule has work that was not pushed" if unpushed else ""
    return ""
