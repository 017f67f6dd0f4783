"""More cases like the given ones, with the plain model's answers.

A seed gives one case, always the same. Each seed draws how often it does what, so that some cases are all preemption
and others all refusals. `python -m tests.conformance.generate --seeds 0-999 --check sqlite|memory` replays the cases
against the service and prints the first difference, after leaving out every step that it does not need; `--write
FOLDER` keeps the cases as files.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dispatch import MemoryStore
from tests.conformance.runner import run
from tests.stateful.model import EXCLUDING, OCCUPYING, UNFINISHED, Model

Step = dict[str, Any]
Case = dict[str, Any]

PATHS = (
    "src/api/users.py", "src/api/**", "src/*.py", "src/a*", "src/?pi/*.py", "**/*.py",
    "web/", "web/*.ts", "./web/app.ts", "web/*.css", "db", "db/schema.sql", "**/schema.sql",
    "docs/**", "docs/[a-m]*.md", "docs/[n-z]*.md", "docs/[!a-m]*",
    "lib/**/mod.rs", "lib/a/b/mod.rs", "lib//a/./*/",
)  # fmt: skip
BAD_PATHS = ("/etc/passwd", "src/../web", "", ".", "docs/[a-m.md", "docs/[]x", "web\\")
BAD_IDS = ("", "-x", "a/b", "a..b", "s1.lock", "s1.", "a b", "s" * 81)
HOTSPOTS = ("migrations", "billing", "router", "auth", "README")
TERMS = ("nothing-covers-this", "web", "auth", "README", "api", "billing", "schema", "", " Docs ")
INTENTS = tuple(f"i{number}" for number in range(1, 9))
URGENCIES = ("urgent", "high", "normal", "low")
MIXED = ("merged",) * 5 + ("closed",) * 3 + ("canceled",) * 3 + ("failed", "running")
CLOSING = ("merged", "failed", "canceled", "running") + ("closed",) * 8
STOPPING = ("merged", "failed", "closed", "running") + ("canceled",) * 4
LOADS = (0.0, 0.0, 0.5, 1.7)


class Author:
    """Writes the steps of one case, looking at the model to find ones that matter."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cores = self.rng.choice((1, 2, 3, 3, 4))
        self.model = Model(self.cores)
        self.touching = self.rng.choice((0.2, 0.5, 0.8))  #: how many of the slices name what they touch
        self.linking, self.fencing = self.rng.choice((0.05, 0.3)), self.rng.choice((0.05, 0.3, 0.6))
        self.paths = self.rng.sample(PATHS, self.rng.choice((2, 8, len(PATHS))))
        self.hotspots = self.rng.sample(HOTSPOTS, self.rng.choice((1, 3, len(HOTSPOTS))))
        self.phases = self.rng.choice((MIXED, MIXED, CLOSING, STOPPING))
        self.haste = self.rng.choice((0.1, 0.5, 0.9))  #: how many intents are urgent and about a slice that waits
        self.written = 0
        self.kinds: dict[Callable[[], Step], float] = {
            kind: often * self.rng.choice((0.1, 1, 1, 3))
            for kind, often in (
                (self.enqueue, 14), (self.report, 9), (self.declare, 9), (self.route, 4), (self.reprioritize, 2),
                (self.merge, 1.5), (self.cancel, 1.5), (self.retry, 1.5), (self.hold, 1.5), (self.release, 2),
                (self.pause, 0.5), (self.resume, 3), (self.measure, 4), (self.restart, 1),
            )
        }  # fmt: skip

    def write(self, length: int) -> list[Step]:
        steps = []
        for _ in range(length):
            (kind,) = self.rng.choices(list(self.kinds), list(self.kinds.values()))
            steps.append(kind())
            play(self.model, steps[-1])
        return steps

    def enqueue(self) -> Step:
        taken = self.model.entries and self.rng.random() < 0.04
        step: Step = {
            "do": "enqueue",
            "id": self.any_id() if taken else f"s{len(self.model.entries) + 1}",
            "depends_on": self.some(UNFINISHED, self.linking, 2),
            "required_by": self.some(("queued", "failed"), self.linking, 1),
            "contends": self.some(EXCLUDING, self.fencing, 2),
            "paths": self.touched(self.paths, 2),
            "hotspots": self.touched(self.hotspots, 1),
        }
        if self.rng.random() < 0.08:
            step["hold"] = True
        if self.rng.random() < 0.08:
            self.spoil(step)
        return step

    def spoil(self, step: Step) -> None:
        """Make a slice that is likely to be refused, perhaps for more than one reason."""
        for _ in range(self.rng.choice((1, 1, 2))):
            edge = self.rng.choice(("depends_on", "required_by", "contends"))
            other = self.rng.choice((step["id"], "absent", self.any_id()))
            step[edge] = self.rng.choice(([*step[edge], other], [other, *step[edge]]))
        if self.rng.random() < 0.2:
            step["paths"] = [*step["paths"], self.rng.choice(BAD_PATHS)]
        if self.rng.random() < 0.1:
            step["id"] = self.rng.choice(BAD_IDS)

    def report(self) -> Step:
        live = self.ids(OCCUPYING)
        if not self.model.entries:
            return self.enqueue()
        self.written += 1
        step = {
            "do": "report",
            "id": self.rng.choice(live) if live and self.rng.random() < 0.85 else self.any_id(),
            "phase": self.rng.choice(self.phases),
        }
        if self.rng.random() < (0.35 if step["phase"] in ("closed", "running") else 0.05):
            step["pull_request_url"] = f"https://example.invalid/pull/{self.written}"
        return step

    def intent(self) -> Step:
        waiting = [entry.id for entry in self.model.startable() if self.model.urgency(entry) != "urgent"]
        hasty = waiting and self.rng.random() < self.haste
        scopes = waiting if hasty else ["", "absent", self.any_id(), self.target(UNFINISHED)]
        intent = {
            "id": self.rng.choice(INTENTS),
            "statement": "as written",
            "scope": self.rng.choice(scopes),
            "urgency": "urgent" if hasty else self.rng.choice(URGENCIES),
            "terms": self.sample(TERMS, 3),
        }
        if self.rng.random() < 0.15:
            intent["supersedes"] = self.rng.choice([id_ for id_ in INTENTS if id_ != intent["id"]])
        return intent

    def declare(self) -> Step:
        return {"do": "declare", "intent": self.intent()}

    def reprioritize(self) -> Step:
        return {"do": "reprioritize", "intent": self.intent()}

    def route(self) -> Step:
        return {"do": "route", "intent": self.intent(), "message": "please"}

    def merge(self) -> Step:
        return {"do": "merge", "id": self.target(UNFINISHED)}

    def cancel(self) -> Step:
        return {"do": "cancel", "id": self.target((*OCCUPYING, "queued"))}

    def retry(self) -> Step:
        return {"do": "retry", "id": self.target(("in_review", "failed"))}

    def hold(self) -> Step:
        return {"do": "hold", "id": self.target(UNFINISHED)}

    def release(self) -> Step:
        held = [entry.id for entry in self.model.entries.values() if entry.hold]
        return {"do": "release", "id": self.rng.choice(held) if held else self.any_id()}

    def pause(self) -> Step:
        return {"do": "pause"}

    def resume(self) -> Step:
        return {"do": "resume"}

    def measure(self) -> Step:
        return {"do": "measure", "cores": self.rng.choice((1, 2, 3, 3, 4, 4, 5)), "load": self.rng.choice(LOADS)}

    def restart(self) -> Step:
        return {"do": "restart"}

    def ids(self, states: Sequence[str]) -> list[str]:
        return [entry.id for entry in self.model.in_state(*states)]

    def any_id(self) -> str:
        return self.rng.choice([*self.model.entries] or ["absent"])

    def target(self, states: Sequence[str]) -> str:
        """Mostly a slice in one of `states`, else any, and now and then none that is known."""
        chance = self.rng.random()
        if chance < 0.03:
            return "absent"
        return self.rng.choice(self.ids(states) or [self.any_id()]) if chance < 0.8 else self.any_id()

    def some(self, states: Sequence[str], chance: float, most: int) -> list[str]:
        """Up to `most` ids for an edge: with `chance` of any, mostly in `states`, else of any slice."""
        if self.rng.random() >= chance:
            return []
        choice = self.ids(states) if self.rng.random() < 0.9 else [*self.model.entries]
        return self.rng.sample(choice, min(len(choice), self.rng.randint(1, most)))

    def touched(self, choice: Sequence[str], most: int) -> list[str]:
        return self.sample(choice, most) if self.rng.random() < self.touching else []

    def sample(self, choice: Sequence[str], most: int) -> list[str]:
        return self.rng.sample(choice, self.rng.randint(0, most))


