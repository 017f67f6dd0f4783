"""A round under judgement: its plan, what is known of it, and what several rules ask about it. Pure."""

from __future__ import annotations

import attrs

from benchmarks.crash.evidence import Evidence, Merge
from benchmarks.crash.plan import Plan


@attrs.frozen
class Violation:
    code: str
    text: str


class Case:
    """A plan, what became of it, and what several rules ask about it."""

    def __init__(self, plan: Plan, evidence: Evidence) -> None:
        self.plan, self.evidence = plan, evidence
        self.rivals = plan.rivals()
        self.merges: dict[str, Merge] = {}
        for merge in evidence.mainline:
            if merge.slice:
                self.merges.setdefault(merge.slice, merge)
        self._ancestors: dict[str, frozenset[str]] = {}

    def history(self, commit: str) -> frozenset[str]:
        """The commit and all its ancestors."""
        if commit not in self._ancestors:
            found, open_ = {commit}, [commit]
            while open_:
                fresh = set(self.evidence.parents.get(open_.pop(), ())) - found
                found |= fresh
                open_ += fresh
            self._ancestors[commit] = frozenset(found)
        return self._ancestors[commit]

    def canceled(self) -> set[str]:
        """By an acknowledged command, or by one that was killed and took effect."""
        asked = {each.slice: each.status for each in self.evidence.commands if each.verb == "cancel"}
        return {name for name, status in asked.items() if status == 0 or self.evidence.stored.get(name) == "canceled"}
