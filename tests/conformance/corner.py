"""A notation for corners of the contract that the given cases leave dark: a few steps, and what is to be seen then.

The expectations are written by hand: they hold the model to the contract as well as the service.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import attrs

from dispatch import MemoryStore
from tests.stateful.driver import Driver, expected_survey
from tests.stateful.model import Answer, Model

Step = dict[str, Any]
URL = "https://example.invalid/pull/1"
SOON, LATE = dt.datetime(2001, 1, 1, tzinfo=dt.UTC), dt.datetime(2101, 1, 1, tzinfo=dt.UTC)


def new(id_: str, **fields: Any) -> Step:
    edges: Step = {"depends_on": [], "required_by": [], "contends": [], "paths": [], "hotspots": []}
    return {"do": "enqueue", "id": id_, **edges, **fields}


def do(command: str, id_: str, **fields: Any) -> Step:
    return {"do": command, "id": id_, **fields}


def report(id_: str, phase: str, **fields: Any) -> Step:
    return {"do": "report", "id": id_, "phase": phase, **fields}


def intent(id_: str, scope: str = "", urgency: str = "normal", **fields: Any) -> Step:
    return {"id": id_, "statement": "as written", "scope": scope, "urgency": urgency, "terms": [], **fields}


def declare(id_: str, scope: str = "", urgency: str = "normal", **fields: Any) -> Step:
    return {"do": "declare", "intent": intent(id_, scope, urgency, **fields)}


def urgent(scope: str) -> Step:
    return declare(f"urgent-{scope}", scope, "urgent")


def measure(cores: float, load: float = 0.0) -> Step:
    return {"do": "measure", "cores": cores, "load": load}


def route(scope: str = "", **fields: Any) -> Step:
    new_slice = fields.pop("new", None)
    return {"do": "route", "intent": intent("routed", scope, **fields), "message": "please", "new": new_slice}


RESTART, PAUSE, RESUME = {"do": "restart"}, {"do": "pause"}, {"do": "resume"}
PREEMPTED = [new("a"), new("b"), urgent("b")]  #: on one core: a runs, is asked to stop, and b waits in room


@attrs.frozen
class Corner:
    """Steps, what the last of them answers, and what is to be seen then: of slices by id, or of the whole."""

    name: str
    steps: Sequence[Step]
    then: Answer
    answer: Answer | None = None
    cores: float = 1

    def check(self, answer: Answer, seen: Answer) -> None:
        """Keys of `then` that a survey hasn't are slices' ids."""
        assert self.answer in (None, answer)
        for key, facts in self.then.items():
            found = seen[key] if key in seen else {fact: seen["slices"][key][fact] for fact in facts}
            assert found == facts, f"{key} in {seen}"

    def check_service(self) -> None:
        driver = Driver(self.cores, MemoryStore())
        try:
            answers = [answer for step in self.steps for answer in driver.play(step)]
            self.check(answers[-1], driver.survey())
        finally:
            driver.service.stop()

    def check_model(self) -> None:
        model = Model(self.cores)
        answers = [model.answer(step) for step in self.steps]
        self.check(answers[-1], expected_survey(model))
