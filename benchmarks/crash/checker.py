"""The judge: what must hold of every round, from the evidence alone. Pure, and shares no code with what it judges.

Each rule yields what speaks against it. A violation's code names the promise that was broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, pairwise

from benchmarks.crash.agent import blob_id
from benchmarks.crash.case import Case, Violation
from benchmarks.crash.evidence import Evidence, Start
from benchmarks.crash.plan import Plan
from benchmarks.crash.store_rules import batches, durable, fenced


def judge(plan: Plan, evidence: Evidence) -> list[Violation]:
    """All that speaks against the round; empty if nothing does."""
    case = Case(plan, evidence)
    return [Violation(code, text) for code, rule in RULES for text in rule(case)]


def twice(case: Case) -> Iterator[str]:
    """No slice runs twice at once: by the kernel's locks, and by the clock."""
    yield from (f"{each.slice} began while a process of it lived" for each in case.evidence.starts if not each.free)
    yield from (f"{one} ran twice at once" for one, other, _ in overlaps(case) if one == other)


def rivals(case: Case) -> Iterator[str]:
    """Slices that contend never run at once."""
    for each in case.evidence.starts:
        for other in sorted(each.alive):
            if frozenset({each.slice, other}) in case.rivals:
                yield f"{each.slice} ({each.role}) began while {other} lived"
    yield from (f"{a} and {b} ran at once" for a, b, _ in overlaps(case) if frozenset({a, b}) in case.rivals)


def cap(case: Case) -> Iterator[str]:
    """Never more at once than the cap."""
    for each in case.evidence.starts:
        if len(each.alive) >= case.plan.cap:
            yield f"{each.slice} began while {sorted(each.alive)} lived; the cap is {case.plan.cap}"
    spans = list(intervals(case))
    for each, _ in spans:
        beside = {other.slice for other, end in spans if other.at <= each.at < end}
        if len(beside) > case.plan.cap:
            yield f"{sorted(beside)} ran at once; the cap is {case.plan.cap}"


def overlaps(case: Case) -> Iterator[tuple[str, str, float]]:
    """Two processes of slices between whose starts and stops there is common time: both slices, and since when."""
    for (one, one_end), (other, other_end) in combinations(intervals(case), 2):
        if max(one.at, other.at) < min(one_end, other_end):
            yield one.slice, other.slice, max(one.at, other.at)


def intervals(case: Case) -> Iterator[tuple[Start, float]]:
    """Each start with when it stopped. What was killed is left out: when it really ended, only its lock knows."""
    ends = {(stop.slice, stop.attempt, stop.role, stop.pid): stop.at for stop in case.evidence.stops}
    for each in case.evidence.starts:
        end = ends.get((each.slice, each.attempt, each.role, each.pid))
        if end is not None:
            yield each, end


def order(case: Case) -> Iterator[str]:
    """A session begins with the merges of all its predecessors below it, and never after its own."""
    for each in case.evidence.starts:
        if each.role == "agent":
            below = case.history(each.head)
            for name in case.plan.jobs[each.slice].needs:
                if name not in case.merges or case.merges[name].commit not in below:
                    yield f"{each.slice}@{each.attempt} began without the merge of {name}"
            if each.slice in case.merges and case.merges[each.slice].commit in below:
                yield f"{each.slice}@{each.attempt} began after its own merge"


def in_turn(case: Case) -> Iterator[str]:
    """Of two that contend, the one that merged later began its last session after the other's merge."""
    last = {each.slice: each for each in case.evidence.starts if each.role == "agent"}
    for earlier, later in combinations(case.merges.values(), 2):
        contend = frozenset({earlier.slice, later.slice}) in case.rivals and later.slice in last
        if contend and earlier.commit not in case.history(last[later.slice].head):
            yield f"{later.slice} merged after {earlier.slice}, whose merge it had not seen"


