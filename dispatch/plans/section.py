"""One table of a plan, read field by field: a value, or a finding and the default in its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

import attrs

from dispatch.plans.fields import identifier, items_of
from dispatch.plans.nodes import Items, Node, Scalar, Table, kind_of
from dispatch.plans.problems import Findings, Mark, MisfitError, Spelling, shown

T = TypeVar("T")

ALIASES = {"depends_on": "needs", "paths": "touches"}  #: other names that fields go by

#: What other tools call a field, where spelling alone doesn't lead there.
ELSEWHERE = {
    "after": "depends_on",
    "agent": "command",
    "argv": "command",
    "blocked_by": "depends_on",
    "cmd": "command",
    "conflicts": "contends",
    "dependencies": "depends_on",
    "deps": "depends_on",
    "description": "prompt",
    "due": "deadline",
    "environment": "env",
    "files": "paths",
    "locks": "hotspots",
    "max_parallel": "cap",
    "mutex": "hotspots",
    "priority": "urgency",
    "retries": "max_attempts",
    "run": "command",
    "steps": "slices",
    "task": "prompt",
    "tasks": "slices",
    "test": "verify",
    "timeout": "quiet_limit_s",
}

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,80}")


def spelled(name: str) -> str:
    """A key as a part of a dotted path: in quotes unless it is plain."""
    return name if _PLAIN.fullmatch(name) else shown(name)


@attrs.define
class Section:
    """A table with the dotted path it goes by in errors.

    `refused` names the fields whose values were no use.
    """

    table: Table
    where: str
    findings: Findings
    refused: set[str] = attrs.field(factory=set)
    _places: dict[str, dict[str, Mark]] = attrs.field(factory=dict, init=False)

    def take(self, field: str, read: Callable[[Node], T], default: T) -> T:
        """The field's value as `read` gives it; `default` if it is absent or, with a finding, unusable."""
        node = self.node(field)
        if node is None:
            return default
        try:
            return read(node)
        except MisfitError as misfit:
            self.refused.add(field)
            self.findings.add(misfit.at, self.path(field), misfit.problem)
            return default

    def node(self, field: str) -> Node | None:
        return self.table.entries.get(self._name(field))

    def gives(self, field: str) -> bool:
        return self.node(field) is not None

    def holds(self, field: str) -> bool:
        """Whether it gives the field a value that could be read."""
        return self.gives(field) and field not in self.refused

    def refuse(self, field: str, problem: str, item: str | None = None) -> None:
        """A finding about a field, at its place, or at one of its items; about the table where it lacks the field."""
        self.findings.add(self.place(field, item), self.path(field), problem)

    def path(self, field: str) -> str:
        """The dotted path of a field, or of the table where it lacks the field."""
        return self._joined(self._name(field)) if self.gives(field) else self.where

    def place(self, field: str, item: str | None = None) -> Mark:
        """Where a field stands, or one of its items as it reads; the table where it lacks the field."""
        node = self.node(field)
        if node is None:
            return self.table.at
        if item is None:
            return node.at
        if field not in self._places:
            scalars = [part for part in items_of(node) if isinstance(part, Scalar)]
            self._places[field] = {str(part.value): part.at for part in reversed(scalars)}  # the first of equals
        return self._places[field].get(item, node.at)

    def check_keys(self, allowed: Collection[str]) -> None:
        """A finding for each key that isn't allowed, and for a field that is given by both of its names."""
        spelling = Spelling(tuple(allowed))
        for key, node in self.table.entries.items():
            if key not in allowed:
                known = ELSEWHERE.get(key.lower())
                hint = f"; did you mean {known!r}?" if known in allowed else spelling.hint(key)
                if self.where and isinstance(node, Table):
                    hint = "; if the dot before it belongs to an id, the id needs quotes"
                self.findings.add(node.at, self._joined(key), f"there is no such key{hint}")
        for field, alias in ALIASES.items():
            if field in self.table.entries and alias in self.table.entries:
                self.refuse(field, f"is given twice: {alias} is another name for {field}")

    def _joined(self, key: str) -> str:
        return f"{self.where}.{spelled(key)}" if self.where else spelled(key)

    def _name(self, field: str) -> str:
        alias = ALIASES.get(field)
        return alias if alias in self.table.entries and field not in self.table.entries else field

    def subsection(self, field: str) -> Section:
        """The table under a key; an empty one where there is none."""
        node = self.node(field)
        if isinstance(node, Table):
            return Section(node, self.path(field), self.findings)
        if node is not None and not is_null(node):
            self.refuse(field, f"must be a table, not {kind_of(node)}")
        return Section(Table({}, self.place(field)), self.path(field), self.findings)

    def sections_by_id(self, field: str) -> list[tuple[str, Section]]:
        """The tables under a key by id, in the order of the file.

        They are given as a table by id (where null is an empty table) or as a list of tables with an `id`. What is no
        table, has no id, or has an id that is there already, is a finding and left out.
        """
        node = self.node(field)
        if isinstance(node, Table):
            return list(self._named(node, self.path(field)))
        if isinstance(node, Items):
            return list(self._listed(node, self.path(field)))
        if node is not None and not is_null(node):
            self.refuse(field, f"must be a table by id, or a list of tables, not {kind_of(node)}")
        return []

    def _named(self, node: Table, where: str) -> Iterator[tuple[str, Section]]:
        for key, child in node.entries.items():
            path = f"{where}.{spelled(key)}"
            if isinstance(child, Table):
                section = Section(child, path, self.findings)
                if section.gives("id"):
                    section.refuse("id", "the name of the table is the id; take this one away")
                yield key, section
            elif is_null(child):
                yield key, Section(Table({}, child.at), path, self.findings)
            else:
                self.findings.add(child.at, path, f"must be a table of fields, not {kind_of(child)}")

    def _listed(self, node: Items, where: str) -> Iterator[tuple[str, Section]]:
        lines: dict[str, int] = {}
        for index, child in enumerate(node.nodes):
            path = f"{where}[{index}]"
            if not isinstance(child, Table):
                self.findings.add(child.at, path, f"must be a table of fields, not {kind_of(child)}")
                continue
            section = Section(child, path, self.findings)
            key = section.take("id", identifier, "")
            if not section.gives("id"):
                section.refuse("id", "has no id")
            elif key in lines:
                section.refuse("id", f"{shown(key)} is there already, in line {lines[key]}")
            elif "id" not in section.refused:
                lines[key] = section.place("id").line
                yield key, attrs.evolve(section, where=f"{where}.{spelled(key)}")


def is_null(node: Node) -> bool:
    """Whether it is YAML's null, such as a key with nothing behind it."""
    return isinstance(node, Scalar) and node.value is None
