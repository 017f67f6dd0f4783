"""What a host is handed: one assignment per attempt, with what the attempt before it left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dispatch import DispatchService, MemoryStore, Slice, SliceState, UnitWeights
from harness import Assignment, Recipe, SessionPhase, SessionState
from tests.stateful.driver import TIMEOUT_S, NotingHost, SetMeasures

Serve = Callable[..., DispatchService]


class RefusingHost(NotingHost):
    """Refuses the first attempts at the slices it is told to."""

    def __init__(self, *refused: str) -> None:
        super().__init__()
        self.refused = {f"{id_}@1" for id_ in refused}

    async def submit(self, assignment: Assignment) -> None:
        await super().submit(assignment)
        if assignment.assignment_id in self.refused:
            raise FileNotFoundError(f"no worktree for {assignment.slice_id}")


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts services that are stopped at the end."""
    started = []

    def start(host: NotingHost, store: MemoryStore | None = None, cores: float = 1) -> DispatchService:
        service = DispatchService(host, store or MemoryStore(), measures=SetMeasures(cores), weights=UnitWeights())
        started.append(service.start())
        return started[-1]

    yield start
    for service in started:
        service.stop()


def settled(service: DispatchService, *states: SessionState) -> DispatchService:
    for state in states:
        service.observe_session(state)
    service.settle(timeout=TIMEOUT_S)
    return service


def work(id_: str, *depends_on: str) -> Slice:
    recipe = Recipe(command=("true",), prompt=f"Please do {id_}.")
    return Slice(id=id_, title=f"Do {id_}", recipe=recipe, depends_on=depends_on)


def test_an_assignment_says_what_is_to_be_done(serve: Serve) -> None:
    host = NotingHost()
    service = serve(host)
    service.enqueue(work("a"))
    settled(service)
    (first,) = host.submitted
    assert (first.assignment_id, first.slice_id, first.attempt, first.title) == ("a@1", "a", 1, "Do a")
    assert first.recipe == work("a").recipe
    assert "Please do a." in first.task
    assert first.checkpoint == ""
    assert first.graph_id


def test_the_next_attempt_goes_on_from_the_checkpoint_on_a_branch_of_its_own(serve: Serve) -> None:
    host = NotingHost()
    service = serve(host)
    service.enqueue(work("a"))
    settled(service, SessionState("a@1", SessionPhase.CLOSED, detail="in words", checkpoint="half of it is done"))
    first, second = host.submitted
    assert (second.assignment_id, second.attempt) == ("a@2", 2)
    assert "half of it is done" in second.checkpoint
    assert "half of it is done" in second.task
    assert "Please do a." in second.task
    assert first.branch != second.branch
    assert first.graph_id == second.graph_id


def test_a_detail_is_the_checkpoint_of_an_attempt_that_leaves_none(serve: Serve) -> None:
    host = NotingHost()
    service = serve(host)
    service.enqueue(work("a"))
    settled(service, SessionState("a@1", SessionPhase.CLOSED, detail="conflict in a.py"))
    assert "conflict in a.py" in host.submitted[1].checkpoint


def test_a_restart_leaves_a_checkpoint_and_keeps_the_graph_id(serve: Serve) -> None:
    host, store = NotingHost(), MemoryStore()
    service = serve(host, store)
    service.enqueue(work("a"))
    settled(service).stop()
    settled(serve(host, store))
    first, second = host.submitted
    assert second.checkpoint
    assert second.checkpoint in second.task
    assert (first.branch != second.branch, first.graph_id == second.graph_id) == (True, True)


def test_a_failing_submit_fails_the_slice_and_gives_its_place_away(serve: Serve) -> None:
    host = RefusingHost("a")
    service = serve(host)
    service.enqueue_many([work("a"), work("b")])
    settled(service)
    failed = service.get("a")
    assert failed.state is SliceState.FAILED
    assert "no worktree for a" in failed.error
    assert [assignment.assignment_id for assignment in host.submitted] == ["a@1", "b@1"]
    service.retry("a")
    settled(service, SessionState("b@1", SessionPhase.MERGED))
    assert service.get("a").state is SliceState.RUNNING
    assert host.submitted[-1].assignment_id == "a@2"


def test_a_slice_that_could_not_start_can_be_canceled(serve: Serve) -> None:
    host = RefusingHost("a")
    service = serve(host)
    service.enqueue_many([work("a"), work("b", "a")])
    settled(service)
    service.cancel("a")
    settled(service)
    assert service.get("a").state is SliceState.CANCELED
    assert service.get("b").state is SliceState.QUEUED
    assert host.asked_to_stop == []
