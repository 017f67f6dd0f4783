"""What must hold of the store's own rows, as they were read past the product. Pure, like the judge it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from benchmarks.crash.case import Case
from benchmarks.crash.evidence import Command, Look, Step

FINAL = ("merged", "canceled")


def durable(case: Case) -> Iterator[str]:
    """What a run has acted upon, what it has said, and what it has acknowledged is in the rows from then on."""
    for look in case.evidence.looks:
        for start in case.evidence.starts:
            stored = look.rows[start.slice].attempt if start.slice in look.rows else 0
            if start.role == "agent" and start.at < look.at and stored < start.attempt:
                yield f"{start.slice}@{start.attempt} began, and the store knows of {stored} attempts at {look.when}"
        for name in sorted(look.told):
            if name not in look.rows or look.rows[name].state != "merged":
                yield f"{name} was said to have merged, and is not merged in the store at {look.when}"
        for name in case.plan.jobs:
            yield from _acknowledged(look, [each for each in case.evidence.commands if each.slice == name])
    for before, after in pairwise(case.evidence.looks):
        yield from _goes_on(before, after)


def _acknowledged(look: Look, commands: list[Command]) -> Iterator[str]:
    """The last command for a slice that had begun by then, if it was acknowledged. Of any other nobody knows."""
    begun = [each for each in commands if each.began < look.at]
    if not begun or begun[-1].status != 0:
        return
    last = begun[-1]
    row = look.rows.get(last.slice)
    if row is None:
        yield f"{last.slice} is not in the store at {look.when}"
    elif last.verb == "cancel" and row.state != "canceled":
        yield f"{last.slice} was canceled, and is {row.state} in the store at {look.when}"
    elif last.verb in ("hold", "release") and row.state not in FINAL and row.held != (last.verb == "hold"):
        yield f"the {last.verb} of {last.slice} was acknowledged, and is not in the store at {look.when}"


def _goes_on(before: Look, after: Look) -> Iterator[str]:
    for name, row in before.rows.items():
        later = after.rows.get(name)
        if later is None:
            yield f"{name} is gone from the store at {after.when}"
        elif later.attempt < row.attempt:
            yield f"{name} went from attempt {row.attempt} back to {later.attempt} at {after.when}"
        elif row.state in FINAL and later.state != row.state:
            yield f"{name} was {row.state} and is {later.state} in the store at {after.when}"


def fenced(case: Case) -> Iterator[str]:
    """Who lost the graph had a write refused, and changed nothing any more."""
    for each in case.evidence.takeovers:
        if not each.refused:
            yield f"run {each.run} was taken over, and no write of it was refused"
        if each.changed:
            yield f"run {each.run} was taken over, and changed the store's rows afterwards"


def batches(case: Case) -> Iterator[str]:
    """As the database saw its transactions: each batch once, in order, by the owner of its time; no other writer."""
    counted = set()
    for before, step in pairwise(case.evidence.steps):
        if (step.epoch, step.incarnation) < (before.epoch, before.incarnation):
            yield f"{_words(step)} was committed after {_words(before)}"
        elif step.epoch > before.epoch:
            if step.batch:
                yield f"{_words(step)} was the first thing of its owner"
        elif step.batch == before.batch + 1:
            counted.add(step.transaction)
        elif step.batch != before.batch:
            yield f"{_words(step)} was committed after {_words(before)}"
    for transaction in sorted(set(case.evidence.writers) - counted):
        yield f"transaction {transaction} changed rows, and was no batch of the owner"


def _words(step: Step) -> str:
    return f"batch {step.batch} of epoch {step.epoch}.{step.incarnation}"
