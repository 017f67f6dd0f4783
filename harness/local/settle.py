"""Settling what a killed process left of a session: its processes, its work, its outcome.

An attempt is settled before the next one at the same slice begins, and before its worktree is used again. Whoever holds
the worktree's lock settles; a lock that stays held is another living process's, and is left alone.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import attrs

from harness.local.errors import GitError
from harness.local.folder import SessionFolder
from harness.local.merge import recover
from harness.local.outcome import LOST, NO_CHANGE, checkpoint_of
from harness.local.process import ProcessMark, end_group
from harness.local.record import Record
from harness.local.repository import Repository, head_of
from harness.local.site import Site
from harness.local.work import keep_commit, keep_work
from harness.local.worktree import Worktree
from harness.session import Assignment, SessionPhase

WAIT_S = 20.0  #: for a process that is settling the same attempt right now
ENDERS = 16  #: so many attempts are ended at once; each may take its grace time
NOBODY = ProcessMark(0, 0, "")  #: no process has this mark


def previous_attempt(site: Site, assignment: Assignment) -> Record | None:
    """The attempt before, settled: nothing of it runs, its work is safe, and whether it merged is known.

    A process that lives and still has the attempt is waited for, for a while; then its record says no more than it did.
    """
    record = site.records.read(assignment.graph_id, assignment.slice_id)
    if record is None:
        return lost_record(site, assignment) if assignment.attempt > 1 else None
    record = site.records.take(record)
    end_processes(record)
    give_up_at = time.monotonic() + WAIT_S
    while not sweep(site, record) and time.monotonic() < give_up_at:
        time.sleep(0.05)  # only another process makes us wait here, and it can't tell us
    return site.records.read(assignment.graph_id, assignment.slice_id)


def take_up(site: Site, graph_id: str) -> None:
    """Ends what other processes run of a graph that is this one's now; returns when nothing of it runs any more.

    Those may live, suspended say, and hold their worktrees: their attempts can't merge any more, and are settled by
    them, or once they are gone. Raises `OrphanError` if something can't be ended.
    """
    others = [site.records.take(one) for one in site.records.under_way(graph_id) if one.host != site.host]
    if others:
        with ThreadPoolExecutor(min(len(others), ENDERS), thread_name_prefix="dispatch-takeover") as threads:
            list(threads.map(end_processes, others))


def sweep(site: Site, record: Record) -> bool:
    """Settles an attempt that a process left which is gone; false if its worktree is held, so that it may live."""
    if not is_open(site, record):
        return True
    worktree = site.pool.hold(record.worktree)
    if worktree is None:
        return False
    try:
        if worktree.leftover == record.note:
            settle_in(site, worktree)
            site.pool.release(worktree)
            return True
        if is_open(site, record):  # it was killed between two worktrees, and has neither
            settle(site, record, None)
    except BaseException:
        site.pool.leave(worktree)
        raise
    site.pool.leave(worktree)
    return True


def drop_kept_on_main(site: Site) -> None:
    """Drops the refs whose work has come to main by another way, but for those that an attempt goes on from."""
    repository = site.repository
    if not repository.kept_on_main():
        return
    needed = site.records.resumable()
    with repository.writing() as git:
        lines = [f"delete {ref} {commit}\n" for ref, commit in repository.kept_on_main() if ref not in needed]
        git("update-ref", "--stdin", given="".join(lines))


def is_open(site: Site, record: Record) -> bool:
    """Whether the attempt has not been settled, as far as is known now."""
    latest = site.records.read(record.graph_id, record.slice_id)
    if latest is None or latest.token != record.token:
        return False
    return latest.phase is None or site.records.folder(record.graph_id, record.session).exists()


def end_processes(record: Record) -> None:
    """Ends what still runs of an attempt that has not ended. Raises `OrphanError` if something can't be ended."""
    if record.phase is None:
        end_group(record.mark or NOBODY, record.token, record.grace_s)


def settle_in(site: Site, worktree: Worktree) -> None:
    """Makes a worktree's work safe that a process left which is gone, or a person who looked in."""
    graph_id, _, session = worktree.leftover.partition("/")
    record = site.records.read(graph_id, session.rpartition("@")[0]) if session else None
    if record is None or record.session != session:
        name = session.replace("@", "/") or f"worktree-{worktree.folder.name}"
        keep_what_can_be(worktree, site.repository, "", "", name, "Left in a worktree", awaited=bool(session))
    else:
        settle(site, record, worktree)
    worktree.leftover = ""


