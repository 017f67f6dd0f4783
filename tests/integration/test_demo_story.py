"""The demo says so when something that it claims has not happened."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dispatch.demo.operator import Operator
from dispatch.demo.story import run_demo
from dispatch.service import DispatchService
from dispatch.view.events import Event
from harness.local import LocalSessionHost


class Saboteur(Operator):
    """Cancels everything as soon as it has begun."""

    @contextlib.contextmanager
    def beside(self, service: DispatchService, host: LocalSessionHost, tell: Callable[[Event], None]) -> Iterator[None]:
        for view in service.list():
            service.cancel(view.id)
        self.problem = "it did not want to"
        yield


def test_a_demo_that_went_wrong_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(tmp_path / "kept", plain=True, operator=Saboteur()) == 1
    printed = capsys.readouterr().out.splitlines()
    failed = [line for line in printed if line.startswith(" NOT  ")]
    assert any("Every slice reaches main once and whole" in line for line in failed)
    assert any("can be retried" in line for line in failed)
    assert "The operator could not go on: it did not want to" in printed
    assert not any("more rows" in line for line in printed)  # its main has one commit
    assert (tmp_path / "kept" / "shop" / "README.md").exists()


class Interrupter(Operator):
    """Presses ctrl-C as soon as it has begun."""

    @contextlib.contextmanager
    def beside(self, service: DispatchService, host: LocalSessionHost, tell: Callable[[Event], None]) -> Iterator[None]:
        os.kill(os.getpid(), signal.SIGINT)
        yield


def test_a_demo_that_is_interrupted_ends_and_offers_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_demo(tmp_path / "kept", plain=True, operator=Interrupter()) == 130
    printed = capsys.readouterr().out
    assert printed.endswith("the demo ends here, as it was interrupted\n")
    assert "goes on from here" not in printed
