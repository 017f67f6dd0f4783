"""Making room for the urgent: exactly what is needed, whenever it becomes possible, or nobody is asked.

Worked out by hand from the rules. `states` names each slice's state by its first letter, in enqueue order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import pytest

from dispatch.commands import (
    AskToStop,
    Cancel,
    DeclareIntent,
    Effect,
    Hold,
    Launch,
    MarkMerged,
    Pause,
    Release,
    Resume,
    Revise,
)
from dispatch.intent import Intent, Urgency
from dispatch.slice import Slice, SliceState
from harness import SessionPhase
from tests.unit.machine_rig import URL, Rig, work

Step = Callable[[Rig], list[Effect]]
A, B, C, U, V = (work(name) for name in "abcuv")
LETTERS = {
    SliceState.QUEUED: "q",
    SliceState.RUNNING: "r",
    SliceState.PREEMPTED: "p",
    SliceState.IN_REVIEW: "i",
    SliceState.MERGED: "m",
    SliceState.FAILED: "f",
    SliceState.CANCELED: "c",
}


def new(*slices: Slice) -> Step:
    return lambda rig: rig.enqueue(*slices)


def urgent(name: str) -> Step:
    return lambda rig: rig.urgent(name)


def calm(name: str) -> Step:
    return lambda rig: rig.do(DeclareIntent(Intent(f"urgent-{name}", "later", name, Urgency.HIGH)))


def report(name: str, phase: SessionPhase = SessionPhase.CLOSED, url: str = "") -> Step:
    return lambda rig: rig.report(name, phase, pull_request_url=url)


def merged(name: str) -> Step:
    return report(name, SessionPhase.MERGED)


def places(cap: int) -> Step:
    return lambda rig: rig.open(cap)


def do(command: object) -> Step:
    return lambda rig: rig.do(command)  # type: ignore[arg-type]


def touching(*names: str) -> list[Slice]:
    """Slices that touch the hotspot h."""
    return [work(name, hotspots=["h"]) for name in names]


@attrs.frozen
class Case:
    """`asked` are the sessions asked to stop, in order, and `room` what room is made for, at the end."""

    name: str
    steps: Sequence[Step]
    states: str
    asked: Sequence[str] = ()
    room: Sequence[str] = ()
    cap: int = 1


PREEMPT = (new(A, U), urgent("u"))  # on one place: a runs, is asked to stop, u is in room

CASES = [
    # How many are asked.
    Case("one place: who runs is asked", PREEMPT, "pq", ["a@1"], ["u"]),
    Case("a free place: nobody is asked", [new(A, U), urgent("u")], "rr", cap=2),
    Case("the lowest-ranked is asked", [new(A, B, C, U), urgent("u")], "rrpq", ["c@1"], ["u"], cap=3),
    Case(
        "a contender is asked rather than the lowest-ranked",
        [new(*touching("a"), B, *touching("u")), urgent("u")],
        *("prq", ["a@1"], ["u"], 2),
    ),
    Case(
        "all contenders are asked",
        [new(work("a", hotspots=["h"]), work("b", hotspots=["i"]), C, work("u", hotspots=["h", "i"])), urgent("u")],
        *("pprq", ["a@1", "b@1"], ["u"], 3),
    ),
    Case(
        "a contender is asked though a place is free",
        [new(*touching("a", "u")), urgent("u")],
        *("pq", ["a@1"], ["u"], 5),
    ),
    Case("a second pass asks nobody", [*PREEMPT, places(1), places(1)], "pq", ["a@1"], ["u"]),
    Case(
        "each urgent slice gets a place of its own",
        [new(A, B, U, V), urgent("u"), urgent("v")],
        *("ppqq", ["b@1", "a@1"], ["u", "v"], 2),
    ),
    Case(
        "one urgent slice too many waits",
        [new(A, B, U, V, work("w")), urgent("u"), urgent("v"), urgent("w")],
        *("ppqqq", ["b@1", "a@1"], ["u", "v"], 2),
    ),
    Case(
        "the urgent don't displace one another",
        [*PREEMPT, report("a"), new(V), urgent("v")],
        *("qrq", ["a@1"], []),
    ),
    Case(
        "unless one ranks higher by what waits for it",
        [new(A), new(U), urgent("u"), report("a"), new(V, work("w", depends_on=("v",))), urgent("v")],
        *("qpqq", ["a@1", "u@1"], ["v"]),
    ),
    # Who may be displaced.
    Case(
        "who ranks higher is not displaced",
        [new(A, work("b", depends_on=("a",)), U), urgent("u")],
        *("rqq", [], []),
    ),
    Case(
        "nor if it contends",
        [new(*touching("a"), work("b", depends_on=("a",)), *touching("u")), urgent("u")],
        *("rqq", [], [], 5),
    ),
    Case(
        "nobody is asked in vain: one contender ranks higher",
        [
            new(work("a", hotspots=["h"]), work("b", hotspots=["i"]), work("c", depends_on=("a",))),
            new(work("u", hotspots=["h", "i"])),
            urgent("u"),
        ],
        *("rrqq", [], [], 5),
    ),
    Case(
        "once the higher one has ended, the others are asked",
        [
            new(work("a", hotspots=["h"]), work("b", hotspots=["i"]), work("c", depends_on=("a",))),
            new(work("u", hotspots=["h", "i"])),
            urgent("u"),
            merged("a"),
        ],
        *("mprq", ["b@1"], ["u"], 5),
    ),
    Case("an intent that is merely high asks nobody", [new(A, U), calm("u")], "rq"),
    Case("what waits for a predecessor is not urgent yet", [new(A, work("u", depends_on=("a",))), urgent("u")], "rq"),
    Case("what is held is not urgent", [new(A, work("u", hold="wait")), urgent("u")], "rq"),
    Case(
        "what is released is",
        [new(A, work("u", hold="wait")), urgent("u"), do(Release("u"))],
        *("pq", ["a@1"], ["u"]),
    ),
    # The cap fell under what runs.
    Case(
        "too many run already: nobody is asked",
        [new(A, B, C), places(1), new(U), urgent("u")],
        *("rrrq", [], [], 3),
    ),
    Case(
        "too many run already, and one contends: nobody is asked",
        [new(A, B, *touching("c")), places(1), new(*touching("u")), urgent("u")],
        *("rrrq", [], [], 3),
    ),
    Case(
        "when enough have ended, the last is asked",
        [new(A, B, C), places(1), new(U), urgent("u"), merged("a"), merged("b")],
        *("mmpq", ["c@1"], ["u"], 3),
    ),
    Case(
        "when enough have ended, the contender and one more are asked",
        [new(A, B, *touching("c")), places(1), new(*touching("u")), urgent("u"), merged("a")],
        *("mppq", ["c@1", "b@1"], ["u"], 3),
    ),
    Case(
        "the cap falls while room is being made: who is left goes on",
        [new(A, B, U), urgent("u"), places(1), report("b")],
        *("rqq", ["b@1"], ["u"], 2),
    ),
    Case(
        "what is in room takes the next place that is really free",
        [new(A, B, U), urgent("u"), places(1), report("b"), merged("a")],
        *("mqr", ["b@1"], [], 2),
    ),
    Case(
        "too many run already, and who would have to go beside the contender ranks higher: nobody is asked",
        [new(A, work("b", depends_on=("a",)), *touching("c")), places(1), new(*touching("u")), urgent("u")],
        *("rqrq", [], [], 2),
    ),
    # Contenders in review.
    Case(
        "a contender in review is waited for, and nobody is asked",
        [new(*touching("a")), report("a", url=URL), new(B, *touching("u")), urgent("u")],
        *("irq", [], []),
    ),
    Case(
        "once it has merged, room is made",
        [new(*touching("a")), report("a", url=URL), new(B, *touching("u")), urgent("u"), do(MarkMerged("a"))],
        *("mpq", ["b@1"], ["u"]),
    ),
    Case(
        "a victim that goes into review empties the room",
        [new(*touching("a", "u")), urgent("u"), report("a", url=URL), new(B)],
        *("iqr", ["a@1"], []),
    ),
    # Cancels that wait.
    Case(
        "who is to be canceled is not asked again, and its place is counted on",
        [new(A, U), do(Cancel("a")), urgent("u")],
        *("rq", ["a@1"], ["u"]),
    ),
    Case(
        "nor is a contender that is to be canceled",
        [new(*touching("a"), B, *touching("u")), do(Cancel("a")), urgent("u")],
        *("rrq", ["a@1"], ["u"], 2),
    ),
    Case(
        "it starts at the report of the canceled one",
        [new(*touching("a"), B, *touching("u")), do(Cancel("a")), urgent("u"), report("a", SessionPhase.CANCELED)],
        *("crr", ["a@1"], [], 2),
    ),
    Case(
        "a victim that is canceled meanwhile is not asked again",
        [*PREEMPT, do(Cancel("a")), report("a")],
        *("cr", ["a@1"], []),
    ),
    Case("a victim that is marked merged meanwhile leaves its place", [*PREEMPT, do(MarkMerged("a"))], "mr", ["a@1"]),
    # The room.
    Case("it starts when its victim has stopped, which is queued again", [*PREEMPT, report("a")], "qr", ["a@1"]),
    Case(
        "it takes another's place if that is free first",
        [new(A, B, U), urgent("u"), merged("a")],
        *("mpr", ["b@1"], [], 2),
    ),
    Case(
        "the victim starts again when there is a place",
        [new(A, B, U), urgent("u"), merged("a"), report("b")],
        *("mrr", ["b@1"], [], 2),
    ),
    Case(
        "while it waits for a contender, others get the places that it doesn't need",
        [new(*touching("a", "u")), urgent("u"), new(B, C)],
        *("pqrq", ["a@1"], ["u"], 2),
    ),
    Case(
        "nobody starts who contends with it",
        [new(*touching("a", "u")), urgent("u"), new(*touching("b"))],
        *("pqq", ["a@1"], ["u"], 5),
    ),
    Case(
        "of two urgent ones that contend the second waits",
        [new(A, *touching("u", "v")), urgent("u"), urgent("v")],
        *("pqq", ["a@1"], ["u"]),
    ),
    Case(
        "and asks nobody while the first is at work",
        [new(A, *touching("u", "v")), urgent("u"), urgent("v"), report("a")],
        *("qrq", ["a@1"], []),
    ),
    Case("held meanwhile, it gives the place back", [*PREEMPT, do(Hold("u")), report("a")], "rq", ["a@1"]),
    Case(
        "released again, it asks again",
        [*PREEMPT, do(Hold("u")), report("a"), do(Release("u"))],
        *("pq", ["a@1", "a@2"], ["u"]),
    ),
    Case("calmed meanwhile, it gives the place back by rank", [*PREEMPT, calm("u")], "pq", ["a@1"]),
    Case("canceled meanwhile, it gives the place back", [*PREEMPT, do(Cancel("u")), report("a")], "rc", ["a@1"]),
    Case(
        "if another comes before it, it gives the place back",
        [*PREEMPT, new(work("b", required_by=("u",))), report("a")],
        *("qqr", ["a@1"], []),
    ),
    Case(
        "revised meanwhile, it keeps its room if it needs it still",
        [*PREEMPT, do(Revise(U)), report("a")],
        *("qr", ["a@1"], []),
    ),
    Case(
        "revised to touch what a slice in review does, it gives the place back",
        [new(*touching("b")), report("b", url=URL), *PREEMPT, do(Revise(*touching("u"))), report("a")],
        *("irq", ["a@1"], []),
    ),
    # Pauses.
    Case("paused, nobody is asked", [new(A, U), do(Pause()), urgent("u")], "rq"),
    Case("resumed, the victim is asked", [new(A, U), do(Pause()), urgent("u"), do(Resume())], "pq", ["a@1"], ["u"]),
    Case("paused meanwhile, it keeps its room and waits", [*PREEMPT, do(Pause()), report("a")], "qq", ["a@1"], ["u"]),
    Case("resumed, it starts", [*PREEMPT, do(Pause()), report("a"), do(Resume())], "qr", ["a@1"]),
    Case(
        "canceled in a pause, it leaves the room at the next pass",
        [*PREEMPT, do(Pause()), do(Cancel("u")), report("a"), do(Resume())],
        *("rc", ["a@1"], []),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_room(case: Case) -> None:
    rig = Rig(cap=case.cap)
    effects = [effect for step in case.steps for effect in step(rig)]
    asked = [effect.assignment_id for effect in effects if isinstance(effect, AskToStop)]
    states = "".join(LETTERS[node.state] for node in rig.machine.graph.nodes.values())
    room = [node.id for node in rig.machine.graph.room]
    assert (states, asked, room) == (case.states, list(case.asked), list(case.room))


def test_a_victim_goes_on_from_its_checkpoint_and_counts_no_close() -> None:
    rig = Rig(A, U)
    rig.urgent("u")
    rig.report("a", SessionPhase.CLOSED, checkpoint="half done")
    (launch,) = rig.report("u", SessionPhase.MERGED)
    assert isinstance(launch, Launch)
    assert (launch.assignment.assignment_id, launch.assignment.checkpoint) == ("a@2", "half done")
    assert rig.machine.graph.node("a").closes == 0
    assert [row.outcome for row in rig.machine.changes().attempts] == ["preempted", "merged", ""]
