"""The service played with the steps of the plain model, and both looked at in the same way."""

from __future__ import annotations

from collections.abc import Sequence

from dispatch import (
    DispatchError,
    DispatchService,
    Intent,
    Reason,
    ReasonCode,
    Recipe,
    Slice,
    SliceView,
    Store,
    TouchSet,
    UnitWeights,
    Urgency,
)
from harness import Assignment, SessionPhase, SessionState
from tests.stateful.entries import Entry, Step, contend
from tests.stateful.model import EXCLUDING, FINISHED, OCCUPYING, URGENCIES, Answer, Model, assignment_id
from tests.stateful.plain_touch import overlap

TIMEOUT_S = 10.0


class NotingHost:
    """A session host that opens nothing: it notes what it was asked, in order."""

    def __init__(self) -> None:
        self.submitted: list[Assignment] = []
        self.asked_to_stop: list[str] = []
        self.messages: list[tuple[str, str]] = []

    async def submit(self, assignment: Assignment) -> None:
        self.submitted.append(assignment)

    async def send(self, assignment_id: str, message: str) -> str:
        self.messages.append((assignment_id, message))
        return f"turn-{len(self.messages)}"

    async def cancel(self, assignment_id: str) -> None:
        self.asked_to_stop.append(assignment_id)


class PromptHost(NotingHost):
    """The same, asked to submit without waiting."""

    async def submit(self, assignment: Assignment) -> None:
        raise AssertionError("a prompt host is asked by `submit_nowait`")

    def submit_nowait(self, assignment: Assignment) -> None:
        self.submitted.append(assignment)


class SetMeasures:
    """Host measures that a test sets."""

    def __init__(self, cores: float) -> None:
        self.cores, self.load = cores, 0.0


