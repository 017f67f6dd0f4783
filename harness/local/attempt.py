"""One attempt, step by step: opening, what to merge, merging, closing. Each step blocks its session's thread alone."""

from __future__ import annotations

import enum
import functools
import logging
import re
import secrets
from pathlib import Path

import attrs

from harness.local.errors import GitError, LocalHostError, RepositoryError, SupersededError
from harness.local.folder import SessionFolder
from harness.local.git import Git
from harness.local.merge import (
    CheckoutInTheWayError,
    Conflict,
    Merged,
    advance,
    catch_up,
    check_room,
    combine,
    merge,
)
from harness.local.outcome import (
    LINE_LIMIT,
    MERGED,
    NO_CHANGE,
    Ending,
    checkpoint_of,
    closed,
    failed,
    with_left_out,
)
from harness.local.passing import MainGoneError
from harness.local.process import Child, ProcessMark
from harness.local.record import Record
from harness.local.settle import has_merged, only_commit, own_branch, previous_attempt, settle_in, take_up
from harness.local.site import Site
from harness.local.work import farewell, finished_work, keep_commit, keep_work
from harness.local.worktree import Worktree
from harness.session import Assignment, SessionPhase, SessionState
from harness.text import sanitize

logger = logging.getLogger(__name__)

IN_THE_WAY = re.compile(r"'refs/heads/([^']+)' exists; cannot create")
BRANCH_TRIES = 100
MERGE_ROUNDS = 20  #: how often main may move while an attempt is being merged, before it is given up


class AlreadyMergedError(LocalHostError):
    """An earlier attempt's merge is on main: there is nothing left to do. Its message is what that one left out."""


class Step(enum.Enum):
    """What `Attempt.merge_step` left to do."""

    VERIFY = "verify"  #: the merge is checked out in the worktree: run the verify command, then call again


