"""How heavy a slice is, for the ranking: never set by hand, learned from how long slices really ran."""

from __future__ import annotations

from typing import Protocol

import attrs


class Weights(Protocol):
    """Weights by kind of recipe. They change only when `measured` says so, so that a ranking stays consistent."""

    def base(self) -> float:
        """What every slice weighs before its kind is looked at."""
        ...

    def learned(self, kind: str) -> float:
        """What `kind` adds to that; 0 while nothing is known of it."""
        ...

    def measured(self, kind: str, seconds: float) -> bool:
        """Take in one merged slice's running time; True if the weights have changed by it."""
        ...


class UnitWeights:
    """Every slice weighs 1: upward rank counts the slices on the longest chain."""

    def base(self) -> float:
        return 1

    def learned(self, kind: str) -> float:
        return 0

    def measured(self, kind: str, seconds: float) -> bool:
        return False


@attrs.define
class Tally:
    """Count, mean and sum of squared deviations of a stream of numbers (Welford's recurrence)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        off = value - self.mean
        self.mean += off / self.count
        self.squares += off * (value - self.mean)

    @property
    def variance(self) -> float | None:
        """The sample variance; unknown below two values."""
        return self.squares / (self.count - 1) if self.count > 1 else None


class LearnedWeights:
    """The mean running time of all merged slices, plus what is known of the slice's kind, in seconds.

    A kind's mean differs from the mean of all by some `d`, known up to the error of a mean of `n` values, `v = s^2 / n`
    with `s^2` the kind's own sample variance (that of all slices while the kind has one value). The learned term is `d`
    shrunk toward 0 by the positive-part rule of James and Stein, `d * max(0, 1 - v / d^2)` (B. Efron, C. Morris,
    "Stein's Estimation Rule and Its Competitors", JASA 68, 1973): noise counts for nothing, a clear difference for
    nearly all of itself, and no constant is chosen by hand.

    New measurements take effect when their number reaches a power of two: a full re-weighing of the graph costs a pass
    over it, and so n merges cost log2(n) of them.
    """

    def __init__(self) -> None:
        self._all = Tally()
        self._kinds: dict[str, Tally] = {}
        self._base = 1.0
        self._learned: dict[str, float] = {}
        self._next = 1

    def base(self) -> float:
        return self._base

    def learned(self, kind: str) -> float:
        return self._learned.get(kind, 0.0)

    def measured(self, kind: str, seconds: float) -> bool:
        self._all.add(seconds)
        self._kinds.setdefault(kind, Tally()).add(seconds)
        if self._all.count < self._next:
            return False
        self._next *= 2
        self._base = self._all.mean
        self._learned = {kind: self._shrunk(tally) for kind, tally in self._kinds.items()}
        return True

    def _shrunk(self, kind: Tally) -> float:
        difference = kind.mean - self._all.mean
        variance = kind.variance if kind.variance is not None else self._all.variance
        if variance is None or difference == 0:
            return 0.0
        return difference * max(0.0, 1 - variance / kind.count / difference**2)


_NAMED: dict[str, type[UnitWeights | LearnedWeights]] = {"unit": UnitWeights, "learned": LearnedWeights}


def kind_of(weights: Weights) -> str:
    """The name by which a log says what kind of weights a graph was ranked with: a class's own if it isn't ours."""
    return next((name for name, kind in _NAMED.items() if type(weights) is kind), type(weights).__qualname__)


def new_weights(kind: str) -> Weights | None:
    """New ones of that kind, which have measured nothing; None for those of another program's making."""
    return _NAMED[kind]() if kind in _NAMED else None
