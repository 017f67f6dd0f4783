"""The judge on trial: evidence of a round that was well, doctored, and what must be found in it.

A judge that lets one of these pass proves nothing, so the campaign tries all of them each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from benchmarks.crash.agent import blob_id
from benchmarks.crash.checker import judge
from benchmarks.crash.doctor import Doctor, UnsuitableError, first
from benchmarks.crash.evidence import Command, Evidence, Merge, Start, Stop
from benchmarks.crash.plan import Job, Plan
from benchmarks.crash.store_controls import STORE_CONTROLS

NOWHERE = "f" * 40


def missed(plan: Plan, evidence: Evidence) -> tuple[list[str], list[str]]:
    """The controls that the judge did not see, and those that were of no use on this evidence."""
    unseen, unsuitable = [], []
    for name, code, doctor in CONTROLS:
        try:
            doctored = doctor(plan, evidence)
        except UnsuitableError:
            unsuitable.append(name)
            continue
        if code not in {violation.code for violation in judge(plan, doctored)}:
            unseen.append(name)
    return unseen, unsuitable


def replaced(evidence: Evidence, old: Start, **changes: Any) -> Evidence:
    starts = tuple(attrs.evolve(each, **changes) if each is old else each for each in evidence.starts)
    return attrs.evolve(evidence, starts=starts)


def merged_jobs(plan: Plan, evidence: Evidence) -> list[Job]:
    return [plan.jobs[merge.slice] for merge in evidence.mainline if merge.slice]


def last_start(evidence: Evidence, name: str) -> Start:
    """The session that merged it."""
    start: Start = first(each for each in reversed(evidence.starts) if (each.slice, each.role) == (name, "agent"))
    return start


def rival_merges(plan: Plan, evidence: Evidence) -> tuple[Job, Job]:
    """Two that contend, in the order in which they merged."""
    jobs, rivals = merged_jobs(plan, evidence), plan.rivals()
    pair: tuple[Job, Job] = first(
        (one, other)
        for at, one in enumerate(jobs)
        for other in jobs[at + 1 :]
        if frozenset({one.id, other.id}) in rivals
    )
    return pair


def with_run(evidence: Evidence, name: str, at: float, end: float, pid: int = 1) -> Evidence:
    """One more session of a slice, begun from main's tip and ended by itself."""
    like = last_start(evidence, name)
    start = attrs.evolve(like, pid=pid, at=at, free=True, alive=frozenset())
    stop = Stop(name, like.attempt, "agent", pid, end, "failed", "")
    return attrs.evolve(evidence, starts=(start, *evidence.starts), stops=(*evidence.stops, stop))


def span(evidence: Evidence, name: str) -> tuple[float, float]:
    """From start to stop of the session that merged it."""
    start = last_start(evidence, name)
    key = (start.slice, start.attempt, start.role, start.pid)
    stop: Stop = first(each for each in evidence.stops if (each.slice, each.attempt, each.role, each.pid) == key)
    return start.at, stop.at


def lock_was_taken(plan: Plan, evidence: Evidence) -> Evidence:
    return replaced(evidence, evidence.starts[-1], free=False)


def ran_twice_by_the_clock(plan: Plan, evidence: Evidence) -> Evidence:
    name = first(merged_jobs(plan, evidence)).id
    begun, ended = span(evidence, name)
    return with_run(evidence, name, begun + (ended - begun) / 2, ended + 1.0)


def rival_lived(plan: Plan, evidence: Evidence) -> Evidence:
    one, other = rival_merges(plan, evidence)
    return replaced(evidence, last_start(evidence, one.id), alive=frozenset({other.id}))


def rivals_by_the_clock(plan: Plan, evidence: Evidence) -> Evidence:
    one, other = rival_merges(plan, evidence)
    begun, ended = span(evidence, one.id)
    return with_run(evidence, other.id, begun + (ended - begun) / 2, ended + 1.0)


