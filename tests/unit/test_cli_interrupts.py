from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from dispatch.cli.ending import Interrupted
from dispatch.cli.interrupts import HEEDED, Gate, Interrupts, Suspension


@pytest.fixture(autouse=True)
def heedful() -> Iterator[None]:
    """The test program may have been started with some of them ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in HEEDED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_gate_limits_to_nothing_while_it_is_shut() -> None:
    gate = Gate()
    assert gate.cap(3).cap == 0
    gate.open()
    assert gate.cap(3).cap is None
    gate.shut("it is late")
    reading = gate.cap(3)
    assert (reading.cap, reading.derivation) == (0, "it is late")


@pytest.mark.parametrize("number", HEEDED)
def test_before_there_is_anything_to_end_a_signal_breaks_off(number: signal.Signals) -> None:
    interrupts = Interrupts(Gate())
    with pytest.raises(Interrupted) as broken, interrupts.heeded():
        signal.raise_signal(number)
    assert broken.value.signal_number == number
    assert (interrupts.count, interrupts.status) == (0, 0)


def test_a_second_signal_does_not_break_off_the_cleaning_up() -> None:
    interrupts = Interrupts(Gate())
    cleaned = False
    with pytest.raises(Interrupted), interrupts.heeded():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            cleaned = True
    assert cleaned


def test_later_signals_shut_the_gate_and_are_counted() -> None:
    gate = Gate()
    interrupts = Interrupts(gate)
    with interrupts.heeded():
        gate.open()
        interrupts.defer()
        assert (interrupts.count, interrupts.name, interrupts.status) == (0, "", 0)
        signal.raise_signal(signal.SIGTERM)
        assert gate.cap(1).cap == 0
        signal.raise_signal(signal.SIGINT)
        assert (interrupts.count, interrupts.name, interrupts.status) == (2, "SIGTERM", 143)


def test_rest_ends_at_once_for_a_signal_that_came_before_or_meanwhile() -> None:
    interrupts = Interrupts(Gate())
    with interrupts.heeded():
        interrupts.defer()
        interrupts.note(signal.SIGPIPE)
        began = time.monotonic()
        interrupts.rest(60)
        assert time.monotonic() - began < 30
        interrupts.rest(0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        before = signal.signal(signal.SIGALRM, lambda number, frame: os.kill(os.getpid(), signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        interrupts.rest(60)
        signal.signal(signal.SIGALRM, before)
        assert time.monotonic() - began < 30
        assert interrupts.count == 2


def test_many_signals_at_once_do_no_harm() -> None:
    interrupts = Interrupts(Gate())
    with interrupts.heeded():
        interrupts.defer()
        for _ in range(70_000):
            interrupts.note(signal.SIGINT)
        interrupts.rest(60)
        assert interrupts.count == 70_000


def test_an_ignored_signal_stays_ignored_and_handlers_come_back() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupts = Interrupts(Gate())
    with interrupts.heeded():
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGINT) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_a_wish_to_be_stopped_waits_until_it_can_be_obeyed() -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGTSTP, lambda number, frame: told.append(number))
    try:
        suspension = Suspension()
        signal.raise_signal(signal.SIGTSTP)
        assert (suspension.asked, told) == (True, [])
        suspension.obey()
        assert (suspension.asked, told) == (False, [signal.SIGTSTP])
        signal.raise_signal(signal.SIGTSTP)
        assert (suspension.asked, len(told)) == (True, 1)
        suspension.close()
        signal.raise_signal(signal.SIGTSTP)
        assert len(told) == 2
    finally:
        signal.signal(signal.SIGTSTP, before)


def test_a_wish_to_be_stopped_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        suspension = Suspension()
        signal.raise_signal(signal.SIGTSTP)
        assert not suspension.asked
    finally:
        signal.signal(signal.SIGTSTP, before)
