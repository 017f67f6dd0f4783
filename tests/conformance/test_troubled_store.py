"""The store that tests of outages use is a store: it passes the port's suite, on the same inputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatch.store import Store
from tests.conformance import test_store as suite
from tests.conformance.store_rig import Opener, World, memory
from tests.integration.service_rig import TroubledStore

SUITE = {name: test for name, test in vars(suite).items() if name.startswith("test_")}
globals().update({name: test for name, test in SUITE.items() if "openers" not in inspect.signature(test).parameters})


@pytest.fixture
def handle(world: World, tmp_path: Path) -> Iterator[Opener]:
    opened: list[Store] = []
    new = memory(world, tmp_path)

    def opener() -> Store:
        opened.append(TroubledStore(new()))
        return opened[-1]

    yield opener
    for one in opened:
        one.release()


def test_the_suite_is_there() -> None:
    assert len(globals().keys() & SUITE.keys()) >= 35
