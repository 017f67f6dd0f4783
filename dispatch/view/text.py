"""Words and numbers as people read them, cut to the cells of a terminal. Everything that is shown goes through here."""

from __future__ import annotations

import datetime as dt
import textwrap
from collections.abc import Iterable, Iterator

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from harness.text import ELLIPSIS, sanitize

TEXT_LIMIT = 1000  #: characters of a text from outside that are looked at: no line is wider


def clean(text: str, limit: int = TEXT_LIMIT) -> str:
    """`text` from outside as one printable line: nothing in it acts on a terminal."""
    return sanitize(text, limit)


def fit(text: str, cells: int) -> str:
    """`text`, which is clean, in exactly `cells` cells: filled up with blanks, or cut with an ellipsis."""
    if cells <= 0:
        return ""
    if cell_len(text) <= cells:
        return set_cell_size(text, cells)
    return set_cell_size(text, cells - 1) + ELLIPSIS


def cut(text: str, cells: int) -> str:
    """`text`, which is clean, in at most `cells` cells."""
    return text if cell_len(text) <= cells else fit(text, cells)


def elapsed(seconds: float) -> str:
    """A length of time in at most 7 characters: `0.4s`, `12s`, `3m05s`, `2h07m`, `3d04h`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"


def moment(unix_s: float) -> str:
    """A moment in UTC, empty for 0."""
    return f"{dt.datetime.fromtimestamp(unix_s, dt.UTC):%Y-%m-%dT%H:%M:%SZ}" if unix_s else ""


def hold_words(hold: str) -> str:
    """That a slice is held, and why if that was said: the graph puts `held` for a reason that is not there."""
    return "held" if hold == "held" else f"held: {hold}"


def count(number: int, one: str, many: str = "") -> str:
    """`1 slice`, `12 slices`."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {many or one + 's'}"


Part = tuple[str, str] | str  #: clean words, or clean words and their style


def prose(words: str, style: str, cells: int) -> Iterator[Text]:
    """Clean words on as many lines as they need."""
    for each in textwrap.wrap(words, max(cells, 1)):
        yield line((each, style), cells=cells)


def folded(head: Iterable[Part], *parts: Part, indent: int, cells: int) -> Iterator[Text]:
    """`head` as it is, then the words of clean parts, two blanks between parts, on as many lines as they need.

    Lines after the first are indented. `head` is cut to the width, and a word that is wider is broken.
    """
    row = line(*head, cells=cells)
    rest = max(2, cells - indent)  # a character may take two cells
    room, gap = cells - row.cell_len, ""
    for part in parts:
        words, style = _styled(part)
        gap *= 2
        for piece in (piece for word in words.split() for piece in chop_cells(word, rest)):
            if cell_len(gap + piece) > room:
                yield row
                row, room, gap = Text(" " * indent), rest, ""
            row.append(gap + piece, style or None)
            room, gap = room - cell_len(gap + piece), " "
    yield row


def line(*parts: Part, cells: int) -> Text:
    """One line of clean parts, each a text or a text with its style, cut to `cells`."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for part in parts:
        words, style = _styled(part)
        text.append(words, style or None)
    if text.cell_len > cells:
        text.truncate(cells, overflow="ellipsis")
    return text if cells > 0 else Text()


def _styled(part: Part) -> tuple[str, str]:
    return part if isinstance(part, tuple) else (part, "")
