"""The readers of single fields: from a node to a typed value, or `MisfitError` with what is wrong where.

They decide what a value may look like in a file. What a slice may hold is decided by `dispatch.slice.check_slice`,
for plans as for every other caller.
"""

from __future__ import annotations

import datetime as dt
import re
import shlex
from collections.abc import Callable
from typing import TypeVar

from dispatch.intent import Urgency
from dispatch.plans.nodes import Items, Node, Scalar, Table, kind_of
from dispatch.plans.problems import MisfitError, shown
from dispatch.slice import TITLE_LIMIT

T = TypeVar("T")

COUNT_LIMIT = 10**9  #: the largest cap and max_attempts
NUMBER_LIMIT = 10**80  #: from here on a number is too long for an id, as which it could stand
INSTANT_EXAMPLE = "2026-03-01T18:00:00Z"
OPERATORS = frozenset({"|", "||", "&&", "&", ";", ">", ">>", "<", "<<", "2>", "2>&1", "&>"})  #: a shell's

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?: ?(?:[Zz]|[+-]\d\d:\d\d))?", re.ASCII)
_BRANCH = re.compile(r"(?![-/.])(?!.*(?:\.\.|@\{|//|/\.|\.lock(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]+(?<![/.])")


def text(node: Node) -> str:
    """Text as it stands."""
    value = _scalar(node, "text")
    if not isinstance(value, str):
        quoted = "; write it in quotes" if isinstance(value, int | float) else ""
        raise MisfitError(f"must be text, not {kind_of(node)}{quoted}", node.at)
    return value


def identifier(node: Node) -> str:
    """A slice's id: text, or a whole number taken as written."""
    value = _scalar(node, "an id")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < NUMBER_LIMIT:
        return str(value)
    return text(node)


def identifiers(node: Node) -> tuple[str, ...]:
    """Ids in their order, each once."""
    return tuple(dict.fromkeys(_each(node, identifier)))


def texts(node: Node) -> tuple[str, ...]:
    """Texts in their order, each once."""
    return tuple(dict.fromkeys(_each(node, text)))


def items_of(node: Node) -> list[Node]:
    """The items of a list; a single value is a list of one."""
    return node.nodes if isinstance(node, Items) else [node]


def arguments(node: Node) -> tuple[str, ...]:
    """An argument vector: a list of texts, or a line split as a POSIX shell would, which never runs it."""
    arguments = tuple(map(text, node.nodes)) if isinstance(node, Items) else _split(node)
    if arguments and not arguments[0].strip():
        raise MisfitError("names no program: its first word is empty", node.at)
    return arguments


def whole(node: Node) -> int:
    """A whole number from 1 to a billion."""
    value = _scalar(node, "a whole number")
    if isinstance(value, bool) or not isinstance(value, int):
        raise MisfitError(f"must be a whole number, not {_described(node)}", node.at)
    if not 1 <= value <= COUNT_LIMIT:
        raise MisfitError(f"must be from 1 to {COUNT_LIMIT:,}", node.at)
    return value


def seconds(node: Node) -> float:
    """A number of seconds, 0 included."""
    value = _scalar(node, "a number of seconds")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MisfitError(f"must be a number of seconds, not {_described(node)}", node.at)
    try:
        return float(value)
    except OverflowError:
        raise MisfitError("is more seconds than there will be", node.at) from None


def environment(node: Node) -> tuple[tuple[str, str], ...]:
    """Variables by name, in their order. Whole numbers are taken as text."""
    if not isinstance(node, Table):
        raise MisfitError(f"must be a table of variables, not {kind_of(node)}", node.at)
    return tuple((name, identifier(value)) for name, value in node.entries.items())


def urgency(node: Node) -> Urgency:
    """One of the four urgencies by its name, in small letters."""
    names = {level.name.lower(): level for level in Urgency}
    value = text(node)
    if value not in names:
        raise MisfitError(f"must be one of {', '.join(names)}, not {shown(value)}", node.at)
    return names[value]


def instant(node: Node) -> dt.datetime:
    """An aware date and time: TOML's offset date-time, or text as in RFC 3339."""
    value = _scalar(node, "a date and time")
    if isinstance(value, str):
        value = _parsed_instant(value, node)
    if not isinstance(value, dt.datetime):
        raise MisfitError(f"must be a date and time such as {INSTANT_EXAMPLE}, not {kind_of(node)}", node.at)
    if value.tzinfo is None:
        problem = f"has no offset from UTC, so nobody can tell when it is; write it like {INSTANT_EXAMPLE}"
        raise MisfitError(problem, node.at)
    try:
        value.astimezone(dt.UTC)
    except OverflowError:
        raise MisfitError("lies outside the years 1 to 9999", node.at) from None
    return value


def name(node: Node) -> str:
    """A name on one line."""
    value = text(node)
    if not value.isprintable() or not 0 < len(value) <= TITLE_LIMIT:
        raise MisfitError(f"must be 1 to {TITLE_LIMIT} printable characters, not {shown(value)}", node.at)
    return value


def branch(node: Node) -> str:
    """A name that git takes for a branch."""
    value = text(node)
    if not _BRANCH.fullmatch(value):
        raise MisfitError(f"{shown(value)} is no name of a branch", node.at)
    return value


def _scalar(node: Node, wanted: str) -> object:
    if not isinstance(node, Scalar):
        raise MisfitError(f"must be {wanted}, not {kind_of(node)}", node.at)
    if node.value is None:
        raise MisfitError("has no value; give it one, or take the key away", node.at)
    return node.value


def _each(node: Node, read: Callable[[Node], T]) -> list[T]:
    return [read(item) for item in items_of(node)]


def _described(node: Node) -> str:
    if isinstance(node, Scalar) and isinstance(node.value, str | float):
        return f"{kind_of(node)} ({shown(node.value)})"
    return kind_of(node)


def _split(node: Node) -> tuple[str, ...]:
    try:
        words = shlex.split(text(node))
    except ValueError as error:  # a quotation or an escape that doesn't end
        raise MisfitError(f"can't be split into words: {str(error).lower()}", node.at) from None
    if not words:
        raise MisfitError("is empty; name a program", node.at)
    for word in words:
        if word in OPERATORS or word.endswith(";"):
            advice = 'use ["sh", "-c", "..."] for a shell, or a list of words'
            raise MisfitError(f"no shell runs it, so {shown(word)} would be a plain argument; {advice}", node.at)
    return tuple(words)


def _parsed_instant(value: str, node: Node) -> dt.datetime:
    problem = f"{shown(value)} is no date and time such as {INSTANT_EXAMPLE}"
    if not _INSTANT.fullmatch(value):
        raise MisfitError(problem, node.at)
    try:
        return dt.datetime.fromisoformat(value.upper().replace(" ", "T", 1).replace(" ", ""))
    except ValueError:  # a 13th month, an offset of a day
        raise MisfitError(problem, node.at) from None