class Driver:
    """One graph in one store, served by one service after another."""

    def __init__(self, cores: float, store: Store | str, *, prompt: bool = False) -> None:
        self.host, self.measures, self.store = PromptHost() if prompt else NotingHost(), SetMeasures(cores), store
        self.released: list[str] = []  #: what the last `merge` said that it let into the frontier
        self.service = self._boot()

    def _boot(self) -> DispatchService:
        return DispatchService(
            sessions=self.host, store=self.store, measures=self.measures, weights=UnitWeights()
        ).start()

    def play(self, *steps: Step) -> list[Answer]:
        """What the calls answer, in the words of the cases, once everything that follows from them has been done.

        Between the steps nothing is waited for but the answers.
        """
        answers = [self._play(step) for step in steps]
        self.service.settle(timeout=TIMEOUT_S)
        return answers

    def _play(self, step: Step) -> Answer:
        try:
            return getattr(self, f"_{step['do']}")(step) or {}
        except DispatchError as refused:
            return {"error": type(refused).__name__.removesuffix("Error")}

    def assert_reasons(self, model: Model) -> None:
        """Whatever doesn't run says why, and each reason that it gives is one, by the model."""
        for id_, entry in model.entries.items():
            reasons = self.service.explain(id_).reasons
            given = {code: {r.slice_id for r in reasons if r.code is code} for code in ReasonCode}
            codes = {reason.code for reason in reasons}
            if entry.state != "queued":
                assert codes == {ReasonCode.STATE}
                continue
            unmerged = {other.id for other in model.predecessors(entry) if other.state != "merged"}
            excluding = {other.id for other in model.in_state(*EXCLUDING) if contend(entry, other)}
            assert codes, f"{id_} is queued and has no reason to be"
            assert (ReasonCode.PAUSED in codes) == model.paused
            assert (ReasonCode.HELD in codes) == bool(entry.hold)
            assert given[ReasonCode.DEPENDS_ON] | given[ReasonCode.STRANDED] == unmerged
            assert given[ReasonCode.CONTENDS] <= excluding
            assert model.free_places() < 1 or ReasonCode.CAP not in codes
            assert model.room or ReasonCode.ROOM not in codes
            for other in given[ReasonCode.CONTENDS]:
                evidence = [reason for reason in reasons if reason.slice_id == other]
                _assert_evidence(evidence, entry, model.entries[other])
            if not unmerged and id_ not in model.room:
                assert given[ReasonCode.CONTENDS] == excluding
                assert model.free_places() > 0 or ReasonCode.CAP in codes
            assert not codes & {ReasonCode.STATE, ReasonCode.STORE}

    def views(self) -> dict[str, SliceView]:
        return {view.id: view for view in self.service.list()}

    def _enqueue(self, step: Step) -> None:
        self.service.enqueue(as_slice(step))

    def _enqueue_many(self, step: Step) -> None:
        self.service.enqueue_many([as_slice(fields) for fields in step["slices"]])

    def _merge(self, step: Step) -> None:
        merge = self.service.mark_merged(step["id"], step.get("pull_request_url", ""))
        assert merge.slice.id == step["id"]
        self.released = [view.id for view in merge.released]

    def _cancel(self, step: Step) -> None:
        self.service.cancel(step["id"])

    def _retry(self, step: Step) -> None:
        self.service.retry(step["id"])

    def _hold(self, step: Step) -> None:
        self.service.hold(step["id"], step.get("reason", "case"))

    def _release(self, step: Step) -> None:
        self.service.release(step["id"], "case")

    def _pause(self, step: Step) -> None:
        self.service.pause("case")

    def _resume(self, step: Step) -> None:
        self.service.resume("case")

    def _measure(self, step: Step) -> None:
        self.measures.cores, self.measures.load = step["cores"], step["load"]
        self.service.remeasure()

    def _restart(self, step: Step) -> None:
        self.service.stop()
        self.service = self._boot()

    def _report(self, step: Step) -> None:
        if "attempt" in step:
            assignment_id = f"{step['id']}@{step['attempt']}"
        else:
            assignment_id = self.views()[step["id"]].assignment_id
        self.service.observe_session(
            SessionState(
                assignment_id=assignment_id,
                phase=SessionPhase(step["phase"]),
                turns=1,
                pull_request_url=step.get("pull_request_url", ""),
                error=step.get("error", ""),
            )
        )

    def _declare(self, step: Step) -> Answer:
        return {"attached": [view.id for view in self.service.declare_intent(as_intent(step["intent"]))]}

    def _reprioritize(self, step: Step) -> Answer:
        return {"attached": [view.id for view in self.service.reprioritize(as_intent(step["intent"]))]}

    def _route(self, step: Step) -> Answer:
        new = step.get("new")
        routed = self.service.route(
            as_intent(step["intent"]),
            message=step.get("message", ""),
            new_slice=None if new is None else as_slice(new),
        )
        if routed.decision.value == "steer":
            assert (routed.assignment_id, routed.turn_id) == (
                self.host.messages[-1][0],
                f"turn-{len(self.host.messages)}",
            )
        assert (routed.view.id if routed.view else "") == routed.slice_id
        return {"decision": routed.decision.value, "slice": routed.slice_id or None}

    def survey(self) -> Answer:
        """Everything that is to be seen and that the contract settles."""
        snapshot = self.service.snapshot()
        return {
            "paused": bool(snapshot.paused),
            "cap": None if snapshot.paused else snapshot.cap.places,
            "room": sorted(snapshot.room),
            "frontier": [view.id for view in self.service.frontier()],
            "running": sorted(snapshot.running),
            "intents": {known.intent.id: list(known.attached) for known in snapshot.intents},
            "slices": {id_: _seen(view) for id_, view in self.views().items()},
            "submitted": sorted(assignment.assignment_id for assignment in self.host.submitted),
            "asked to stop": sorted(self.host.asked_to_stop),
            "messages": self.host.messages,
        }

    def assert_texts(self, model: Model) -> None:
        """A failed slice says what its session said; one that goes back to the queue has a checkpoint to go on from."""
        for id_, view in self.views().items():
            entry = model.entries[id_]
            if entry.state == "failed" and entry.error:
                assert view.error == entry.error
            if entry.state == "queued" and entry.checkpointed:
                assert view.checkpoint


