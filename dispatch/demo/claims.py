"""What the demo claims to have shown. Each claim is checked against the evidence, and says in words what it saw."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import attrs

from dispatch.demo.evidence import Evidence, Span
from dispatch.demo.operator import ANSWER, ASKING, FAILING, LONG, URGENT

PAIR = ("prices", "hours")  #: they change the same file, and the plan doesn't say so
SHARED = "README.md"


@attrs.frozen
class Claim:
    """`promise`: what the product does; `seen`: what of it was to be seen; `kept`: whether it was."""

    promise: str
    seen: str
    kept: bool


def claims(evidence: Evidence) -> list[Claim]:
    """In the order in which they are told."""
    return [claim(evidence) for claim in ALL]


def side_by_side(evidence: Evidence) -> Claim:
    most = peak(evidence.spans)
    return Claim(
        "Whatever may run runs at once, up to the cap.",
        f"At most {most} agents ran at the same time; the cap was {evidence.cap}.",
        1 < most <= evidence.cap,
    )


def order(evidence: Evidence) -> Claim:
    edges = {(each.id, name) for each in evidence.slices.values() for name in each.depends_on}
    return Claim(
        "A slice starts when all it depends on has been merged.",
        f"{len(edges & evidence.began_with)} of {len(edges)} dependents began with the work they depend on.",
        edges == evidence.began_with,
    )


def contention(evidence: Evidence) -> Claim:
    pairs = [
        (one.id, other.id)
        for one, other in itertools.combinations(evidence.slices.values(), 2)
        if one.touch.overlaps(other.touch)
    ]
    met = [pair for pair in pairs if together(evidence, *pair)]
    named = ", ".join(" and ".join(pair) for pair in met or pairs)
    return Claim(
        "Slices that touch the same paths or the same hotspot never run at once.",
        f"{'Ran at once' if met else 'Took turns'}: {named}.",
        bool(pairs) and not met,
    )


def failure(evidence: Evidence) -> Claim:
    rows = evidence.attempts[FAILING]
    said = rows[0].detail if rows else "nothing"
    return Claim(
        "What fails says why, holds up nothing else, and can be retried.",
        f"{FAILING} failed ({said}), was retried by hand, and merged at attempt {len(rows)}.",
        len(rows) == 2 and rows[0].outcome != "merged" and rows[1].outcome == "merged",
    )


def conflict(evidence: Evidence) -> Claim:
    lost = [row for name in PAIR for row in evidence.attempts[name] if "merge conflict" in row.detail]
    loser = lost[0].slice_id if lost else "nobody"
    both = all(lines_of(evidence, name) for name in PAIR)
    return Claim(
        "A merge that conflicts doesn't reach main; the slice begins anew, from what main is by then.",
        f"{' and '.join(PAIR)} both changed {SHARED} undeclared; {loser} began anew; main has the lines of both.",
        len(lost) == 1 and both,
    )


def steering(evidence: Evidence) -> Claim:
    text = evidence.files.get("shop/layout.txt", "")
    return Claim(
        "A message reaches an agent while it works.",
        f"{ASKING} asked for a colour; the answer {'is' if ANSWER in text else 'is not'} in its file: {ANSWER}.",
        ANSWER in text,
    )


def preemption(evidence: Evidence) -> Claim:
    rows, merged = evidence.attempts[LONG], evidence.order
    first, again = (evidence.logs.get((LONG, attempt), "") for attempt in (1, 2))
    done = re.findall(r"^has committed (part \d+)", first, re.MULTILINE)
    redone = [part for part in done if f"has committed {part} " in again]
    in_turn = URGENT in merged and LONG in merged and merged.index(URGENT) < merged.index(LONG)
    return Claim(
        "For an urgent slice, what is in its way stops at a safepoint, and goes on from there later.",
        f"{LONG} made room for {URGENT} after {len(done)} parts, and later went on with part {len(done) + 1}.",
        len(rows) == 2 and rows[0].outcome != "merged" and in_turn and bool(done) and not redone,
    )


def nothing_lost(evidence: Evidence) -> Claim:
    whole = [name for name in evidence.slices if evidence.order.count(name) == 1 and complete(evidence, name)]
    return Claim(
        "Every slice reaches main once and whole.",
        f"{len(whole)} of {len(evidence.slices)} slices have one merge on main, and each of their parts once.",
        len(whole) == len(evidence.slices) == len(evidence.merges),
    )


ALL: tuple[Callable[[Evidence], Claim], ...] = (
    side_by_side,
    order,
    contention,
    failure,
    conflict,
    steering,
    preemption,
    nothing_lost,
)


def peak(spans: tuple[Span, ...]) -> int:
    """How many overlapped at one moment at the most."""
    return max((sum(span.begin <= each.begin < span.end for span in spans) for each in spans), default=0)


def together(evidence: Evidence, one: str, other: str) -> bool:
    """Whether agents of both ever ran at once."""
    return any(
        mine.overlaps(theirs)
        for mine in evidence.spans
        for theirs in evidence.spans
        if (mine.slice_id, theirs.slice_id) == (one, other)
    )


def lines_of(evidence: Evidence, name: str) -> list[tuple[int, int]]:
    """The lines that a slice's agents wrote on main: part and number of parts, in the order of the file."""
    slice_ = evidence.slices[name]
    file = re.findall(r"^file: (.+)$", slice_.recipe.prompt, re.MULTILINE)[0]
    found = re.findall(rf"^{re.escape(slice_.title)}: part (\d+) of (\d+)", evidence.files.get(file, ""), re.MULTILINE)
    return [(int(part), int(parts)) for part, parts in found]


def complete(evidence: Evidence, name: str) -> bool:
    """Whether each part is there once, in order."""
    lines = lines_of(evidence, name)
    return bool(lines) and lines == [(part, lines[0][1]) for part in range(1, lines[0][1] + 1)]
