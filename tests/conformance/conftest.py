"""What the suites of the store's ports are played on: each adapter in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatch.store import Store
from tests.conformance.store_rig import ADAPTERS, Opener, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(params=ADAPTERS)
def handle(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Iterator[Opener]:
    """Opens handles on one store; all are released when the test ends."""
    opened: list[Store] = []
    new = ADAPTERS[request.param](world, tmp_path)

    def opener() -> Store:
        opened.append(new())
        return opened[-1]

    yield opener
    for store in opened:
        store.release()


@pytest.fixture
def store(handle: Opener) -> Store:
    """A store that has claimed the graph "default"."""
    store = handle()
    store.claim("default")
    return store
