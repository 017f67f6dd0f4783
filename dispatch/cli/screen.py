"""Where the progress of a run is shown: a live view on a terminal, else one line for each thing that happens.

A screen that breaks (a closed pipe, a terminal that went away) shows nothing more and says so through `broken`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from rich.live import Live
from rich.text import Text

from dispatch.cli.interrupts import Suspension
from dispatch.cli.output import Output
from dispatch.view.events import Event
from dispatch.view.frame import Scene, event_parts, frame
from dispatch.view.text import line


class Screen(Protocol):
    """Shows a run. `rows` is how many slices of the frontier it can show with the reasons why they wait."""

    @property
    def rows(self) -> int: ...

    @property
    def broken(self) -> bool: ...

    def show(self, scene: Scene, news: Iterable[Event]) -> None:
        """The run as it stands, and what has happened since it was shown last."""
        ...

    def heed(self) -> None:
        """To be called often: what a person at the terminal wants of the screen itself is done here."""
        ...

    def close(self) -> None: ...


class PlainScreen:
    """Lines."""

    rows = 0

    def __init__(self, out: Output) -> None:
        self._out = out
        self._notice = ""
        self.broken = False

    def show(self, scene: Scene, news: Iterable[Event]) -> None:
        lines = [line(*event_parts(event, scene.began_at), cells=self._out.width) for event in news]
        if scene.notice != self._notice:
            self._notice = scene.notice
            lines.append(line(scene.notice, cells=self._out.width))
        self._write(lines)

    def heed(self) -> None:
        """There is nothing to do."""

    def close(self) -> None:
        """Nothing is left open."""

    def _write(self, lines: list[Text]) -> None:
        if not lines or self.broken:
            return
        try:
            self._out.write(lines)
        except OSError:
            self.broken = True


class LiveScreen:
    """A view that is drawn over itself, as high as the terminal, and vanishes when it is closed.

    While the program is stopped by ctrl-Z the view is gone and the cursor is there. For the main thread alone.
    """

    def __init__(self, out: Output) -> None:
        self._console = out.console()
        self._live = self._view()
        self.broken = False
        self._suspension = Suspension()
        self._guarded(self._live.start)

    def _view(self) -> Live:
        """One that begins where the cursor is."""
        return Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    @property
    def rows(self) -> int:
        return self._console.size.height

    def show(self, scene: Scene, news: Iterable[Event]) -> None:
        width, height = self._console.size
        # One line stays free: a view that fills the terminal would scroll it at each drawing.
        self._guarded(lambda: self._live.update(frame(scene, width, max(1, height - 1)), refresh=True))

    def heed(self) -> None:
        if self._suspension.asked:
            self._guarded(self._live.stop)
            self._suspension.obey()
            self._live = self._view()
            self._guarded(self._live.start)

    def close(self) -> None:
        self._guarded(self._live.stop)
        self._suspension.close()

    def _guarded(self, write: Callable[[], None]) -> None:
        if self.broken:
            return
        try:
            write()
        except OSError:
            self.broken = True


def screen_on(out: Output) -> Screen:
    """The screen for an output."""
    return LiveScreen(out) if out.styled else PlainScreen(out)
