"""The pictures of the documentation: commands run in a terminal of our own, what it then shows exported as SVG.

python -m dispatch.demo.pictures docs/images
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 100, 30
REDRAW = re.compile(r"(?:\r|\x1b\[2K|\x1b\[1A)*\x1b\[2K")  #: how a live view goes back to its first line
SUMMARY, HISTORY, VERDICT = "slices merged in", "main afterwards", "What this shows"
MOMENT = ("1 preempted", "asked to stop at its next safepoint, to make room")  #: when the live view is pictured
SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main(folder: Path) -> int:
    """Make them all, in `folder`. Takes as long as the demo does."""
    folder.mkdir(parents=True, exist_ok=True)
    with resources.as_file(resources.files("dispatch.demo").joinpath("plan.toml")) as plan:
        save(folder, "plan", "slice-dispatch plan plan.toml", shown("plan", str(plan)).replace(str(plan), "plan.toml"))
    *frames, ending = REDRAW.split(shown("demo"))
    live = [frame for frame in frames if all(words in plain(frame) for words in MOMENT)]
    if not live:
        raise RuntimeError("no frame of the live view shows the preemption: this machine is too busy; try again")
    save(folder, "run", "slice-dispatch run plan.toml", live[0])
    save(folder, "summary", "the end of a run", section(ending, SUMMARY, HISTORY))
    save(folder, "verdict", "slice-dispatch demo", section(ending, VERDICT, "Now your own repository"))
    return 0


def shown(*arguments: str) -> str:
    """All that the program writes to a terminal. Raises `CalledProcessError` if it doesn't end well."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    command = (sys.executable, "-m", "dispatch", *arguments)
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, env=environment | {"TERM": "xterm-256color"}
    ) as process:
        os.close(theirs)
        pieces = list(iter(lambda: read(ours), b""))
    os.close(ours)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return b"".join(pieces).decode().replace("\r\n", "\n")


def read(descriptor: int) -> bytes:
    """What has been written next; nothing when the last writer has closed the terminal."""
    try:
        return os.read(descriptor, 65536)
    except OSError:  # EIO is how Linux says so
        return b""


def section(text: str, first: str, last: str) -> str:
    """The lines from the one that contains `first` to the one before that which contains `last`."""
    lines = text.splitlines()
    begin = next(at for at, line in enumerate(lines) if first in plain(line))
    end = next(at for at, line in enumerate(lines) if last in plain(line))
    return "\n".join(lines[begin:end])


def plain(ansi: str) -> str:
    return Text.from_ansi(ansi).plain


def save(folder: Path, name: str, title: str, ansi: str) -> None:
    lines = Text.from_ansi(ansi.strip("\n"))
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(lines, no_wrap=True, overflow="crop")
    picture = console.export_svg(title=title, code_format=SVG, unique_id=f"dispatch-{name}")
    (folder / f"{name}.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    arguments: Sequence[str] = sys.argv[1:]
    sys.exit(main(Path(arguments[0] if arguments else "docs/images")))
