"""TOML as a tree with places."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from typing import Any

from dispatch.plans.nodes import DEPTH_LIMIT, TOO_DEEP, TOO_MANY, VALUES_LIMIT, Items, Lines, Node, Scalar, Table
from dispatch.plans.problems import Mark, MisfitError
from dispatch.plans.toml_positions import Route, locate

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


# A key of so many parts that tomllib, which compares prefixes of keys, would take minutes to say what it means.
_ENDLESS_KEY = re.compile(r"^[ \t]*\[{0,2}[ \t]*(?:[\w-]+[ \t]*\.[ \t]*){1000}", re.MULTILINE)


def read_toml(text: str) -> Table:
    """The document's root. Raises `MisfitError` for text that is no TOML, or too much of it."""
    endless = _ENDLESS_KEY.search(text)
    if endless is not None:
        raise MisfitError(TOO_DEEP, Lines(text).mark(endless.start()))
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _misfit(str(error), text) from None
    except RecursionError:
        raise MisfitError(TOO_DEEP, None) from None
    except ValueError as error:  # a number of more digits than Python converts
        raise MisfitError(f"is no TOML: {error}", None) from None
    lines = Lines(text)
    marks = {route: lines.mark(offset) for route, offset in locate(text).items()}
    _check_size(marks)
    return _tree(data, marks)


def _misfit(message: str, text: str) -> MisfitError:
    place = _PLACE.search(message)
    problem = "is no TOML: " + (message[: place.start()] if place else message)
    if problem.endswith("Invalid value"):
        problem += "; text is written in quotes"
    if place and place[1]:
        return MisfitError(problem, Mark(int(place[1]), int(place[2])))
    ending = len(text.rstrip())
    return MisfitError(f"{problem}, where the file ends", Lines(text).mark(ending))


def _check_size(marks: dict[Route, Mark]) -> None:
    if len(marks) > VALUES_LIMIT:
        raise MisfitError(TOO_MANY, None)
    for route, mark in marks.items():
        if len(route) > DEPTH_LIMIT:
            raise MisfitError(TOO_DEEP, mark)


def _tree(data: dict[str, Any], marks: dict[Route, Mark]) -> Table:
    root = Table({}, Mark(1, 1))
    waiting: list[tuple[Route, Any, Table | Items]] = [((), data, root)]
    while waiting:
        route, value, node = waiting.pop()
        for key, child in _children(value):
            child_node = _node(child, marks[(*route, key)])
            if isinstance(node, Items):
                node.nodes.append(child_node)
            else:
                node.entries[str(key)] = child_node
            if not isinstance(child_node, Scalar):
                waiting.append(((*route, key), child, child_node))
    return root


def _children(value: dict[str, Any] | list[Any]) -> Iterable[tuple[str | int, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _node(value: Any, at: Mark) -> Node:
    """An empty container, or a scalar."""
    if isinstance(value, dict):
        return Table({}, at)
    return Items([], at) if isinstance(value, list) else Scalar(value, at)
