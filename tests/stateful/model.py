"""A plain model of the contract: what a service must answer and do, worked out the slow way.

The model speaks the vocabulary of the conformance cases: `play(step)` applies one step, given as a mapping, and says
what the call answers; `observe()` says what is to be seen then. Everything is recomputed whenever it is asked for, over
all slices and all pairs. No part of the product is used, so that the two can disagree.

Beyond the given cases a step may be `enqueue_many` (its `slices`); a slice may bring a `title` and `max_attempts`, a
report the `attempt` it is about, a merge a `pull_request_url`, and a route a `new` slice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from tests.stateful.entries import (
    Entry,
    Step,
    as_entry,
    contend,
    contends_with_any,
    most_covering,
    out_of_grammar,
    runs_in_a_circle,
)

Answer = dict[str, Any]

URGENCIES = ("none", "low", "normal", "high", "urgent")
OCCUPYING = ("running", "preempted")
EXCLUDING = (*OCCUPYING, "in_review")
FINISHED = ("merged", "canceled")
ROUTING_ORDER = {"running": 0, "preempted": 0, "queued": 1, "failed": 1, "in_review": 1, "merged": 2}
UNFINISHED = ("queued", "running", "preempted", "in_review", "failed")
ACCEPTED = {
    "merge": (*UNFINISHED, "merged"),
    "cancel": UNFINISHED,
    "retry": ("in_review", "failed"),
    "hold": UNFINISHED,
    "release": UNFINISHED,
}


class Refused(Exception):  # noqa: N818 - an outcome that the contract foresees, not a fault
    """A command is refused. `names` are the errors, without their ending, of which any one is right."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = names


@attrs.define
class Registered:
    """An intent's urgency, and the slices it is attached to."""

    urgency: str
    attached: set[str]