def expected_survey(model: Model) -> Answer:
    """The same of the model, which has to be told nothing but the steps."""
    return {
        "paused": model.paused,
        "cap": None if model.paused else model.cap(),
        "room": sorted(model.room),
        "frontier": [entry.id for entry in model.frontier()],
        "running": sorted(entry.id for entry in model.in_state(*OCCUPYING)),
        "intents": {
            name: [id_ for id_ in model.entries if id_ in known.attached] for name, known in model.intents.items()
        },
        "slices": {id_: _foreseen(model, entry) for id_, entry in model.entries.items()},
        "submitted": sorted(model.submitted),
        "asked to stop": sorted(model.asked_to_stop),
        "messages": model.messages,
    }


def _seen(view: SliceView) -> Answer:
    finished = view.state.value in FINISHED
    return {
        "state": view.state.value,
        "attempt": view.attempt,
        "assignment": view.assignment_id,
        "closes": view.closes,
        "pull request": view.pull_request_url,
        "hold": view.hold,
        "canceling": view.canceling,
        "intents": sorted(view.intents),
        "urgency": None if finished or not view.priority.urgency else view.priority.urgency.name.lower(),
        "critical path": None if finished else view.priority.critical_path,
        "learned": view.priority.learned,
        "declared order": view.priority.declared_order,
        "rank": view.priority.rank,
    }


def _foreseen(model: Model, entry: Entry) -> Answer:
    finished = entry.state in FINISHED
    urgency = model.urgency(entry)
    frontier = model.frontier()
    return {
        "state": entry.state,
        "attempt": entry.attempt,
        "assignment": assignment_id(entry) if entry.state in OCCUPYING else "",
        "closes": entry.closes,
        "pull request": entry.pull_request_url,
        "hold": entry.hold,
        "canceling": entry.canceling,
        "intents": sorted(name for name, known in model.intents.items() if entry.id in known.attached),
        "urgency": None if finished or urgency == URGENCIES[0] else urgency,
        "critical path": None if finished else model.upward_rank(entry),
        "learned": 0,
        "declared order": list(model.entries).index(entry.id) + 1,
        "rank": frontier.index(entry) + 1 if entry in frontier else None,
    }


def _assert_evidence(evidence: Sequence[Reason], one: Entry, other: Entry) -> None:
    """A path that both touch, a hotspot of both; neither only where the two were declared to contend."""
    for reason in evidence:
        if reason.witness:
            assert "*" not in reason.witness
            assert any(overlap(reason.witness, path) for path in one.paths)
            assert any(overlap(reason.witness, path) for path in other.paths)
        elif reason.pattern:
            assert reason.pattern in set(one.hotspots) & set(other.hotspots)
        elif reason.code is ReasonCode.CONTENDS:
            assert other.id in one.contends or one.id in other.contends
    shared = {name for name in one.hotspots if name in other.hotspots}
    assert shared <= {reason.pattern for reason in evidence}
    touching = any(overlap(path, theirs) for path in one.paths for theirs in other.paths)
    assert touching == any(reason.witness for reason in evidence)


def as_slice(fields: Step) -> Slice:
    return Slice(
        id=fields["id"],
        title=fields.get("title", ""),
        recipe=Recipe(command=("true",), max_attempts=fields.get("max_attempts", 3)),
        depends_on=tuple(fields["depends_on"]),
        required_by=tuple(fields["required_by"]),
        contends=tuple(fields["contends"]),
        touch=TouchSet(paths=tuple(fields["paths"]), hotspots=tuple(fields["hotspots"])),
        hold="case" if fields.get("hold") else "",
    )


def as_intent(fields: Step) -> Intent:
    return Intent(
        id=fields["id"],
        statement=fields["statement"],
        scope=fields.get("scope", ""),
        urgency=Urgency[fields["urgency"].upper()],
        deadline=fields.get("deadline"),
        supersedes=fields.get("supersedes", ""),
        terms=tuple(fields.get("terms", ())),
    )