def cap_by_the_locks(plan: Plan, evidence: Evidence) -> Evidence:
    start = evidence.starts[-1]
    return replaced(evidence, start, alive=frozenset(sorted(set(plan.jobs) - {start.slice})[: plan.cap]))


def cap_by_the_clock(plan: Plan, evidence: Evidence) -> Evidence:
    names = [job.id for job in merged_jobs(plan, evidence)]
    if len(names) <= plan.cap:
        raise UnsuitableError
    for pid, name in enumerate(names[: plan.cap + 1], start=1):
        evidence = with_run(evidence, name, 1e9 + pid, 2e9, pid)
    return evidence


def began_too_early(plan: Plan, evidence: Evidence) -> Evidence:
    name = first(job.id for job in merged_jobs(plan, evidence) if job.needs)
    return replaced(evidence, last_start(evidence, name), head=evidence.mainline[0].commit)


def began_after_its_merge(plan: Plan, evidence: Evidence) -> Evidence:
    name = first(merged_jobs(plan, evidence)).id
    return replaced(evidence, last_start(evidence, name), head=evidence.mainline[-1].commit)


def began_beside_its_rival(plan: Plan, evidence: Evidence) -> Evidence:
    _, later = rival_merges(plan, evidence)
    return replaced(evidence, last_start(evidence, later.id), head=evidence.mainline[0].commit)


def merged_twice(plan: Plan, evidence: Evidence) -> Evidence:
    again = attrs.evolve(first(merge for merge in evidence.mainline if merge.slice), commit=NOWHERE)
    return attrs.evolve(evidence, mainline=(*evidence.mainline, attrs.evolve(again, files=evidence.mainline[-1].files)))


def merged_aside(plan: Plan, evidence: Evidence) -> Evidence:
    return attrs.evolve(evidence, strays=(merged_jobs(plan, evidence)[0].id,))


def never_merged(plan: Plan, evidence: Evidence) -> Evidence:
    last = first(merge for merge in reversed(evidence.mainline) if merge.slice)
    return attrs.evolve(evidence, mainline=tuple(merge for merge in evidence.mainline if merge is not last))


def store_knows_better(plan: Plan, evidence: Evidence) -> Evidence:
    return attrs.evolve(evidence, stored=dict(evidence.stored) | {merged_jobs(plan, evidence)[0].id: "queued"})


def at_tip(evidence: Evidence, files: dict[str, str]) -> Evidence:
    tip: Merge = evidence.mainline[-1]
    return attrs.evolve(evidence, mainline=(*evidence.mainline[:-1], attrs.evolve(tip, files=files)))


def file_lost(plan: Plan, evidence: Evidence) -> Evidence:
    gone = merged_jobs(plan, evidence)[0].own_file
    return at_tip(evidence, {path: name for path, name in evidence.mainline[-1].files.items() if path != gone})


def broken_on_main(plan: Plan, evidence: Evidence) -> Evidence:
    job = merged_jobs(plan, evidence)[0]
    return at_tip(evidence, dict(evidence.mainline[-1].files) | {job.own_file: blob_id("BROKEN\n")})


def file_before_its_merge(plan: Plan, evidence: Evidence) -> Evidence:
    job = merged_jobs(plan, evidence)[-1]
    start = attrs.evolve(evidence.mainline[0], files={job.own_file: blob_id(job.body)})
    return attrs.evolve(evidence, mainline=(start, *evidence.mainline[1:]))


