"""`cancel`, `retry`, `merged`, `hold`, `release`: the operator's commands, on a stored graph that no process runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dispatch.cli.options import GraphName, GraphRepository, Reason, SliceId, StoreUrl

if TYPE_CHECKING:
    from dispatch.service import DispatchService
    from harness import Assignment


class NoSessions:
    """A host that opens no session: the service behind it keeps the graph, and starts nothing."""

    async def submit(self, assignment: Assignment) -> None:
        raise RuntimeError(f"{assignment.assignment_id} was launched by a command that launches nothing")

    async def send(self, assignment_id: str, message: str) -> str:
        raise RuntimeError(f"{assignment_id} has no session here")

    async def cancel(self, assignment_id: str) -> None:
        """There is none."""


def cancel(slice_id: SliceId, repo: GraphRepository = None, store: StoreUrl = "", graph: GraphName = "") -> None:
    """Cancel a slice for good. What depends on it will not start."""
    with _owned(slice_id, repo, store, graph) as service:
        service.cancel(slice_id)


def retry(slice_id: SliceId, repo: GraphRepository = None, store: StoreUrl = "", graph: GraphName = "") -> None:
    """Queue a slice again that has failed or is in review. `run` then starts it."""
    from dispatch.cli.ending import RefusedError
    from dispatch.errors import SliceFinishedError
    from dispatch.slice import SliceState

    with _owned(slice_id, repo, store, graph) as service:
        try:
            service.retry(slice_id)
        except SliceFinishedError as finished:
            if finished.state != SliceState.CANCELED.value:
                raise
            raise RefusedError(f"{slice_id!r} is canceled, which is final; give the work a new id") from finished


def merged(
    slice_id: SliceId,
    pull_request: Annotated[
        str,
        typer.Option("--pull-request", metavar="URL", help="By which it was merged.", show_default=False),
    ] = "",
    repo: GraphRepository = None,
    store: StoreUrl = "",
    graph: GraphName = "",
) -> None:
    """Say that a slice's work is on main, as after its review. What depends on it may then start."""
    with _owned(slice_id, repo, store, graph) as service:
        service.mark_merged(slice_id, pull_request)


def hold(
    slice_id: SliceId, reason: Reason = "", repo: GraphRepository = None, store: StoreUrl = "", graph: GraphName = ""
) -> None:
    """Keep a slice from starting until it is released."""
    with _owned(slice_id, repo, store, graph) as service:
        service.hold(slice_id, reason)


def release(
    slice_id: SliceId, reason: Reason = "", repo: GraphRepository = None, store: StoreUrl = "", graph: GraphName = ""
) -> None:
    """Hold a slice no more."""
    import sys

    with _owned(slice_id, repo, store, graph) as service:
        held = service.get(slice_id).hold
        service.release(slice_id, reason)
        if not held:
            sys.stdout.write(f"{slice_id} wasn't held\n")


@contextlib.contextmanager
def _owned(slice_id: str, repository: Path | None, url: str, name: str) -> Iterator[DispatchService]:
    """A service for the graph that is meant, which starts nothing; afterwards the slice's state is said."""
    import sys

    from dispatch.capping import FixedCap
    from dispatch.cli.choice import Choice
    from dispatch.cli.ending import RefusedError
    from dispatch.cli.interrupts import Gate
    from dispatch.cli.places import known_slice
    from dispatch.errors import OwnedElsewhereError
    from dispatch.service import DispatchService
    from dispatch.view.text import clean, hold_words

    choice = Choice.at(url, repository)
    found = choice.graph(name, changing=True)
    known_slice(found.machine.graph.nodes, found.name, slice_id)
    try:
        service = DispatchService(NoSessions(), choice.store, found.name, measures=FixedCap(1), limits=[Gate()]).start()
    except OwnedElsewhereError as owned:
        raise RefusedError(
            f"graph {found.name!r} is run by {owned.owner} since {owned.since};"
            " stop it there with ctrl-C, then try again"
        ) from owned
    with service:
        yield service
        view = service.get(slice_id)
        held = f", {clean(hold_words(view.hold))}" if view.hold else ""
        sys.stdout.write(f"{view.id} is {view.state.value.replace('_', ' ')}{held}\n")
