"""Merging into main without a work tree: computed beside it, then one compare-and-swap.

main is always the old commit or the new one; no MERGE_HEAD exists at any moment. Where the user has main checked out,
their files go along. They go first: `git read-tree` moves them or refuses without having touched any, and a commit
that the user makes in between then has the merged files, where in the other order it would take them back. A journal
beside the lock says what was under way, so that a kill in between is made good at the next step.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from harness.local.errors import GitError, RepositoryError
from harness.local.git import LOCKED, Git
from harness.local.record import UNFINISHED, drop_unfinished, write_durably
from harness.local.repository import Checkout, Repository, head_of, listing
from harness.local.trail import left_at, note_passage
from harness.text import sanitize

logger = logging.getLogger(__name__)

PATH_LIMIT = 100


# What `git read-tree` says of the first file that it would have to overwrite.
CHANGED = re.compile(r"Entry '(.+)' (?:not uptodate|would be overwritten by merge)\. Cannot merge\.")
UNTRACKED = re.compile(r"Untracked working tree file '(.+)' would be \w+ by merge\.")


class CheckoutInTheWayError(RepositoryError):
    """The user's checkout of main has changes that the merge would overwrite. Nothing was merged, nothing touched.

    `.words` is what is in the way, without the way out.
    """

    def __init__(self, message: str, words: str = "") -> None:
        super().__init__(message)
        self.words = words or message


@attrs.frozen
class Merged:
    """A merge that no ref has yet: the commit, and main as it was computed from."""

    commit: str
    main: str


@attrs.frozen
class Conflict:
    """The paths, relative to the root, that both sides changed."""

    paths: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"merge conflict in {listing(self.paths, most=5)}"


def merge(git: Git, main: str, work: str, message: str) -> Merged | Conflict:
    """The merge of two commits, computed in the object store alone. Raises `GitError` without a common history."""
    said = git("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", main, work, ok=(0, 1))
    tree, *paths = said.out.rstrip("\0").split("\0")
    if said.code == 1:
        return Conflict(tuple(paths))
    return Merged(git("commit-tree", tree, "-p", main, "-p", work, "-F", "-", given=message).line, main)


def combine(git: Git, main: str, work: str, message: str) -> str:
    """A commit that has both, to begin an attempt with; empty if they don't merge cleanly."""
    try:
        outcome = merge(git, main, work, message)
    except GitError:
        return ""
    return outcome.commit if isinstance(outcome, Merged) else ""


def advance(repository: Repository, git: Git, merged: Merged, then: str, confirm: Callable[[], None]) -> bool:
    """Moves main from `merged.main` to `merged.commit`; False if main isn't there any more.

    Called while `writing`, with that git. `then` are further lines for `git update-ref --stdin`, done at the same
    stroke. `confirm` is called when all else is known to be well: it notes the intended commit, or raises. Raises
    `CheckoutInTheWayError`, and `GitError` if a hook refuses.
    """
    if repository.tip(repository.main_ref) != merged.main:
        return False
    confirm()
    with files_moved(repository, merged) as undo:
        refused = update_main(repository, git, merged, then)
        if refused is None:
            return True
        undo()
    if repository.tip(repository.main_ref) != merged.main:
        return False
    raise refused


@contextlib.contextmanager
def files_moved(repository: Repository, merged: Merged) -> Iterator[Callable[[], None]]:
    """The user's checkouts of main hold the merged files within the block; its value takes them back to main."""
    if not any(repository.work_trees()):
        yield lambda: None
        return
    checkouts = list(repository.checkouts(repository.main_ref))
    moved: dict[Checkout, tuple[int, int]] = {}
    undone = False

    def undo() -> None:
        nonlocal undone
        undone = True
        for checkout, stamp in moved.items():
            if index_stamp(checkout) != stamp:  # else a file that the index lost stays, and is in the next try's way
                mend_index(repository, checkout, merged)
            move_files(repository, checkout, merged.commit, repository.tip(repository.main_ref))
        moved.clear()

    write_durably(journal_of(repository), journal_text(checkouts, merged))
    try:
        for checkout in checkouts:
            move_files(repository, checkout, merged.main, merged.commit)
            moved[checkout] = index_stamp(checkout)
    except (CheckoutInTheWayError, GitError):
        undo()
        journal_of(repository).unlink()
        raise
    yield undo
    if not undone:
        follow(repository, merged, moved)
    journal_of(repository).unlink()


