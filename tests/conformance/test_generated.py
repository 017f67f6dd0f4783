"""Generated cases, with the plain model's answers, replayed against the service."""

from __future__ import annotations

import pytest

from dispatch import MemoryStore
from dispatch.store.postgres import PostgresStore
from tests.conformance import generate
from tests.conformance.runner import run
from tests.conformance.store_rig import emptied_database
from tests.replaying import assert_replays

BATCH = 25
ON_MEMORY = range(0, 200, BATCH)
ON_SQLITE = range(10_000, 10_050, BATCH)
ON_POSTGRES = range(20_000, 20_050, BATCH)


@pytest.mark.parametrize("first", ON_MEMORY)
def test_generated_on_memory(first: int) -> None:
    for seed in range(first, first + BATCH):
        store = MemoryStore()
        assert run(generate.generate(seed), store) is None
        assert_replays(store)


@pytest.mark.parametrize("first", ON_SQLITE)
def test_generated_on_sqlite(first: int) -> None:
    for seed in range(first, first + BATCH):
        assert run(generate.generate(seed)) is None


@pytest.mark.parametrize("first", ON_POSTGRES)
def test_generated_on_postgres(first: int) -> None:
    for seed in range(first, first + BATCH):
        store = PostgresStore(emptied_database())
        assert run(generate.generate(seed), store) is None
        assert_replays(store)
