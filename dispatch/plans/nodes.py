"""A plan file as a tree whose every node knows its place: what both formats are read into.

Entries of a table stand where their key stands, items of a list where they begin; so an error names the line that
the user has to change.
"""

from __future__ import annotations

import bisect
import datetime as dt
import re

import attrs

from dispatch.plans.problems import Mark

DEPTH_LIMIT = 20  #: tables and lists within one another; a plan needs four
VALUES_LIMIT = 1_000_000  #: values in one plan, after aliases are written out
TOO_DEEP = f"tables and lists are nested more than {DEPTH_LIMIT} deep"
TOO_MANY = f"holds more than {VALUES_LIMIT:,} values"

ScalarValue = str | int | float | bool | dt.datetime | dt.date | dt.time | None


@attrs.frozen
class Scalar:
    """A single value. None is YAML's null."""

    value: ScalarValue
    at: Mark


@attrs.frozen
class Items:
    """A list."""

    nodes: list[Node]
    at: Mark


@attrs.frozen
class Table:
    """A mapping with text for keys, in the order of the file."""

    entries: dict[str, Node]
    at: Mark


Node = Scalar | Items | Table

NAMES: dict[type, str] = {
    str: "text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    dt.datetime: "a date and time",
    dt.date: "a date",
    dt.time: "a time",
    type(None): "nothing",
}


def kind_of(node: Node) -> str:
    """What a node is, in words for an error."""
    if isinstance(node, Scalar):
        return NAMES[type(node.value)]
    return "a list" if isinstance(node, Items) else "a table"


class Lines:
    """From a character's offset to its line, as editors count: by newlines alone."""

    def __init__(self, text: str) -> None:
        self._begins = [0, *(match.end() for match in re.finditer("\n", text))]

    def mark(self, offset: int) -> Mark:
        line = bisect.bisect_right(self._begins, offset)
        return Mark(line, offset - self._begins[line - 1] + 1)
