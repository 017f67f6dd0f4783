"""YAML as a tree with places, built from the parser's events.

Events rather than a constructor, because a plan wants YAML read in its own way: every value with its place, keys as
they are written, duplicate keys refused, aliases bounded, no recursion. Unquoted values mean what the YAML 1.2 core
schema says: `yes`, `on` and `2026-01-01` are text, only `true` and `false` are booleans, `010` is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import attrs
import yaml

from dispatch.plans.nodes import (
    DEPTH_LIMIT,
    TOO_DEEP,
    TOO_MANY,
    VALUES_LIMIT,
    Items,
    Lines,
    Node,
    Scalar,
    ScalarValue,
    Table,
)
from dispatch.plans.problems import Mark, MisfitError, shown

#: libyaml's parser is 30 times as fast as the one in Python, but not every build of PyYAML has it.
FASTEST: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: What YAML doesn't take as it is.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,300})")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]{0,300})(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,4})?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_CONSTANTS: dict[str, ScalarValue] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq")} | {"!"}


def read_yaml(text: str, parser: type[Any] = FASTEST) -> Node:
    """The document's root; null for an empty document. Raises `MisfitError` for text that is no YAML.

    `parser` is one of PyYAML's loaders, of which only the events are used.
    """
    builder = _Builder(Lines(text))
    for event in _events(text, parser):
        builder.take(event)
    return builder.root or Scalar(None, Mark(1, 1))


def _events(text: str, parser: type[Any]) -> Iterator[yaml.Event]:
    lines = Lines(text)
    if wrong := _UNPRINTABLE.search(text):  # before the parser, whose builds differ in how they count
        problem = f"is no YAML: the character {shown(wrong.group())} has to be written as an escape"
        raise MisfitError(problem, lines.mark(wrong.start()))
    try:
        events = parser(text)
        while events.check_event():
            yield events.get_event()
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        assert place is not None, "a parser's error has a place"
        problem = f"is no YAML: {error.problem}{_advice(text, place.index)}"
        raise MisfitError(problem, lines.mark(place.index)) from None


def _advice(text: str, offset: int) -> str:
    found, before = text[offset : offset + 1], text[offset - 1 : offset]
    if found == "\t":
        return "; indent with spaces, not with a tab"
    if found in {"@", "`", "%"} or before in {"*", "&", "!"}:
        return f"; text that begins with {shown(found if found in {'@', '`', '%'} else before)} needs quotes"
    return ""


@attrs.define
class _Open:
    """A container whose end hasn't come yet. `before`: values counted when it began."""

    start: yaml.CollectionStartEvent
    at: Mark
    before: int
    nodes: list[Node] = attrs.field(factory=list)
    entries: dict[str, Node] = attrs.field(factory=dict)
    merged: list[Table] = attrs.field(factory=list)
    key: tuple[str, Mark] | None = None
    merging: bool = False

    @property
    def awaits_key(self) -> bool:
        return isinstance(self.start, yaml.MappingStartEvent) and self.key is None

    def close(self) -> Node:
        if isinstance(self.start, yaml.SequenceStartEvent):
            return Items(self.nodes, self.at)
        for table in self.merged:
            for key, node in table.entries.items():
                self.entries.setdefault(key, node)
        return Table(self.entries, self.at)


@attrs.define
class _Builder:
    """Turns events into nodes, one at a time. `values` counts as if aliases were written out."""

    lines: Lines
    root: Node | None = None
    documents: int = 0
    values: int = 0
    containers: list[_Open] = attrs.field(factory=list)
    anchored: dict[str, tuple[Node, int]] = attrs.field(factory=dict)

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self.documents += 1
                if self.documents > 1:
                    raise MisfitError("a plan is one YAML document, and here another begins", self._mark(event))
            case yaml.ScalarEvent() if self._innermost_awaits_key():
                self._key(event)
            case yaml.NodeEvent() if self._innermost_awaits_key():
                raise MisfitError("a key has to be plain text", self._mark(event))
            case yaml.ScalarEvent():
                self._check_tag(event)
                self._add(Scalar(_scalar_value(event), self._mark(event)), 1, event.anchor)
            case yaml.CollectionStartEvent():
                self._open(event)
            case yaml.CollectionEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._alias(event)
            case _:
                pass  # the ends of documents and of the stream say nothing

    def _mark(self, event: yaml.Event) -> Mark:
        assert event.start_mark is not None, "a parser's event has a place"
        return self.lines.mark(event.start_mark.index)

    def _innermost_awaits_key(self) -> bool:
        return bool(self.containers) and self.containers[-1].awaits_key

    def _key(self, event: yaml.ScalarEvent) -> None:
        innermost, at = self.containers[-1], self._mark(event)
        self._check_tag(event)
        innermost.key = (event.value, at)
        innermost.merging = event.value == "<<" and event.implicit[0]
        if not innermost.merging and (earlier := innermost.entries.get(event.value)):
            first = earlier.at.line
            raise MisfitError(f"the key {shown(event.value)} is there already, in line {first}", at)

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        self._check_tag(event)
        if len(self.containers) == DEPTH_LIMIT:
            raise MisfitError(TOO_DEEP, self._mark(event))
        self.containers.append(_Open(event, self._mark(event), self.values))

    def _close(self) -> None:
        closed = self.containers.pop()
        self._add(closed.close(), 1, closed.start.anchor, since=closed.before)

    def _alias(self, event: yaml.AliasEvent) -> None:
        at = self._mark(event)
        name = event.anchor
        if name is None or name not in self.anchored:
            raise MisfitError(
                f"{shown(f'*{name}')} refers to no anchor that ends before it; text with * needs quotes", at
            )
        node, size = self.anchored[name]
        self._add(attrs.evolve(node, at=at), size, None)

    def _add(self, node: Node, size: int, anchor: str | None, since: int | None = None) -> None:
        """Put a finished node where it belongs. `since`: the count before it, for a container."""
        before = self.values if since is None else since
        self._count(size, node.at)
        if anchor is not None:
            self.anchored[anchor] = (node, self.values - before)
        if not self.containers:
            self.root = node
            return
        innermost = self.containers[-1]
        if innermost.key is None:
            innermost.nodes.append(node)
            return
        key, at = innermost.key
        innermost.key = None
        if innermost.merging:
            innermost.merged.extend(_merged(node))
        else:
            innermost.entries[key] = attrs.evolve(node, at=at)

    def _count(self, size: int, at: Mark) -> None:
        self.values += size
        if self.values > VALUES_LIMIT:
            raise MisfitError(f"{TOO_MANY}, aliases written out", at)

    def _check_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag is not None and event.tag not in _TAGS:
            name = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise MisfitError(f"a plan has no use for the tag {shown(name)}", self._mark(event))


def _merged(node: Node) -> list[Table]:
    tables = node.nodes if isinstance(node, Items) else [node]
    if not all(isinstance(table, Table) for table in tables):
        raise MisfitError("<< merges tables, and this is none", node.at)
    return [table for table in tables if isinstance(table, Table)]


def _scalar_value(event: yaml.ScalarEvent) -> ScalarValue:
    text: str = event.value
    if not event.implicit[0] or event.tag is not None:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text
