"""Where the values of a TOML document stand.

`tomllib` says what a document means but not where; this says where and leaves the meaning to it. The text has been
accepted by `tomllib`, so the scanner looks only for what tells keys, values and containers apart: it steps over
strings and comments as wholes, and look-alikes inside them are never seen.
"""

from __future__ import annotations

import re
import tomllib

import attrs

Route = tuple[str | int, ...]

_TRIVIA = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_KEY = re.compile(r"""[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'""")
_SCALAR = re.compile(
    r'''"""(?:[^"\\]|\\[\s\S]|"(?!""))*+""""{0,2}'''  # up to two quotes more belong to the text
    r"""|'''(?:[^']|'(?!''))*+''''{0,2}"""
    r"""|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'|[^,\]}#\n]++"""
)


def locate(text: str) -> dict[Route, int]:
    """The offset of every key and list item of a valid document, by its route from the root.

    A route has a key per table and a number from 0 per list. A table that several headers share is where the first
    one names it.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.offsets


@attrs.define
class _Container:
    route: Route
    items: int | None  #: seen so far, for a list; None for an inline table


_DEEPEST = 32  # no plan goes so deep: what lies deeper is found at the line of what holds it


@attrs.define
class _Scanner:
    text: str
    offset: int = 0
    offsets: dict[Route, int] = attrs.field(factory=dict)
    last: dict[Route, int] = attrs.field(factory=dict)  #: per array of tables, the index of its latest

    def document(self) -> None:
        table: Route = ()
        self._skip_trivia()
        while self.offset < len(self.text):
            if self.text[self.offset] == "[":
                table = self._header()
            else:
                self._value(self._keys(table))
            self._skip_trivia()

    def _header(self) -> Route:
        repeated = self.text.startswith("[[", self.offset)
        self.offset += 2 if repeated else 1
        route = self._keys((), repeated=repeated)
        self.offset += 2 if repeated else 1
        return route

    def _keys(self, route: Route, *, repeated: bool = False) -> Route:
        """Step over a dotted key and what follows its last part; the route it leads to."""
        while True:
            self._skip_trivia()
            match = self._step(_KEY)
            if len(route) < _DEEPEST:
                route = (*route, _key_of(match.group()))
                self.offsets.setdefault(route, match.start())
            self._skip_trivia()
            following = self.text[self.offset]
            if following == "]" and repeated:
                self.last[route] = self.last.get(route, -1) + 1
                self.offsets[(*route, self.last[route])] = match.start()
            if route in self.last:
                route = (*route, self.last[route])
            if following == "]":
                return route
            self.offset += 1
            if following == "=":
                self._skip_trivia()
                return route

    def _value(self, route: Route) -> None:
        """Step over the value of `route`, noting what it contains."""
        containers: list[_Container] = []
        self._begin(route, containers)
        while containers:
            self._skip_trivia()
            following, innermost = self.text[self.offset], containers[-1]
            if following in "]}":
                self.offset += 1
                containers.pop()
            elif following == ",":
                self.offset += 1
            elif innermost.items is None:
                self._begin(self._keys(innermost.route), containers)
            else:
                item = (*innermost.route, innermost.items)
                innermost.items += 1
                self.offsets[item] = self.offset
                self._begin(item, containers)

    def _begin(self, route: Route, containers: list[_Container]) -> None:
        following = self.text[self.offset]
        if following in "[{":
            self.offset += 1
            containers.append(_Container(route, 0 if following == "[" else None))
        else:
            self._step(_SCALAR)

    def _skip_trivia(self) -> None:
        self._step(_TRIVIA)

    def _step(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self.text, self.offset)
        assert match is not None, "tomllib accepted what this scanner can't read"
        self.offset = match.end()
        return match


def _key_of(part: str) -> str:
    if part[0] not in "\"'":
        return part
    (key,) = tomllib.loads(f"{part} = 0")
    return key