def play(model: Model, step: Step) -> dict[str, Any]:
    """Play a step on the model: all that is to be seen after it, its answer included."""
    answer = model.answer(step)
    return {**model.observe(), **answer}


def expected(name: str, cores: float, steps: Sequence[Step]) -> Case:
    """A case of these steps. Raises `KeyError` if one needs a slice that isn't there."""
    model = Model(cores)
    return {"name": name, "cores": cores, "steps": [{**step, "expect": play(model, step)} for step in steps]}


def generate(seed: int) -> Case:
    author = Author(seed)
    steps = author.write(author.rng.randint(40, 60))
    return expected(f"seed-{seed}", author.cores, steps)


def shrunk(case: Case, differs: Callable[[Case], bool]) -> Case:
    """The case without any step that it does not need to differ; the expectations are worked out anew."""
    changed = True
    while changed:
        changed = False
        for shorter in _shorter(case):
            if differs(shorter):
                case, changed = shorter, True
                break
    return case


def _shorter(case: Case) -> Iterator[Case]:
    steps = [{key: value for key, value in step.items() if key != "expect"} for step in case["steps"]]
    size = len(steps) // 2
    while size:
        for at in range(len(steps) - size, -1, -size):
            try:
                yield expected(case["name"], case["cores"], steps[:at] + steps[at + size :])
            except KeyError:
                continue
        size //= 2


def difference(case: Case, store: str) -> str | None:
    """What the service does otherwise, on a new store: `sqlite` or `memory`."""
    found = run(case, MemoryStore() if store == "memory" else None)
    return None if found is None else str(found)


def check(seeds: Sequence[int], store: str) -> int:
    for seed in seeds:
        case = generate(seed)
        if difference(case, store):
            case = shrunk(case, lambda shorter: difference(shorter, store) is not None)
            print(difference(case, store), json.dumps(case), sep="\n")
            return 1
    print(f"{len(seeds)} cases agree on {store}")
    return 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.generate", description=__doc__)
    parser.add_argument("--seeds", default="0-99", help="first and last, with a hyphen between")
    parser.add_argument("--check", choices=("sqlite", "memory"))
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            (options.write / f"seed-{seed}.json").write_text(json.dumps(generate(seed)) + "\n")
    return check(seeds, options.check) if options.check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