@attrs.define(eq=False)
class Attempt:
    """An attempt under way. `on_main`: it began with nothing but main; else `resumed` is the ref it began with.

    `verified` is the merge that the verify command passed, `pending` the one it runs on, `tried` the one that the
    user's checkout was last asked to take. `merged` is how it ended, once main has all of its work: nothing that goes
    wrong later can undo that.
    """

    site: Site
    assignment: Assignment
    worktree: Worktree
    record: Record
    folder: SessionFolder
    on_main: bool
    resumed: str = ""
    pending: Merged | None = None
    verified: Merged | None = None
    tried: Merged | None = None
    rounds: int = 0
    merged: Ending | None = None

    @classmethod
    def open(cls, site: Site, assignment: Assignment) -> Attempt:
        """Settles the attempt before, and takes a worktree, the slice's record and a folder for the session's files.

        The first one of a graph ends what other processes run of it. Raises `AlreadyMergedError`; `NotOwnedError`,
        `GitError`, `RepositoryError` or `OrphanError` if it can't be opened, with everything as it was. A graph that is
        bound to another branch is refused before anything else.
        """
        check_bound(site, assignment.graph_id)
        site.claim.check()
        site.claim.take_up(assignment.graph_id, functools.partial(take_up, site))
        before = previous_attempt(site, assignment)
        if before is not None and before.phase is SessionPhase.MERGED:
            raise AlreadyMergedError(before.left_out)
        main = site.repository.tip(site.repository.main_ref)
        if not main:
            raise MainGoneError(site.repository.main)
        base, conflict = starting_point(site, before, main)
        worktree = site.pool.acquire(lambda left: settle_in(site, left))
        try:
            record = attrs.evolve(
                Record.of(assignment, secrets.token_hex(16), site.host), worktree=worktree.folder.name, base=base
            )
            worktree.note(record.note)
            take_over(site, record)
            folder = SessionFolder(site.records.folder(record.graph_id, record.session))
            folder.make(assignment, addition(assignment, before, conflict=conflict))
        except BaseException:
            site.pool.leave(worktree)
            raise
        resumed = before.kept if before is not None and base != main else ""
        return cls(site, assignment, worktree, record, folder, base == main, resumed)

    def check_out(self) -> None:
        """Makes the worktree ready, on a branch of its own. Raises `GitError`; the attempt must then be closed."""
        wanted = self.assignment.branch
        for number in range(1, BRANCH_TRIES):
            branch = wanted + (f"-{number}" if number > 1 else "")
            try:
                self.worktree.check_out(branch, self.record.base)
            except GitError as error:
                if f"a branch named '{branch}' already exists" not in error.said:
                    raise
            else:
                break
        else:
            raise RepositoryError(f"{BRANCH_TRIES} branches named {wanted}-N exist already; remove those not needed")
        self._note(attrs.evolve(self.record, branch=branch))
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")

    @property
    def log(self) -> Path:
        return self.site.log_of(self.record.graph_id, self.record.slice_id, self.record.attempt)

    @property
    def message(self) -> str:
        """Of commits made for it; a merge found by its trailers needs no record to be recognised."""
        record = self.record
        return (
            f"{record.title}\n\nDispatch-Slice: {record.slice_id}\n"
            f"Dispatch-Attempt: {record.attempt}\nDispatch-Graph: {record.graph_id}\n"
        )

    def child(self, argv: tuple[str, ...]) -> Child:
        """A command of the recipe, for the worktree. Raises `RepositoryError` if that is no worktree of ours."""
        if not self.worktree.intact():
            raise RepositoryError(f"{self.worktree.folder} is no worktree any more")
        recipe = self.assignment.recipe
        contract = self.folder.environment(self.assignment, self.record.branch, self.record.token)
        return Child(
            argv,
            self.worktree.folder,
            self.site.environment(self.worktree.folder, dict(recipe.env), contract),
            self.log,
            quiet_limit_s=recipe.quiet_limit_s,
            quiet_grace_s=recipe.grace_s,
        )

    def check_taken(self) -> None:
        """Raises `SupersededError` if another process has taken this attempt's place: nothing more of it may start."""
        if refusal := self.site.records.refusal(self.record):
            raise SupersededError(refusal)

    def note_process(self, mark: ProcessMark) -> None:
        """Writes down which process runs for it. One that is killed before has the token to be found by."""
        self._note(attrs.evolve(self.record, mark=mark))

    def log_line(self, text: str) -> None:
        """Adds a line of the host's own to the log."""
        with self.log.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"[dispatch] {text}\n")

    def finish_work(self) -> None:
        """Commits what the agent left uncommitted, and settles which commit is to be merged."""
        record = self.record
        work = finished_work(self.worktree, self.site.repository, record.branch, record.base, record.title)
        self._note(attrs.evolve(self.record, work=work, left_out=self._left_out()))

    def _left_out(self) -> str:
        """What of its work no commit can hold, and where it stays, in a line that the log has, too; empty if nothing.

        To be asked before its worktree is used for a merge.
        """
        worktree = self.worktree
        if not worktree.unsavable:
            return ""
        words = sanitize(f"left out, and set aside in {worktree.folder}: {worktree.unsavable}", LINE_LIMIT)
        self.log_line(words)
        return words

    def merge_step(self) -> Step | Ending:
        """As much of the merge as can be done without running the verify command.

        Raises `CheckoutInTheWayError`, before any verify: that can be tried again once `hindrance` says so.
        """
        while self.rounds < MERGE_ROUNDS:
            self.rounds += 1
            catch_up(self.site.repository)
            with self.site.repository.writing() as git:
                main = self.site.repository.tip(self.site.repository.main_ref)
                if self._on_main_already(main):
                    return self._leave(git)
                if self.verified is None or self.verified.main != main:
                    outcome = merge(git, main, self.record.work, self.message)
                    if isinstance(outcome, Conflict):
                        return closed(outcome.words)
                    self.pending = self.tried = outcome
                    check_room(self.site.repository, outcome)
                    if not self.assignment.recipe.verify:
                        self.verify_passed()
                if self.verified is not None and self.verified.main == main:
                    if self._advance(git, self.verified):
                        self.merged = MERGED
                        return MERGED
                    continue
            return self._show_pending()
        return closed(f"main moved {MERGE_ROUNDS} times while it was being merged", resume=True)

    def hindrance(self) -> CheckoutInTheWayError | None:
        """What in the user's checkout is still in the way of the merge that was refused; None if it may be tried again.

        If main has moved, a new merge is to be tried, which may be another story.
        """
        repository = self.site.repository
        self.rounds = 0
        with repository.writing():
            if self.tried is None or repository.tip(repository.main_ref) != self.tried.main:
                return None
            try:
                check_room(repository, self.tried)
            except CheckoutInTheWayError as error:
                return error
        return None

    def verify_passed(self) -> None:
        """The merge that is checked out may become main."""
        self.verified, self.pending = self.pending, None

    def close(self, ending: Ending, turns: int) -> SessionState:
        """Makes its work safe, gives its worktree back, and says how it ended."""
        kept = self._keep(ending)
        left_out = self.record.left_out if self.record.work else self._left_out()
        self.record = attrs.evolve(
            self.record,
            phase=ending.phase,
            detail=with_left_out(ending, left_out),
            error=ending.error,
            checkpoint=checkpoint_of(ending, kept, self.folder.checkpoint(), left_out),
            left_out=left_out,
            pull_request_url=ending.pull_request_url or self.folder.pull_request_url(),
            kept=kept,
            resume=ending.resume,
            turns=turns,
        )
        self.site.records.update(self.record)
        self._give_back()
        if not self.site.records.is_anothers(self.record):
            self.folder.remove()
        return state_of(self.record, self.assignment.assignment_id)

    def _on_main_already(self, main: str) -> bool:
        if self.on_main and self.record.work == self.record.base:
            return True
        return self.site.repository.contains(self.record.work, main)

    def _leave(self, git: Git) -> Ending:
        """The worktree leaves its branch, and the branch goes: main has all of it."""
        if lines := self._farewell(self.record.work):
            git("update-ref", "--stdin", given=lines)
        self.merged = NO_CHANGE if self.record.work == self.record.base else MERGED
        return self.merged

    def _advance(self, git: Git, merged: Merged) -> bool:
        """Moves main; the branch goes at the same stroke. False if main was quicker."""
        shown = merged.commit if self.assignment.recipe.verify else self.record.work
        return advance(self.site.repository, git, merged, self._farewell(shown), lambda: self._intend(merged.commit))

    def _farewell(self, commit: str) -> str:
        """What goes when main has all of its work: its branch, and the ref that it resumed, if its work has that."""
        repository = self.site.repository
        lines = farewell(self.worktree, repository, self.record.branch, commit)
        resumed = repository.tip(self.resumed) if self.resumed else ""
        return lines + (
            f"delete {self.resumed}\n" if resumed and repository.contains(resumed, self.record.work) else ""
        )

    def _intend(self, commit: str) -> None:
        """Writes down which commit is about to become main.

        Raises `SupersededError` if this attempt may not merge, and `NotOwnedError` if that can't be told now.
        """
        self.site.claim.check()
        self._note(attrs.evolve(self.record, intended=commit), durably=True)

    def _note(self, record: Record, *, durably: bool = False) -> None:
        """Writes the changed record down. Raises `SupersededError` if another process has taken its place."""
        if not self.site.records.update(record, durably=durably):
            raise SupersededError(self.site.records.refusal(record))
        self.record = record

    def _show_pending(self) -> Step:
        """Checks the merge to be verified out: in a worktree of its own if this one has what a commit can't save."""
        assert self.pending is not None
        if self.worktree.unsavable or not self.worktree.intact():
            self.site.pool.release(self.worktree)
            self.worktree = self.site.pool.acquire(lambda left: settle_in(self.site, left))
            self.worktree.note(self.record.note)
            self._note(attrs.evolve(self.record, worktree=self.worktree.folder.name))
        self.worktree.check_out_detached(self.pending.commit)
        return Step.VERIFY

    def _keep(self, ending: Ending) -> str:
        """Makes its work safe: the ref that has it, empty if main has all of it."""
        repository, record = self.site.repository, self.record
        name = f"{record.slice_id}/{record.attempt}"
        if ending.phase is SessionPhase.MERGED:
            return ""
        branch = own_branch(self.worktree, record)
        if commit := only_commit(record):
            return keep_commit(self.worktree, repository, branch, commit, name)
        branch = "" if ending.pull_request_url else branch
        message = f"Work in progress: {record.title}"
        return keep_work(self.worktree, repository, branch, record.base, name, message)

    def _give_back(self) -> None:
        """Its end is settled; a worktree that can't be made ready for others is looked at again when it is needed."""
        try:
            self.site.pool.release(self.worktree)
        except (LocalHostError, OSError) as error:
            logger.warning("worktree %s can't be used again yet: %s", self.worktree.folder, error)
            self.site.pool.leave(self.worktree)


