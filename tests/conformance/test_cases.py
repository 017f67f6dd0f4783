"""The given cases, replayed against the service on each store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dispatch import MemoryStore
from dispatch.store.postgres import PostgresStore
from tests.conformance.runner import run
from tests.conformance.store_rig import emptied_database
from tests.replaying import assert_replays

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def test_the_cases_are_here() -> None:
    assert len(CASES) == 27


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_on_sqlite(path: Path) -> None:
    assert run(json.loads(path.read_text())) is None


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_on_one_memory_store(path: Path) -> None:
    store = MemoryStore()
    assert run(json.loads(path.read_text()), store) is None
    assert_replays(store)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_on_postgres(path: Path) -> None:
    assert run(json.loads(path.read_text()), PostgresStore(emptied_database())) is None
