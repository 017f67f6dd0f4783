"""The command line of a campaign that is played on each kind of fleet, and then with products it has to see through."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import attrs

Telling = Callable[[str], None]


class Played(Protocol):
    @property
    def well(self) -> bool: ...


Result = TypeVar("Result", bound=Played)


@attrs.frozen
class Campaign(Generic[Result]):
    """`name` is the module's; `size` the option that says how much of it, and its default; `trial` how much of it for a
    product that is sabotaged. `play` takes a kind, a size, a seed, and whom to tell how it goes; `is_seen` a sabotage,
    a size and a seed."""

    name: str
    does: str
    size: tuple[str, int]
    trial: int
    kinds: tuple[str, ...]
    sabotages: Iterable[str]
    play: Callable[[str, int, int, Telling], Result]
    is_seen: Callable[[str, int, int], bool]
    lines: Callable[[Result], Iterator[str]]

    def main(self) -> int:
        """The exit status: 0 only if all went well, and each sabotage was seen."""
        asked = self._asked()
        size = getattr(asked, self.size[0])
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # workers and servers end with the campaign
        results = []
        for kind in self.kinds if asked.fleet == "all" else (asked.fleet,):
            results.append(self.play(kind, size, asked.seed, lambda line: print(line, file=sys.stderr, flush=True)))
            print("\n".join(self.lines(results[-1])), flush=True)
        unseen = [] if asked.no_trial else [each for each in self.sabotages if not self._sees(each, asked.seed)]
        if not asked.no_trial:
            print("\n".join(f"VOID: the sabotage was not seen: {each}" for each in unseen) or "each sabotage was seen")
        return 0 if all(result.well for result in results) and not unseen else 1

    def _sees(self, sabotage: str, seed: int) -> bool:
        return self.is_seen(sabotage, self.trial, seed)

    def _asked(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=f"python -m {self.name}", description=self.does)
        parser.add_argument(
            "--fleet", choices=(*self.kinds, "all"), default="all", help="where work items and deliveries are kept"
        )
        parser.add_argument(f"--{self.size[0]}", type=int, default=self.size[1])
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument(
            "--no-trial", action="store_true", help="don't try the campaign on sabotaged workers as well"
        )
        return parser.parse_args()