def settle(site: Site, record: Record, worktree: Worktree | None) -> None:
    """Brings one attempt to its end. Called by who holds its worktree, if it has one."""
    end_processes(record)
    with site.repository.writing():
        pass  # a git command of its that outlived it holds this lock until it has ended
    recover(site.repository)
    if record.phase is None:
        site.records.update(ended(site, record, worktree))
    SessionFolder(site.records.folder(record.graph_id, record.session)).remove()


def ended(site: Site, record: Record, worktree: Worktree | None) -> Record:
    """The record of an attempt that a kill ended: merged if its merge had become main, else its work is kept."""
    repository = site.repository
    if has_merged(repository, record):
        return attrs.evolve(
            record, phase=SessionPhase.MERGED, detail=record.left_out
        )  # its branch went at the same stroke
    if worktree is None:
        return attrs.evolve(record, phase=LOST.phase, detail=LOST.detail)
    name = f"{record.slice_id}/{record.attempt}"
    branch = own_branch(worktree, record)
    if commit := only_commit(record):
        kept = keep_commit(worktree, repository, branch, commit, name)
    else:
        message = f"Work in progress: {record.title}"
        kept = keep_what_can_be(worktree, repository, branch, record.base, name, message)
    folder = SessionFolder(site.records.folder(record.graph_id, record.session))
    return attrs.evolve(
        record,
        phase=LOST.phase,
        detail=LOST.detail,
        kept=kept,
        resume=LOST.resume,
        checkpoint=checkpoint_of(LOST, kept, folder.checkpoint()),
        pull_request_url=folder.pull_request_url(),
    )


def keep_what_can_be(
    worktree: Worktree,
    repository: Repository,
    branch: str,
    base: str,
    name: str,
    message: str,
    *,
    awaited: bool = True,
) -> str:
    """As `keep_work`, tried for the second time: a worktree that git can't read is set aside as it is.

    Its branch then stays where it is, with what was committed.
    """
    try:
        return keep_work(worktree, repository, branch, base, name, message, awaited=awaited)
    except GitError as error:
        worktree.unsavable = str(error)
    tip = repository.tip(f"refs/heads/{branch}") or base
    with repository.writing() as git:
        contained = not tip or repository.contains(tip, repository.tip(repository.main_ref))
        return "" if contained else repository.keep(git, tip, name)


def has_merged(repository: Repository, record: Record) -> bool:
    """Whether the merge that was about to become main did."""
    return bool(record.intended) and repository.contains(record.intended, repository.tip(repository.main_ref))


def only_commit(record: Record) -> str:
    """The commit that has all of an attempt's work, whatever its worktree holds; empty if that must be looked at.

    Once the work is known, what is checked out may be a merge under test. Before the branch is noted no agent has run:
    the worktree holds no file yet, or what another attempt left, and neither is work of this one.
    """
    return record.work or ("" if record.branch else record.base)


def own_branch(worktree: Worktree, record: Record) -> str:
    """The attempt's own branch, empty if it has none. Until it is noted, it is the one its worktree is on."""
    if record.branch or not worktree.git_dir.name:
        return record.branch
    branch = head_of(worktree.git_dir).removeprefix("ref: refs/heads/")
    return branch if branch.startswith(record.wanted) else ""


def lost_record(site: Site, assignment: Assignment) -> Record | None:
    """What main's history says of a slice whose record is gone: merged, or nothing."""
    patterns = [
        f"^Dispatch-Slice: {re.escape(assignment.slice_id)}$",
        f"^Dispatch-Graph: {re.escape(assignment.graph_id)}$",
    ]
    words = [f"--grep={pattern}" for pattern in patterns]
    commit = site.repository.git(
        "log", "-1", "--format=%H", "--merges", "--extended-regexp", "--all-match", *words, site.repository.main_ref
    ).line
    if not commit:
        return None
    record = Record.of(attrs.evolve(assignment, attempt=assignment.attempt - 1), "")
    return attrs.evolve(record, phase=NO_CHANGE.phase, intended=commit)
