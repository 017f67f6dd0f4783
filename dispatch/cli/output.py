"""Where a command writes, and how: styled on a terminal that wants it, plain text everywhere else."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import attrs
from rich.console import Console
from rich.text import Text

from dispatch.view.gantt import ASCII, BLOCKS, Glyphs

UNCUT = 100_000  #: the width of what goes to a file or a pipe: whoever reads it has no screen
CHART_WIDTH = 100  #: where nobody says how wide a chart may be


@attrs.frozen
class Output:
    """A stream and what it can show. `width` is that of lines, `chart_width` of what is drawn to a width."""

    stream: TextIO
    styled: bool
    width: int
    chart_width: int
    glyphs: Glyphs

    def write(self, lines: Iterable[Text]) -> None:
        """The lines, one by one; at once."""
        if self.styled:
            console = self.console()
            for text in lines:
                console.print(text, no_wrap=True, crop=False, overflow="ignore", highlight=False)
        else:
            self.stream.writelines(f"{text.plain.rstrip()}\n" for text in lines)
        self.stream.flush()

    def begin_anew(self, first: bool) -> None:
        """What is written next takes the place of what was: on a terminal. Elsewhere a blank line parts them."""
        if self.styled:
            self.stream.write("\x1b[H\x1b[2J")
        elif not first:
            self.stream.write("\n")

    def console(self) -> Console:
        return Console(file=self.stream, force_terminal=True, highlight=False, markup=False, emoji=False)


def output(stream: TextIO | None = None, *, plain: bool = False) -> Output:
    """The output for a stream, stdout if none is given. `plain`, NO_COLOR and a dumb terminal forbid all styles."""
    stream = stream or sys.stdout
    terminal = stream.isatty()
    size = shutil.get_terminal_size((CHART_WIDTH, 24))
    return Output(
        stream=stream,
        styled=terminal and not plain and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb",
        width=size.columns if terminal else UNCUT,
        chart_width=max(20, size.columns),
        glyphs=BLOCKS if _can_show(stream, BLOCKS) else ASCII,
    )


def print_document(document: Any) -> None:
    """JSON on stdout. ASCII alone, so that no text from outside acts on a terminal."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def print_line(document: Any) -> None:
    """The same on one line, at once: for a reader that takes one after the other."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _can_show(stream: TextIO, glyphs: Glyphs) -> bool:
    try:
        "".join(attrs.astuple(glyphs)).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
