"""What is wrong with a plan file, collected and shown: one line each, with the place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import attrs

from dispatch.errors import DispatchError

SUGGESTIONS = 20  #: looked for per plan: each compares a name with all that are known
SUGGESTIBLE = 20_000  #: known names beyond which none is looked for


def printable(text: str) -> str:
    """`text` with everything that a terminal would act on, or not show, written as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def shown(value: object) -> str:
    """A value from the file as an error quotes it: short, in quotes if it is text, free of control characters."""
    text = repr(value[:80] if isinstance(value, str) else value)
    return printable(text if len(text) <= 80 else text[:77] + "...")


@attrs.frozen
class Mark:
    """A place in the text; line and column count from 1, columns in characters."""

    line: int
    column: int


class MisfitError(Exception):
    """Text or a value that a plan has no use for, at a place if it has one. Never leaves this package."""

    def __init__(self, problem: str, at: Mark | None) -> None:
        super().__init__(problem)
        self.problem, self.at = problem, at


@attrs.frozen
class Problem:
    """One thing that is wrong. `field` is a dotted path such as `slices.parser.depends_on`, empty for the whole file.

    `str()` is one printable line.
    """

    path: str
    line: int | None
    column: int | None
    field: str
    problem: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        if self.line and not self.field:  # a slip in the text itself: the column helps to see it
            place += f":{self.column}"
        return printable(": ".join(part for part in (place, self.field, self.problem) if part))


class PlanFileError(DispatchError):
    """A plan file that can't be used. Its message is the first problem and how many more there are.

    `found` holds all problems in the order of their lines, `problems` the same as printable lines; `path`, `line`,
    `column`, `field` and `problem` are the first one's.
    """

    def __init__(self, found: Iterable[Problem]) -> None:
        self.found = tuple(found)
        self.problems = tuple(map(str, self.found))
        first = self.found[0]
        self.path, self.line, self.column = first.path, first.line, first.column
        self.field, self.problem = first.field, first.problem
        more = len(self.found) - 1
        super().__init__(self.problems[0] + (f" (and {more} more)" if more else ""))


@attrs.define
class Findings:
    """The problems of one file, while it is read. `path` is the file as the user named it."""

    path: str
    found: list[Problem] = attrs.field(factory=list)

    def add(self, at: Mark | None, field: str, problem: str) -> None:
        line, column = (at.line, at.column) if at else (None, None)
        self.found.append(Problem(self.path, line, column, field, problem))

    def settle(self) -> None:
        """Raise `PlanFileError` if anything was found."""
        if self.found:
            raise PlanFileError(sorted(self.found, key=lambda problem: problem.line or 0))


@attrs.define
class Spelling:
    """Suggests what a misspelled name may have meant, at a bounded cost per plan."""

    known: tuple[str, ...]
    left: int = SUGGESTIONS

    def hint(self, name: str) -> str:
        """`; did you mean 'lex'?`, or nothing."""
        if not self.left or len(self.known) > SUGGESTIBLE:
            return ""
        self.left -= 1
        close = difflib.get_close_matches(name[:100], self.known, n=1)
        return f"; did you mean {shown(close[0])}?" if close else ""