def follow(repository: Repository, merged: Merged, moved: Mapping[Checkout, tuple[int, int]]) -> None:
    """Once main has moved: brings along who came to main meanwhile, mends, and notes all that.

    Who left main meanwhile keeps the merged files, staged: taking them back could meet their next checkout of main, and
    would take them out of that.

    An error is logged, as main has the merge; who was left behind is looked at again by `catch_up`.
    """
    along = set()
    for checkout in repository.work_trees():
        on_main = head_of(checkout.git_dir) == f"ref: {repository.main_ref}"
        try:
            if on_main and checkout not in moved:
                move_files(repository, checkout, merged.main, merged.commit)
            elif on_main and index_stamp(checkout) != moved[checkout]:
                mend_index(repository, checkout, merged)
        except (RepositoryError, GitError, OSError) as error:
            logger.warning("the files in %s did not go along with a merge: %s", checkout.folder, error)
            continue
        along |= {checkout} if on_main else set()
    note_passage(repository, merged.main, along)


def catch_up(repository: Repository) -> None:
    """Brings along the checkouts of main that a merge left behind: nothing of what a person changed is touched.

    Called at the start, before each merge, and at the end.
    """
    behind = {checkout: left_at(repository, checkout) for checkout in repository.checkouts(repository.main_ref)}
    if not any(behind.values()):
        return
    with repository.writing():
        for checkout in repository.checkouts(repository.main_ref):
            old, tip = left_at(repository, checkout), repository.tip(repository.main_ref)
            if not old or not tip or old == tip:
                continue
            try:
                move_files(repository, checkout, old, tip)
                note_passage(repository, "", [checkout])
            except (RepositoryError, GitError) as error:
                logger.warning("the files in %s are behind %s: %s", checkout.folder, repository.main, error)


def update_main(repository: Repository, git: Git, merged: Merged, then: str) -> GitError | None:
    """The compare-and-swap. What git said, if main did not move."""
    swap = f"update {repository.main_ref} {merged.commit} {merged.main}\n"
    try:
        git("update-ref", "-m", "dispatch: merge", "--stdin", given=swap + then)
    except GitError as error:
        # git may have been ended after the swap and before it could say so: main itself knows
        return None if repository.tip(repository.main_ref) == merged.commit else error
    return None


def check_room(repository: Repository, merged: Merged) -> None:
    """Raises `CheckoutInTheWayError` if the user's checkouts of main could not take the merge now.

    Called while `writing`. It looks through a copy of the index, so that a git command of the user's is never kept from
    locking the true one.
    """
    copy = repository.root / "probe.index"
    for checkout in repository.checkouts(repository.main_ref):
        git = checkout.git(repository)
        git = attrs.evolve(git, extra={**git.extra, "GIT_INDEX_FILE": str(copy)})
        try:
            with contextlib.suppress(FileNotFoundError):  # git takes a missing index for an empty one
                shutil.copy2(checkout.git_dir / "index", copy)
            read_tree(repository, checkout, git, "-n", "-m", "-u", merged.main, merged.commit)
        finally:
            copy.unlink(missing_ok=True)


def move_files(repository: Repository, checkout: Checkout, old: str, new: str) -> None:
    """Takes the checkout's files and index from one commit to another, as a fast-forward would.

    Changes of the user's own stay, in files that are the same in both. Raises `CheckoutInTheWayError`, with nothing
    touched, if a file differs that would have to change.
    """
    read_tree(repository, checkout, checkout.git(repository), "-m", "-u", old, new)


