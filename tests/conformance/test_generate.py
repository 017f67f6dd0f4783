"""The generated cases are the same each time, and tell the model from one that differs in a single rule."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance import generate
from tests.stateful import model

SEEDS = range(200)  #: of those that are replayed on memory stores
MUTANTS = {
    "the walk does not begin in room": ("entry.id not in self.room)", "0)"),
    "others take the places of the room": ("return left >= 1 and", "return"),
    "contenders of the room start": (" and not contends_with_any(entry, self.in_room())", ""),
    "what is in room takes no free place": ("if entry.id in self.room:\n            return True", ""),
    "a review does not exclude": ("self.in_state(*EXCLUDING)", "self.in_state(*OCCUPYING)"),
    "a review leaves the room alone": ("if not contends_with_any(entry, reviewed)]", "]"),
    "what is not urgent stays in room": ("self.room = [id_ for id_ in self.room if id_ in keep]", ""),
    "a cancel that waits counts as staying": ('"running") if not entry.canceling]', '"running")]'),
    "a preempted slice holds no place": ("len(self.in_state(*OCCUPYING))", 'len(self.in_state("running"))'),
    "anybody makes room": ("if any(self.rank(victim) < self.rank(entry) for victim in victims)", "if False"),
    "the highest-ranked makes room": ("self.ranked(others)[-1]", "self.ranked(others)[0]"),
    "the room has no size": ("len(others) - len(self.room)", "len(others)"),
    "room is made though the cap fell": ("if seats < 0 or (", "if ("),
    "room is made against a review": (' or contends_with_any(entry, self.in_state("in_review"))', ""),
    "contenders share the room": ("if contends_with_any(entry, self.in_room())", "if False"),
    "a session is asked twice": ("if not entry.asked", "if True"),
    "a held slice starts": ("if not entry.hold]", "]"),
    "a pause does nothing": ("if self.paused:", "if False:"),
    "the cap may be nothing": ("max(1, math.floor(", "max(0, math.floor("),
    "a started core counts": ("math.floor(", "math.ceil("),
    "a finished slice counts in the rank": (" if self.entries[id_].state in UNFINISHED", ""),
    "urgency before upward rank": ("return -self.upward_rank(entry), -URGENCIES", "return -URGENCIES"),
    "the weakest urgency counts": ("max(attached,", "min(attached,"),
    "a restart keeps the room": ("        self.room = []\n\n    def _report", "\n    def _report"),
    "a restart forgets cancels": ('"canceled" if entry.canceling else "queued"', '"queued"'),
    "a report without a session counts": ("if entry.state not in OCCUPYING or", "if"),
    "a failure is taken for a close": ('if phase in ("merged", "failed"):', 'if phase == "merged":'),
    "preempted, then canceled": ('"queued" if entry.state == "preempted"', '"canceled" if entry.canceling'),
    "a pull request is forgotten": ("or entry.pull_request_url\n        if", 'or ""\n        if'),
    "a retry keeps the closes": ('= "queued", 0, ""', '= "queued", entry.closes, ""'),
    "a retry keeps the pull request": ('= "queued", 0, ""', '= "queued", 0, entry.pull_request_url'),
    "a merge asks nobody": ("    self._ask_to_stop(entry)\n        entry.state,", "    ...\n        entry.state,"),
    "what is superseded stays": ('self.intents.pop(intent.get("supersedes", ""), None)', ""),
    "a merged slice gets intents": ("return [named] if named.state not in FINISHED else []", "return [named]"),
    "a canceled slice is a target": ('return named if named.state != "canceled" else None', "return named"),
    "the first target is the best": ("key=lambda entry: ROUTING_ORDER[entry.state]", "key=lambda entry: 0"),
    "a preempted slice is steered": ('if target.state != "running":', "if target.state not in OCCUPYING:"),
    "what is done is registered": ('if target.state == "m', 'if self._register(intent, []) or target.state == "m'),
}  # fmt: skip

cases = functools.cache(generate.generate)


def mutant(before: str, after: str) -> Callable[[float], model.Model]:
    """The model's class with one rule changed."""
    text = Path(model.__file__).read_text()
    assert text.count(before) == 1, before
    module = types.ModuleType("mutant")
    exec(compile(text.replace(before, after), "mutant", "exec"), module.__dict__)
    return module.Model  # type: ignore[no-any-return]


def differs(judged: Callable[[float], model.Model], case: generate.Case) -> bool:
    playing = judged(case["cores"])
    return any(generate.play(playing, step) != step["expect"] for step in case["steps"])


def test_a_seed_gives_the_same_case_each_time() -> None:
    assert generate.generate(7) == generate.generate(7) != generate.generate(8)


@pytest.mark.parametrize("name", MUTANTS)
def test_some_case_notices(name: str) -> None:
    assert any(differs(mutant(*MUTANTS[name]), cases(seed)) for seed in SEEDS)


def test_the_model_itself_passes() -> None:
    assert not any(differs(model.Model, cases(seed)) for seed in SEEDS)


def test_a_difference_is_shrunk_to_what_it_needs() -> None:
    """A service that can't restart is told by a case of a single step."""

    def restarts(case: generate.Case) -> bool:
        return any(step["do"] == "restart" for step in case["steps"])

    seed = next(seed for seed in SEEDS if restarts(cases(seed)))
    assert [step["do"] for step in generate.shrunk(cases(seed), restarts)["steps"]] == ["restart"]