def shared_line(evidence: Evidence, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Evidence:
    path = first(path for path, lines in evidence.lines.items() if lines)
    return attrs.evolve(evidence, lines=dict(evidence.lines) | {path: change(evidence.lines[path])})


def line_lost(plan: Plan, evidence: Evidence) -> Evidence:
    return shared_line(evidence, lambda lines: lines[1:])


def line_doubled(plan: Plan, evidence: Evidence) -> Evidence:
    return shared_line(evidence, lambda lines: (*lines, lines[0]))


def not_verified(plan: Plan, evidence: Evidence) -> Evidence:
    if not any(job.verify_s is not None for job in merged_jobs(plan, evidence)):
        raise UnsuitableError
    stops = (attrs.evolve(each, how="bad") if each.role == "verify" else each for each in evidence.stops)
    return attrs.evolve(evidence, stops=tuple(stops))


def went_back(plan: Plan, evidence: Evidence) -> Evidence:
    there = evidence.mainline[-1].commit, evidence.mainline[0].commit
    return attrs.evolve(evidence, moves=(*evidence.moves, there))


def moved_unseen(plan: Plan, evidence: Evidence) -> Evidence:
    if len(evidence.moves) < 3:
        raise UnsuitableError
    return attrs.evolve(evidence, moves=(evidence.moves[0], *evidence.moves[2:]))


def main_forgot(plan: Plan, evidence: Evidence) -> Evidence:
    return attrs.evolve(evidence, seen=(*evidence.seen, NOWHERE))


def work_lost(plan: Plan, evidence: Evidence) -> Evidence:
    return attrs.evolve(evidence, safe=evidence.safe - {evidence.written[0]})


def command(verb: str, start: Start, main: str) -> Command:
    """Acknowledged right before a session began."""
    return Command(verb, start.slice, start.at - 0.2, start.at - 0.1, 0, main)


def hold_lost(plan: Plan, evidence: Evidence) -> Evidence:
    start = last_start(evidence, merged_jobs(plan, evidence)[0].id)
    return attrs.evolve(evidence, commands=(command("hold", start, evidence.seen[0]),))


def cancel_lost(plan: Plan, evidence: Evidence) -> Evidence:
    job = merged_jobs(plan, evidence)[0]
    ordered = command("cancel", last_start(evidence, job.id), evidence.mainline[0].commit)
    return attrs.evolve(evidence, commands=(ordered,), stored=dict(evidence.stored) | {job.id: "canceled"})


def something_left(plan: Plan, evidence: Evidence) -> Evidence:
    return attrs.evolve(evidence, left=("process 4242 is left: sleep 60",))


CONTROLS: tuple[tuple[str, str, Doctor], ...] = (
    ("a session began while its slice's lock was held", "twice", lock_was_taken),
    ("two sessions of a slice overlap in time", "twice", ran_twice_by_the_clock),
    ("a session began while a contender's lock was held", "rivals", rival_lived),
    ("two contenders overlap in time", "rivals", rivals_by_the_clock),
    ("more locks were held than the cap", "cap", cap_by_the_locks),
    ("more sessions overlap in time than the cap", "cap", cap_by_the_clock),
    ("a session began without a predecessor's merge", "order", began_too_early),
    ("a session began after its own merge", "order", began_after_its_merge),
    ("a session began without its earlier contender's merge", "in-turn", began_beside_its_rival),
    ("a slice merged twice", "once", merged_twice),
    ("a slice merged beside main's line", "once", merged_aside),
    ("a slice never merged", "once", never_merged),
    ("the store says another thing than main", "once", store_knows_better),
    ("a merged file is gone from main", "intact", file_lost),
    ("main holds what its verify refuses", "intact", broken_on_main),
    ("a file was on main before its merge", "intact", file_before_its_merge),
    ("a line of a shared file is lost", "intact", line_lost),
    ("a line of a shared file is there twice", "intact", line_doubled),
    ("a merge was not verified", "verified", not_verified),
    ("main went back", "forward", went_back),
    ("main moved and its reflog does not say how", "forward", moved_unseen),
    ("main lost a commit it once had", "forward", main_forgot),
    ("what an agent wrote is gone", "kept", work_lost),
    ("a held slice began", "acknowledged", hold_lost),
    ("a canceled slice began and merged", "acknowledged", cancel_lost),
    ("a process is left", "left", something_left),
    *STORE_CONTROLS,
)  # fmt: skip