def check_bound(site: Site, graph_id: str) -> None:
    """Raises `RepositoryError` unless the graph may merge into this main."""
    bound = site.bindings.read(graph_id)
    if bound is not None and bound != site.repository.main:
        raise RepositoryError(
            f"graph {graph_id} merges into {bound!r}, and this host into {site.repository.main!r}; check {bound} out"
        )


def starting_point(site: Site, before: Record | None, main: str) -> tuple[str, bool]:
    """The commit to begin with: main, with the work of the attempt before if that is to be resumed and fits.

    The second value says whether it was to be resumed and did not fit.
    """
    kept = site.repository.tip(before.kept) if before is not None and before.resume and before.kept else ""
    if before is None or not kept or site.repository.contains(kept, main):
        return main, False
    if site.repository.contains(main, kept):
        return kept, False
    both = combine(site.repository.git, main, kept, f"Merge main into the work kept of {before.session}")
    return both or main, not both


def take_over(site: Site, record: Record) -> None:
    """Makes this the slice's only attempt that may merge. Raises `AlreadyMergedError` if the one before has merged."""
    repository = site.repository
    with repository.writing():
        latest = site.records.read(record.graph_id, record.slice_id)
        if latest is not None and has_merged(repository, latest):
            raise AlreadyMergedError(latest.left_out)
        site.claim.check()
        site.records.replace(record)


def addition(assignment: Assignment, before: Record | None, *, conflict: bool) -> str:
    """What the host knows of the attempt before that the task doesn't say yet."""
    parts = []
    if before is not None and before.checkpoint and before.checkpoint not in assignment.task:
        parts.append(before.checkpoint)
    if before is not None and conflict:
        parts.append(
            f"{before.kept} and main conflict, so this attempt begins from main; see: git diff main...{before.kept}"
        )
    return "\n".join(parts)


def opening_ending(error: Exception) -> Ending:
    """What it means that an attempt can't be opened."""
    if isinstance(error, GitError) and (found := IN_THE_WAY.search(error.said)):
        return failed(
            f"branch {found[1]!r} is in the way of {found[1]}/...; rename it with: git branch -m {found[1]} NEW"
        )
    if isinstance(error, RepositoryError) and not isinstance(error, MainGoneError):
        return failed(str(error))
    return closed(f"could not be opened: {error}")


def state_of(record: Record, assignment_id: str) -> SessionState:
    """The report of an attempt that has ended."""
    assert record.phase is not None
    return SessionState(
        assignment_id,
        record.phase,
        record.turns,
        record.branch,
        record.pull_request_url,
        record.error,
        record.detail,
        record.checkpoint,
    )
