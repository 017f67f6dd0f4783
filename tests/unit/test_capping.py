"""The cap: from what the host measures and what limits say, with its derivation; closed when in doubt."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from dispatch.capping import CapGauge, FixedCap
from dispatch.views import Cap
from harness import LimitReading


@attrs.define
class Told:
    """Measures that a test sets, and a count of how often they were read."""

    cores: float = 4.0
    _load: float = 0.0
    read: int = 0

    @property
    def load(self) -> float:
        self.read += 1
        return self._load


@attrs.frozen
class Saying:
    """A limit that says what a test has it say."""

    name: str
    answer: Callable[[int], int | None]

    def cap(self, running: int) -> LimitReading:
        return LimitReading(self.name, self.answer(running), f"{self.name} allows {self.answer(running)}")


PLACES = [
    (4, 0, 4),
    (4, 0.1, 3),
    (4, 3.9, 1),
    (4, 99, 1),
    (0.5, 0, 1),
    (2.5, 0.5, 2),
    (4, -3, 4),
    (math.nan, 0, 1),
    (4, math.inf, 1),
]


@pytest.mark.parametrize(("cores", "load", "places"), PLACES)
def test_the_cap_is_the_cores_less_the_load_rounded_down_and_at_least_one(
    cores: float, load: float, places: int
) -> None:
    gauge = CapGauge(Told(cores, load))
    assert gauge.places(0) == gauge.reading(0).places == places


def test_the_derivation_says_it_in_words() -> None:
    words = "cap 3 = max(1, floor(4 cores - 0.5 load))"
    assert CapGauge(Told(4, 0.5)).reading(0) == Cap(3, words, decided_by=words)
    assert CapGauge(Told(math.nan, 0)).reading(0).derivation == "cap 1 = max(1, floor(nan cores - 0 load))"


def test_measures_that_derive_say_so_themselves() -> None:
    gauge = CapGauge(FixedCap(7))
    assert gauge.places(3) == 7
    assert gauge.reading(3) == Cap(7, "cap 7, set by hand", "cap 7, set by hand")


def test_the_least_limit_counts_and_all_that_have_an_opinion_are_told() -> None:
    limits = [Saying("memory", lambda n: n + 2), Saying("disk", lambda n: None), Saying("quota", lambda n: 9)]
    gauge = CapGauge(FixedCap(5), limits)
    assert [gauge.places(n) for n in (0, 1, 3, 7)] == [2, 3, 5, 5]
    assert gauge.reading(1) == Cap(
        3, "cap 5, set by hand; memory allows 3; quota allows 9", decided_by="memory allows 3"
    )


def test_a_limit_may_allow_none() -> None:
    assert CapGauge(FixedCap(5), [Saying("gate", lambda n: 0)]).places(0) == 0


def test_cap_and_derivation_come_from_one_measurement() -> None:
    measures = Told(4, 0)
    CapGauge(measures).reading(0)
    assert measures.read == 1


def fail(_: int = 0) -> Any:
    raise OSError("no /proc")


class Unmeasurable:
    cores = 4.0

    @property
    def load(self) -> float:
        raise OSError("no /proc")


class Quitter:
    cores = 4.0

    @property
    def load(self) -> float:
        raise SystemExit(3)


class NoNumbers:
    cores: Any = None
    load: Any = "low"


@pytest.mark.parametrize(
    "gauge",
    [
        CapGauge(Unmeasurable()),
        CapGauge(Quitter()),
        CapGauge(NoNumbers()),
        CapGauge(FixedCap(5), [Saying("memory", fail)]),
    ],
)
@pytest.mark.parametrize("running", [0, 3])
def test_what_cannot_be_measured_starts_nothing_and_stops_nothing(
    gauge: CapGauge, running: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL, "dispatch.capping"):
        assert gauge.places(running) == running
        cap = gauge.reading(running)
    assert cap.places == running
    assert cap.derivation.startswith("the host can't be measured: ")


def test_what_cannot_be_measured_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    CapGauge(Unmeasurable()).places(0)
    assert "no /proc" in caplog.text
