"""A graph is taken up once for each claim on it."""

from __future__ import annotations

import threading

import pytest

from harness.local.errors import NotOwnedError
from harness.local.site import Claim


def test_a_graph_is_taken_up_once_and_each_graph_for_itself() -> None:
    claim, taken = Claim(), []
    for graph_id in ("g", "h", "g"):
        claim.take_up(graph_id, taken.append)
    assert taken == ["g", "h"]


def test_what_could_not_be_taken_up_is_tried_again() -> None:
    claim, taken = Claim(), []

    def fail(graph_id: str) -> None:
        raise ValueError(graph_id)

    with pytest.raises(ValueError, match="g"):
        claim.take_up("g", fail)
    claim.take_up("g", taken.append)
    assert taken == ["g"]


def test_a_new_claim_takes_up_again() -> None:
    claim, taken = Claim(), []
    claim.take_up("g", taken.append)
    claim.fence(lambda: True)
    claim.take_up("g", taken.append)
    assert taken == ["g", "g"]


def test_who_comes_second_waits_for_the_first() -> None:
    claim, begun, go, order = Claim(), threading.Event(), threading.Event(), []

    def slowly(graph_id: str) -> None:
        begun.set()
        assert go.wait(10.0)
        order.append("taken up")

    first = threading.Thread(target=claim.take_up, args=("g", slowly))
    first.start()
    assert begun.wait(10.0)
    second = threading.Thread(target=lambda: (claim.take_up("g", order.append), order.append("second goes on")))
    second.start()
    second.join(0.1)
    assert second.is_alive()
    go.set()
    first.join(10.0)
    second.join(10.0)
    assert order == ["taken up", "second goes on"]


def test_the_claim_is_certain_by_default_and_then_as_its_fence_says() -> None:
    claim = Claim()
    claim.check()
    claim.fence(lambda: False)
    with pytest.raises(NotOwnedError):
        claim.check()
