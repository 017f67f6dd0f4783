"""Plans made from a seed: what each slice does, and what must hold of it. The product is told the same in its words."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from itertools import combinations

import attrs

API = "shared/api.txt"

#: By what is touched: the file, and ways to say so, any two of which overlap in that file.
PATHS = {
    API: ("shared/api.txt", "shared/a*.txt", "shared/[a]pi.txt"),
    "shared/schema.txt": ("shared/schema.txt", "shared/s*", "**/schema.txt"),
}
HOTSPOTS = {"shared/lockfile.txt": "lockfile"}
SHARED = (*PATHS, *HOTSPOTS)

#: Each plan has one of each; the others are plain. What they do is told in `agent.work`.
FLAVOURS = ("fails", "breaks", "stubborn", "leaves", "leaves-away", "leaves-deaf", "commits", "doomed")
PLAIN = ""
LENGTHS_S = ((0.02, 0.1), (0.2, 0.5), (0.8, 1.5))  #: classes: some die young, some old, some are never met
GRACE_S = 0.5


@attrs.frozen
class Job:
    """A slice as the campaign knows it. `shared` are the files it adds its line to; `contends` is what was declared."""

    id: str
    needs: tuple[str, ...]
    contends: tuple[str, ...]
    shared: tuple[str, ...]
    globs: tuple[str, ...]
    flavour: str
    length_s: float
    verify_s: float | None
    urgency: str

    @property
    def own_file(self) -> str:
        return f"out/{self.id}.txt"

    @property
    def body(self) -> str:
        """What its own file says on main, from its merge on."""
        return "".join(f"{self.id} line {number}\n" for number in range(8))

    @property
    def line(self) -> str:
        return f"{self.id} was here"


@attrs.frozen
class Plan:
    """`cap` slices at once at most."""

    cap: int
    jobs: Mapping[str, Job]

    def rivals(self) -> frozenset[frozenset[str]]:
        """The pairs that must never run at once: declared, or with a shared file in common."""
        declared = {frozenset({job.id, other}) for job in self.jobs.values() for other in job.contends}
        computed = {
            frozenset({one.id, other.id})
            for one, other in combinations(self.jobs.values(), 2)
            if set(one.shared) & set(other.shared)
        }
        return frozenset(declared | computed)

    def leaves(self) -> list[str]:
        """The slices that nothing waits for."""
        needed = {name for job in self.jobs.values() for name in job.needs}
        return [name for name in self.jobs if name not in needed]


def plan_of(seed: int) -> Plan:
    """The same for the same seed."""
    rng = random.Random(seed)
    names = [f"s{number:02}" for number in range(rng.randint(14, 18))]
    flavours = list(FLAVOURS) + [PLAIN] * (len(names) - len(FLAVOURS))
    rng.shuffle(flavours)
    urgencies = ["urgent", "high"] + [""] * (len(names) - 2)
    rng.shuffle(urgencies)
    jobs: dict[str, Job] = {}
    for name, flavour, urgency in zip(names, flavours, urgencies, strict=True):
        jobs[name] = _job(rng, name, flavour, urgency, [other for other in jobs if jobs[other].flavour != "doomed"])
    return Plan(rng.randint(2, 4), jobs)


def _job(rng: random.Random, name: str, flavour: str, urgency: str, before: list[str]) -> Job:
    paths = [path for path in PATHS if rng.random() < 0.25]
    if len(before) < 2 and API not in paths:  # in every plan there are two that contend
        paths.append(API)
    hot = [path for path in HOTSPOTS if rng.random() < 0.25]
    return Job(
        id=name,
        needs=tuple(sorted(rng.sample(before, min(len(before), rng.choice((0, 0, 1, 1, 2, 3)))))),
        contends=tuple(rng.sample(before, 1)) if before and rng.random() < 0.2 else (),
        shared=(*paths, *hot),
        globs=tuple(rng.choice(PATHS[path]) for path in paths),
        flavour=flavour,
        length_s=round(rng.uniform(*rng.choices(LENGTHS_S, (4, 4, 2))[0]), 3),
        verify_s=round(rng.uniform(0.0, 0.3), 3) if flavour == "breaks" or rng.random() < 0.3 else None,
        urgency=urgency,
    )


def jobs_document(plan: Plan) -> str:
    """For the agents: by slice, what to do."""
    return json.dumps(
        {
            job.id: {
                "flavour": job.flavour,
                "length_s": job.length_s,
                "verify_s": job.verify_s,
                "body": job.body,
                "lines": dict.fromkeys(job.shared, job.line),
            }
            for job in plan.jobs.values()
        }
    )


def plan_text(plan: Plan, agent: list[str]) -> str:
    """For the product: a plan file in TOML. `agent` is the command, less the role."""
    return "\n".join(_plan_lines(plan, agent)) + "\n"


def _plan_lines(plan: Plan, agent: list[str]) -> Iterator[str]:
    yield f"cap = {plan.cap}"
    yield "[defaults]"
    yield f"grace_s = {GRACE_S}"
    yield f"command = {json.dumps([*agent, 'work'])}"
    for job in plan.jobs.values():
        yield f"[slices.{job.id}]"
        yield f"depends_on = {json.dumps(job.needs)}"
        yield f"contends = {json.dumps(job.contends)}"
        yield f"paths = {json.dumps(job.globs)}"
        yield f"hotspots = {json.dumps([HOTSPOTS[path] for path in job.shared if path in HOTSPOTS])}"
        if job.verify_s is not None:
            yield f"verify = {json.dumps([*agent, 'verify'])}"
        if job.urgency:
            yield f"urgency = {json.dumps(job.urgency)}"
        if job.flavour == "doomed":
            yield "max_attempts = 2"