def read_tree(repository: Repository, checkout: Checkout, git: Git, *words: str) -> None:
    """`git read-tree`, which moves all the files it is told to, or none: then `CheckoutInTheWayError` is raised."""
    git = git.holding(repository.lock.descriptor)
    try:
        try:
            git("read-tree", *words)
        except GitError as error:
            if LOCKED.search(error.said):
                raise
            # a file may only look changed: written anew with the same contents
            git("update-index", "-q", "--refresh", ok=(0, 1))
            git("read-tree", *words)
    except GitError as error:
        if LOCKED.search(error.said):
            raise
        raise CheckoutInTheWayError(
            f"the checkout of {repository.main} in {checkout.folder} can't take the merge: {error};"
            " commit, stash or remove what is in the way there",
            in_the_way(error.said),
        ) from error


def in_the_way(said: str) -> str:
    """What git refused to overwrite in the user's checkout, in words; empty if it said something else."""
    if found := CHANGED.search(said):
        return f"{sanitize(found[1], PATH_LIMIT)} in your checkout has uncommitted changes"
    if found := UNTRACKED.search(said):
        return f"{sanitize(found[1], PATH_LIMIT)} is in your checkout, not committed, and the merge brings one"
    return ""


def index_stamp(checkout: Checkout) -> tuple[int, int]:
    """Tells an index that was written since from one that wasn't."""
    status = (checkout.git_dir / "index").stat()
    return status.st_ino, status.st_mtime_ns


def mend_index(repository: Repository, checkout: Checkout, merged: Merged) -> None:
    """Puts the merge back into an index that a `git commit` of the user's overwrote in the middle of it.

    That command reads the index before it locks it. What it then writes lacks the merge, and the next commit would take
    the merged files back out of main. Only entries that are still the old ones are changed.
    """
    git = checkout.git(repository).holding(repository.lock.descriptor)
    raw = ("-r", "--raw", "-z", "--no-renames", "--no-abbrev", "--full-index")
    wanted = sides(git("diff-tree", *raw, merged.main, merged.commit).out)
    # from the merge's entry to the index's, where they differ
    stale = sides(git("diff-index", "--cached", *raw[1:], merged.commit, "--").out)
    lines = [f"{new}\t{path}\0" for path, (old, new) in wanted.items() if path in stale and stale[path] == (new, old)]
    if lines:
        git("update-index", "-z", "--index-info", given="".join(lines))


def sides(raw: str) -> dict[str, tuple[str, str]]:
    """By path, the `<mode> <object>` on either side, as `git diff-tree --raw -z` tells it."""
    fields = raw.rstrip("\0").split("\0") if raw else []
    found = {}
    for entry, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = entry.removeprefix(":").split(" ")
        found[path] = (f"{old_mode} {old}", f"{new_mode} {new}")
    return found


def journal_text(checkouts: Sequence[Checkout], merged: Merged) -> str:
    places = [[str(checkout.git_dir), str(checkout.folder)] for checkout in checkouts]
    return json.dumps({"commit": merged.commit, "main": merged.main, "checkouts": places}) + "\n"


def recover(repository: Repository) -> None:
    """Makes good what a kill left in the middle of `advance`: the user's files follow main. Called before any merge.

    Raises `CheckoutInTheWayError` if they can't.
    """
    drop_unfinished(repository.root, UNFINISHED, repository.lock)
    if not journal_of(repository).exists():
        return
    with repository.writing():
        try:
            entry = json.loads(journal_of(repository).read_text())
        except FileNotFoundError:
            return  # another process was quicker
        current = set(repository.checkouts(repository.main_ref))
        along = current & {Checkout(Path(git_dir), Path(folder)) for git_dir, folder in entry["checkouts"]}
        tip = repository.tip(repository.main_ref)
        for checkout in along:
            move_files(repository, checkout, entry["commit"], tip)
        if tip != entry.get("main"):  # which older releases didn't note
            note_passage(repository, entry.get("main", ""), along)
        journal_of(repository).unlink()


def journal_of(repository: Repository) -> Path:
    return repository.root / "moving.json"
