from __future__ import annotations

from collections.abc import Iterator

import pytest

from dispatch import DispatchService, FixedCap, MemoryStore, Slice, TouchSet
from dispatch.offline import StoredGraph
from dispatch.view.stored import explanation_lines
from tests.unit.test_offline import Idle

PATHS = tuple(f"{'/'.join(['a-folder-with-a-name'] * n)}/x.py" for n in range(1, 5))


@pytest.fixture
def graph() -> Iterator[StoredGraph]:
    store = MemoryStore()
    slices = [Slice(name, touch=TouchSet(paths=PATHS[-1:])) for name in ("first", "second")]
    with DispatchService(Idle(), store, "demo", measures=FixedCap(2)).start() as service:
        service.enqueue_many(slices)
        yield StoredGraph.read(store, "demo")


def words(graph: StoredGraph, width: int) -> list[str]:
    return " ".join(text.plain for text in explanation_lines(graph, "second", width)).split()


def test_an_explanation_is_all_there_however_narrow_the_terminal(graph: StoredGraph) -> None:
    told = list(explanation_lines(graph, "second", 120))
    assert max(text.cell_len for text in told) <= 120 < len(PATHS[-1]) * 2
    assert words(graph, 120) == words(graph, 100_000)
    assert "".join(words(graph, 40)) == "".join(words(graph, 100_000))


def test_a_title_that_only_says_the_id_again_is_left_out(graph: StoredGraph) -> None:
    assert next(explanation_lines(graph, "second", 80)).plain == "second is queued"