def once(case: Case) -> Iterator[str]:
    """Exactly one merge for every slice that was not canceled, and the store knows it."""
    merged = [merge.slice for merge in case.evidence.mainline if merge.slice]
    yield from (f"{name} merged {merged.count(name)} times" for name in sorted(set(merged)) if merged.count(name) > 1)
    yield from (f"{name} was merged beside main's line" for name in case.evidence.strays)
    for name in sorted(set(case.plan.jobs) - set(merged) - case.canceled()):
        yield f"{name} never merged"
    for name in case.plan.jobs:
        state = "canceled" if name in case.canceled() else "merged"
        if case.evidence.stored.get(name) != state:
            yield f"{name} is {case.evidence.stored.get(name)} in the store, and was {state}"


def intact(case: Case) -> Iterator[str]:
    """From its merge on, and not before, main has each slice's file as it was to be, and its lines once."""
    so_far: set[str] = set()
    for merge in case.evidence.mainline:
        so_far |= {merge.slice} - {""}
        wanted = {case.plan.jobs[name].own_file: blob_id(case.plan.jobs[name].body) for name in so_far}
        for path in sorted(wanted.keys() | merge.files.keys()):
            if wanted.get(path) != merge.files.get(path):
                yield f"{path} is not as it should be on main at {merge.commit[:12]} ({merge.slice or 'no merge'})"
    for path, lines in case.evidence.lines.items():
        wanted_lines = sorted(case.plan.jobs[name].line for name in so_far if path in case.plan.jobs[name].shared)
        if sorted(lines) != wanted_lines:
            yield f"{path} has {sorted(lines)}, and should have {wanted_lines}"


def verified(case: Case) -> Iterator[str]:
    """Main has a merge to be verified only if the verify command passed that very commit."""
    passed = {stop.head for stop in case.evidence.stops if stop.role == "verify" and stop.how == "good"}
    for name, merge in case.merges.items():
        if case.plan.jobs[name].verify_s is not None and merge.commit not in passed:
            yield f"the merge of {name} was not verified"


def forward(case: Case) -> Iterator[str]:
    """Main only ever moves to a commit that has the one before."""
    for old, new in case.evidence.moves:
        if old not in case.history(new):
            yield f"main went from {old[:12]} back to {new[:12]}"
    for (_, left), (old, _) in pairwise(case.evidence.moves):
        if left != old:
            yield f"main's reflog goes on from {old[:12]} where it had come to {left[:12]}"
    tip = case.evidence.mainline[-1].commit
    for commit in case.evidence.seen:
        if commit not in case.history(tip):
            yield f"main has lost {commit[:12]}, where it was seen"


def kept(case: Case) -> Iterator[str]:
    """What an agent wrote is on main or kept."""
    yield from (f"object {name[:12]} is lost" for name in case.evidence.written if name not in case.evidence.safe)


def acknowledged(case: Case) -> Iterator[str]:
    """A command that was acknowledged holds until another one takes it back."""
    for number, each in enumerate(case.evidence.commands):
        if each.status == 0 and each.verb in ("hold", "cancel"):
            later = (c for c in case.evidence.commands[number + 1 :] if c.slice == each.slice and c.verb == "release")
            until = min((c.began for c in later), default=float("inf")) if each.verb == "hold" else float("inf")
            for start in case.evidence.starts:
                if start.slice == each.slice and each.ended < start.at < until:
                    yield f"{start.slice}@{start.attempt} began in spite of a {each.verb}"
            merge = case.merges.get(each.slice)
            if each.verb == "cancel" and merge and merge.commit not in case.history(each.main):
                yield f"{each.slice} merged in spite of a cancel"


RULES: tuple[tuple[str, Callable[[Case], Iterator[str]]], ...] = (
    ("left", lambda case: iter(case.evidence.left)), ("twice", twice), ("rivals", rivals), ("cap", cap),
    ("order", order), ("in-turn", in_turn), ("once", once), ("intact", intact), ("verified", verified),
    ("forward", forward), ("kept", kept), ("acknowledged", acknowledged), ("durable", durable), ("fenced", fenced),
    ("batches", batches),
)  # fmt: skip