class Model:
    """The whole service: its slices in enqueue order, its intents, and what its host was asked to do."""

    def __init__(self, cores: float) -> None:
        self.cores, self.load = cores, 0.0
        self.paused = False
        self.entries: dict[str, Entry] = {}
        self.edges: list[tuple[str, str]] = []  #: the earlier, the later
        self.intents: dict[str, Registered] = {}
        self.room: list[str] = []
        self.submitted: list[str] = []  #: assignment ids, as are the next two
        self.asked_to_stop: list[str] = []
        self.messages: list[tuple[str, str]] = []
        self._seen_before = (0, 0)
        self.released: list[str] = []  #: what the last `merge` let into the frontier

    # What is asked from outside.

    def play(self, step: Step) -> Answer:
        """Apply a step and the pass that follows. Raises `Refused`, and then nothing has changed."""
        self._seen_before = len(self.submitted), len(self.asked_to_stop)
        answer = getattr(self, f"_{step['do']}")(step)
        self._pass()
        return answer or {}

    def answer(self, step: Step) -> Answer:
        """The same, in the words of the cases: a refusal is an answer, too."""
        try:
            return self.play(step)
        except Refused as refused:
            return {"error": refused.names[0]}

    def observe(self) -> Answer:
        """All that a case shows. Started and stopping: by the last step alone."""
        started, stopping = self._seen_before
        return {
            "started": sorted(slice_id(name) for name in self.submitted[started:]),
            "stopping": sorted(slice_id(name) for name in self.asked_to_stop[stopping:]),
            "frontier": [entry.id for entry in self.frontier()],
            "running": [entry.id for entry in self.in_state(*OCCUPYING)],
            "states": {entry.id: entry.state for entry in self.entries.values()},
            "critical_path": {entry.id: self.upward_rank(entry) for entry in self.in_state(*UNFINISHED)},
        }

    # What follows from what is kept.

    def in_state(self, *states: str) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.state in states]

    def predecessors(self, entry: Entry) -> list[Entry]:
        return [self.entries[earlier] for earlier, later in self.edges if later == entry.id]

    def dependents(self, entry: Entry) -> list[Entry]:
        later = {after for before, after in self.edges if before == entry.id}
        return [other for other in self.entries.values() if other.id in later]

    def ready(self, entry: Entry) -> bool:
        return all(before.state == "merged" for before in self.predecessors(entry))

    def frontier(self) -> list[Entry]:
        return self.ranked(entry for entry in self.in_state("queued") if self.ready(entry))

    def upward_rank(self, entry: Entry) -> int:
        """The number of slices on the longest unfinished way from here, counted layer by layer."""
        rank, layer = 0, {entry.id}
        while layer:
            after = {later for earlier, later in self.edges if earlier in layer}
            rank, layer = rank + 1, {id_ for id_ in after if self.entries[id_].state in UNFINISHED}
        return rank

    def urgency(self, entry: Entry) -> str:
        attached = [known.urgency for known in self.intents.values() if entry.id in known.attached]
        return max(attached, key=URGENCIES.index, default="none")

    def rank(self, entry: Entry) -> tuple[int, int, int]:
        """What slices are sorted by: the smaller, the higher it ranks."""
        place = list(self.entries).index(entry.id)
        return -self.upward_rank(entry), -URGENCIES.index(self.urgency(entry)), place

    def ranked(self, entries: Iterable[Entry]) -> list[Entry]:
        return sorted(entries, key=self.rank)

    def cap(self) -> int:
        return max(1, math.floor(self.cores - self.load))

    def free_places(self) -> int:
        return self.cap() - len(self.in_state(*OCCUPYING))

    def staying(self) -> list[Entry]:
        return [entry for entry in self.in_state("running") if not entry.canceling]

    def in_room(self) -> list[Entry]:
        return [self.entries[id_] for id_ in self.room]

    def startable(self) -> list[Entry]:
        return [entry for entry in self.frontier() if not entry.hold]

    def urgent(self) -> list[Entry]:
        return [entry for entry in self.startable() if self.urgency(entry) == "urgent"]

    # The pass.

    def _pass(self) -> None:
        if self.paused:
            return
        reviewed = self.in_state("in_review")
        keep = [entry.id for entry in self.urgent() if not contends_with_any(entry, reviewed)]
        self.room = [id_ for id_ in self.room if id_ in keep]
        self._walk()
        if [entry for entry in self.urgent() if self._makes_room(entry)]:
            self._walk()

    def _walk(self) -> None:
        for entry in sorted(self.startable(), key=lambda entry: entry.id not in self.room):
            if self._may_start(entry):
                self._start(entry)

    def _may_start(self, entry: Entry) -> bool:
        if contends_with_any(entry, self.in_state(*EXCLUDING)) or self.free_places() < 1:
            return False
        if entry.id in self.room:
            return True
        left = self.cap() - len(self.staying()) - len(self.room)
        return left >= 1 and not contends_with_any(entry, self.in_room())

    def _start(self, entry: Entry) -> None:
        entry.state, entry.asked = "running", False
        entry.attempt += 1
        self.room = [id_ for id_ in self.room if id_ != entry.id]
        self.submitted.append(assignment_id(entry))

    def _makes_room(self, entry: Entry) -> bool:
        """Ask the sessions in its way to stop, if that helps an urgent slice; whether it joined the room."""
        if entry.id in self.room or contends_with_any(entry, self.in_state("in_review")):
            return False
        if contends_with_any(entry, self.in_room()):
            return False
        victims = [other for other in self.staying() if contend(entry, other)]
        others = [other for other in self.staying() if not contend(entry, other)]
        seats = self.cap() - len(others) - len(self.room)
        if seats < 0 or (seats == 0 and not others):
            return False
        if seats == 0:
            victims.append(self.ranked(others)[-1])
        if any(self.rank(victim) < self.rank(entry) for victim in victims):
            return False
        for victim in victims:
            victim.state = "preempted"
            self._ask_to_stop(victim)
        self.room.append(entry.id)
        return True

    def _ask_to_stop(self, entry: Entry) -> None:
        if not entry.asked:
            entry.asked = True
            self.asked_to_stop.append(assignment_id(entry))

    # Enqueueing.

    def _enqueue(self, step: Step) -> None:
        self._refuse_slices([step])
        self._add(step)

    def _enqueue_many(self, step: Step) -> None:
        self._refuse_slices(step["slices"])
        for fields in step["slices"]:
            self._add(fields)

    def _add(self, fields: Step) -> None:
        entry = as_entry(fields)
        self.entries[entry.id] = entry
        self.edges += [(before, entry.id) for before in entry.depends_on]
        self.edges += [(entry.id, after) for after in entry.required_by]

    def _refuse_slices(self, batch: Sequence[Step]) -> None:
        """Refuse slices that can't come in together. Several of them may each be at fault in their own way."""
        known = {**self.entries, **{fields["id"]: as_entry(fields) for fields in batch}}
        ids = [fields["id"] for fields in batch]
        faults = [self._fault(fields, known, twice=ids.count(fields["id"]) > 1) for fields in batch]
        names = [fault for fault in faults if fault]
        if not names or len(batch) > 1:
            names += ["Cycle"] if runs_in_a_circle(known.values()) else []
        if names:
            raise Refused(*names)

    def _fault(self, fields: Step, known: Mapping[str, Entry], *, twice: bool) -> str:
        if out_of_grammar(fields):
            return "InvalidSlice"
        if fields["id"] in self.entries or twice:
            return "SliceExists"
        for other in (*fields["depends_on"], *fields["required_by"], *fields["contends"]):
            if other == fields["id"]:
                return "Cycle"
            if other not in known:
                return "UnknownSlice"
        late = any(known[before].state == "canceled" for before in fields["depends_on"])
        late |= any(known[after].state not in ("queued", "failed") for after in fields["required_by"])
        return "SliceFinished" if late else ""

    # Commands about one slice.

    def _addressed(self, step: Step) -> Entry:
        if step["id"] not in self.entries:
            raise Refused("UnknownSlice")
        entry = self.entries[step["id"]]
        if entry.state not in ACCEPTED[step["do"]]:
            raise Refused("SliceFinished" if entry.state in FINISHED else "InvalidCommand")
        return entry

    def _merge(self, step: Step) -> None:
        entry = self._addressed(step)
        if entry.state in OCCUPYING:
            self._ask_to_stop(entry)
        entry.state, entry.canceling = "merged", False
        entry.pull_request_url = step.get("pull_request_url") or entry.pull_request_url
        self.released = [after.id for after in self.dependents(entry) if after in self.frontier()]

    def _cancel(self, step: Step) -> None:
        entry = self._addressed(step)
        if entry.state in OCCUPYING:
            entry.canceling = True
            self._ask_to_stop(entry)
        else:
            entry.state = "canceled"

    def _retry(self, step: Step) -> None:
        entry = self._addressed(step)
        entry.state, entry.closes, entry.pull_request_url = "queued", 0, ""

    def _hold(self, step: Step) -> None:
        entry = self._addressed(step)
        entry.hold = entry.hold or step.get("reason", "case")

    def _release(self, step: Step) -> None:
        self._addressed(step).hold = ""

    # Commands about the whole, and the host's word.

    def _pause(self, step: Step) -> None:
        self.paused = True

    def _resume(self, step: Step) -> None:
        self.paused = False

    def _measure(self, step: Step) -> None:
        self.cores, self.load = step["cores"], step["load"]

    def _restart(self, step: Step) -> None:
        for entry in self.in_state(*OCCUPYING):
            entry.state = "canceled" if entry.canceling else "queued"
            entry.canceling, entry.checkpointed = False, True
        self.room = []

    def _report(self, step: Step) -> None:
        """A step without an `attempt` is about the one that the slice is at, as in the cases."""
        if "attempt" in step and step["id"] not in self.entries:
            return
        entry = self.entries[step["id"]]
        if entry.state not in OCCUPYING or step.get("attempt", entry.attempt) != entry.attempt:
            return
        entry.pull_request_url = step.get("pull_request_url") or entry.pull_request_url
        if step["phase"] != "running":
            entry.state = self._ended(entry, step)
            entry.checkpointed = entry.checkpointed or entry.state == "queued"
            entry.canceling = False

    def _ended(self, entry: Entry, step: Step) -> str:
        """The state a slice is left in when its session ends."""
        phase = str(step["phase"])
        entry.error = step.get("error", "") if phase == "failed" else ""
        if phase in ("merged", "failed"):
            return phase
        if entry.canceling:
            return "canceled"
        if phase == "canceled":
            return "queued" if entry.state == "preempted" else "canceled"
        if entry.pull_request_url:
            return "in_review"
        if entry.state == "preempted":
            return "queued"
        entry.closes += 1
        return "failed" if entry.closes >= entry.max_attempts else "queued"

    # Intents.

    def _declare(self, step: Step) -> Answer:
        intent = step["intent"]
        self._register(intent, self._unfinished_targets(intent))
        attached = self.intents[intent["id"]].attached
        return {"attached": [id_ for id_ in self.entries if id_ in attached]}

    def _reprioritize(self, step: Step) -> Answer:
        if step["intent"]["id"] not in self.intents:
            raise Refused("UnknownIntent")
        return self._declare(step)

    def _route(self, step: Step) -> Answer:
        intent, target = step["intent"], self._best_target(step["intent"])
        if target is None:
            return self._route_new(step)
        if target.state == "merged":
            return {"decision": "already_done", "slice": target.id}
        self._register(intent, [target])
        if target.state != "running":
            return {"decision": "queue", "slice": target.id}
        self.messages.append((assignment_id(target), step.get("message", "")))
        return {"decision": "steer", "slice": target.id}

    def _route_new(self, step: Step) -> Answer:
        fields = step.get("new")
        if fields is None:
            return {"decision": "new", "slice": None}
        self._enqueue(fields)
        self._register(step["intent"], [self.entries[fields["id"]]])
        return {"decision": "new", "slice": fields["id"]}

    def _register(self, intent: Step, targets: Iterable[Entry]) -> None:
        self.intents.pop(intent.get("supersedes", ""), None)
        self.intents.pop(intent["id"], None)
        self.intents[intent["id"]] = Registered(intent["urgency"], {entry.id for entry in targets})

    def _unfinished_targets(self, intent: Step) -> list[Entry]:
        named = self.entries.get(intent.get("scope", ""))
        if named is not None:
            return [named] if named.state not in FINISHED else []
        return most_covering(intent, self.in_state(*UNFINISHED))

    def _best_target(self, intent: Step) -> Entry | None:
        named = self.entries.get(intent.get("scope", ""))
        if named is not None:
            return named if named.state != "canceled" else None
        targets = most_covering(intent, self.in_state(*ROUTING_ORDER))
        return min(targets, key=lambda entry: ROUTING_ORDER[entry.state], default=None)


def assignment_id(entry: Entry) -> str:
    return f"{entry.id}@{entry.attempt}"


def slice_id(assignment: str) -> str:
    return assignment.partition("@")[0]
