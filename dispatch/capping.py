"""The cap: how many sessions may run at once, from what the host measures and from whatever else sets a limit."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Protocol

import attrs

from dispatch.views import Cap
from harness import Limit, worker_cap

logger = logging.getLogger(__name__)


class Measures(Protocol):
    """Anything with `cores` (usable by this process) and `load` (cores kept busy by others than its own sessions)."""

    @property
    def cores(self) -> float: ...

    @property
    def load(self) -> float: ...


@attrs.frozen
class FixedCap:
    """Measures that are no measures: so many places. `origin` says in words where the number comes from."""

    places: int
    origin: str = "set by hand"

    @property
    def cores(self) -> float:
        return float(self.places)

    @property
    def load(self) -> float:
        return 0.0

    @property
    def derivation(self) -> str:
        return f"cap {self.places}, {self.origin}"


class CapGauge:
    """Reads measures and limits. What can't be measured lets nothing more start, and what runs go on."""

    def __init__(self, measures: Measures, limits: Sequence[Limit] = ()) -> None:
        self._measures, self._limits = measures, tuple(limits)

    def places(self, running: int) -> int:
        """How many may run in all, `running` of them running now."""
        try:
            cap = worker_cap(self._measures.cores, self._measures.load)
            for limit in self._limits:
                most = limit.cap(running).cap
                if most is not None and most < cap:
                    cap = most
        except BaseException:  # a port that anyone may implement, in the owner's thread: fail closed, and say so
            logger.exception("the host can't be measured; nothing more is started")
            return running
        return cap

    def reading(self, running: int) -> Cap:
        """The same with its derivation in words, both from one measurement."""
        try:
            cores, load = self._measures.cores, self._measures.load
            words = getattr(self._measures, "derivation", "") or _derive(cores, load)
            readings = [limit.cap(running) for limit in self._limits]
            told = [(worker_cap(cores, load), words)]
            told += [(reading.cap, reading.derivation) for reading in readings if reading.cap is not None]
        except BaseException as error:  # noqa: BLE001 - as above
            return Cap(running, f"the host can't be measured: {error}")
        places, decided_by = min(told, key=lambda part: part[0])
        return Cap(places, "; ".join(words for _, words in told), decided_by)


def _derive(cores: float, load: float) -> str:
    return f"cap {worker_cap(cores, load)} = max(1, floor({_plain(cores)} cores - {_plain(load)} load))"


def _plain(number: float) -> str:
    return f"{number:g}" if math.isfinite(number) else str(number)
