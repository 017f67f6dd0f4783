"""`run`: a plan, from its file to main."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import attrs
import typer

from dispatch.cli.ending import DONE, FULL, INCOMPLETE, RefusedError, flushed
from dispatch.cli.options import CapOption, Json, Plain, PlanPath, Repository, StoreUrl, named

if TYPE_CHECKING:
    from dispatch.cli.admission import Admission
    from dispatch.cli.interrupts import Gate, Interrupts
    from dispatch.cli.output import Output
    from dispatch.cli.reviews import Reviews
    from dispatch.cli.sessions import Sessions
    from dispatch.cli.watch import Outcome
    from dispatch.plans import PlanFile
    from dispatch.service import DispatchService
    from dispatch.store import AttemptRow, Store
    from dispatch.view.events import Event
    from dispatch.view.summary import Ending, Prediction, Summary
    from dispatch.views import Cap, SliceView, Snapshot
    from dispatch.weights import Weights

CLOSING_S = 30.0  #: beyond the longest grace of a slice, for merges that are under way

TAKEN_OVER = (
    "the graph was taken over by another process, which runs it now; the sessions of this one were stopped:"
    " `list` shows where it stands"
)


class Operator(Protocol):
    """Somebody who acts on a run from within the program."""

    def beside(
        self, service: DispatchService, host: Sessions, tell: Callable[[Event], None]
    ) -> contextlib.AbstractContextManager[None]:
        """Entered when the run has begun, left when it is over. `tell` shows an event among those of the run."""
        ...


@attrs.frozen
class Request:
    """What was asked for on the command line, or by a program, which may send an operator along.

    `fleet`: its sessions are turns of the fleet that the environment names. `repeatable`: who stops the run can go on
    with it later, and is told so.
    """

    plan: Path
    repository: Path
    store: str
    graph: str
    cap: int | None
    wait: bool
    take_over: bool
    plain: bool
    json: bool
    fleet: bool = False
    operator: Operator | None = None
    repeatable: bool = True


@attrs.frozen
class Start:
    """What was known when the run began: the graph before anything started, and what slices were expected to take.

    `expected` is in the unit of the weights; `began_at` in Unix seconds.
    """

    snapshot: Snapshot
    expected: Mapping[str, float]
    cap: Cap
    began_at: float


def run(
    plan: PlanPath,
    repo: Repository = Path(),
    store: StoreUrl = "",
    graph: Annotated[
        str,
        typer.Option(
            "--graph",
            metavar="NAME",
            help="The graph's name; by default the plan's, with a digest of the repository's path.",
            show_default=False,
            callback=named,
        ),
    ] = "",
    cap: CapOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until all slices are finished, for reviews that are to be merged.")
    ] = False,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="Run its sessions as turns of the fleet that the environment names.")
    ] = False,
    take_over: Annotated[bool, typer.Option("--take-over", help="Take the graph over from its present owner.")] = False,
    plain: Plain = False,
    json: Json = False,
) -> int:
    """Run a plan, or go on with it after an interruption.

    Each slice runs in a worktree of its own and is merged into main in the order of its dependencies. Exit status 0
    only if all slices of the plan have merged.
    """
    return run_plan(Request(plan, repo.resolve(), store, graph, cap, wait, take_over, plain, json, fleet))


def run_plan(request: Request) -> int:
    """The exit status of a run."""
    from dispatch.cli.interrupts import Gate, Interrupts
    from dispatch.errors import DispatchError, OwnershipLostError
    from dispatch.plans import read_plan

    plan = read_plan(request.plan)
    gate = Gate()
    interrupts = Interrupts(gate)
    with interrupts.heeded():
        try:
            summary = _run(request, plan, gate, interrupts)
        except DispatchError as error:
            if isinstance(error, OwnershipLostError) or isinstance(error.__cause__, OwnershipLostError):
                raise RefusedError(TAKEN_OVER) from error
            raise
        _print(request, summary, interrupts)
    return DONE if summary.complete else interrupts.status or INCOMPLETE


def _run(request: Request, plan: PlanFile, gate: Gate, interrupts: Interrupts) -> Summary:
    from dispatch.cli.binding import bind, bind_if_stored
    from dispatch.cli.output import output
    from dispatch.cli.places import graph_of, store_at
    from dispatch.cli.reviews import Reviews
    from dispatch.cli.sessions import sessions_of
    from dispatch.weights import LearnedWeights

    progress = output(sys.stderr if request.json else sys.stdout, plain=request.plain)
    store = store_at(request.store)
    graph = request.graph or graph_of(plan.name, request.repository)
    weights = LearnedWeights()
    patience_s = CLOSING_S + max((slice_.recipe.grace_s for slice_ in plan.slices), default=0.0)
    with (
        sessions_of(request.repository, plan.main, fleet=request.fleet) as host,
        _closed(host, gate, patience_s),
    ):
        graph_id = bind_if_stored(host, store, graph)
        with _service(request, plan, host, store, graph, gate, weights) as service:
            graph_id = graph_id or bind(host, store, graph)  # by now it is stored
            target = f"merges into {host.main} in {request.repository}{', runs on the fleet' if request.fleet else ''}"
            reviews = Reviews(request.repository, host.main, graph_id)
            start = _begin(plan, service, gate, interrupts, weights, progress, target)
            outcome = _watch(request, service, host, reviews, progress, interrupts, start, patience_s)
            host.close(patience_s)  # before the claim is given up: no session outlives it
        return _summary(request, plan, store, host, start, outcome, interrupts.name)


@contextlib.contextmanager
def _closed(host: Sessions, gate: Gate, patience_s: float) -> Iterator[None]:
    """However it is left, no session goes on."""
    try:
        yield
    finally:
        gate.shut("the run has ended")
        host.close(patience_s)


def _service(
    request: Request, plan: PlanFile, host: Sessions, store: Store, graph: str, gate: Gate, weights: Weights
) -> DispatchService:
    """A service that owns the graph, and starts nothing while the gate is shut."""
    from dispatch.capping import FixedCap
    from dispatch.cli.sessions import FLEET_PLACES
    from dispatch.service import DispatchService
    from harness import default_limits

    places = request.cap or plan.cap
    elsewhere = FixedCap(FLEET_PLACES, "places on the fleet; --cap sets another") if request.fleet else None
    service = DispatchService(
        host,
        store,
        graph,
        measures=FixedCap(places) if places else elsewhere,
        limits=[gate] if places or elsewhere else [*default_limits(request.repository), gate],
        weights=weights,
        take_over=request.take_over,
    )
    return service.start()


def _begin(
    plan: PlanFile,
    service: DispatchService,
    gate: Gate,
    interrupts: Interrupts,
    weights: Weights,
    progress: Output,
    target: str,
) -> Start:
    """Tell the service what of the plan is new; then let it start."""
    from dispatch.cli.admission import admit

    stored = service.snapshot()
    admission = admit(plan, stored.slices, stored.intents)
    if admission.slices:
        service.enqueue_many(admission.slices)
    for slice_ in admission.revised:
        service.revise(slice_)
    for slice_id in admission.failed:
        service.retry(slice_id)
    for intent in admission.intents:
        service.declare_intent(intent)
    before = service.snapshot()
    expected = {view.id: weights.base() + weights.learned(view.slice.recipe.kind) for view in before.slices}
    began_at = time.time()
    gate.open()
    interrupts.defer()  # sessions begin from here on, and only a run that is watched ends them as it was asked to
    service.remeasure()
    cap = service.snapshot().cap
    _announce(plan, admission, before, cap, progress, target)
    return Start(before, expected, cap, began_at)


def _announce(plan: PlanFile, admission: Admission, before: Snapshot, cap: Cap, progress: Output, target: str) -> None:
    from dispatch.text import listed
    from dispatch.view.text import clean, count, folded

    new = f"{count(len(plan.slices), 'slice')}, {len(admission.slices):,} new"
    lines = [f"graph {before.graph} in {before.store.url}: {new}", target, cap.short]
    if admission.revised:
        lines.append(f"mended, and queued: {listed([slice_.id for slice_ in admission.revised], 5)}")
    if admission.kept:
        lines.append(f"finished already, and kept as they were stored: {listed(admission.kept, 5)}")
    for words in lines:
        progress.write(folded((), clean(words), indent=2, cells=progress.width))


def _watch(
    request: Request,
    service: DispatchService,
    host: Sessions,
    reviews: Reviews,
    progress: Output,
    interrupts: Interrupts,
    start: Start,
    patience_s: float,
) -> Outcome:
    """The run itself, until it is over."""
    from dispatch.cli.screen import screen_on
    from dispatch.cli.watch import LEAVING, STOPPING, Notices, Watch

    notices = Notices()
    root = logging.getLogger()
    root.addHandler(notices)
    screen = screen_on(progress)
    operator = request.operator
    try:
        watch = Watch(
            service,
            host,
            screen,
            interrupts,
            notices,
            reviews,
            start.snapshot,
            start.began_at,
            stopping=LEAVING if request.fleet else STOPPING,
        )
        with operator.beside(service, host, notices.tell) if operator else contextlib.nullcontext():
            return watch.until_over(wait=request.wait, patience_s=patience_s)
    finally:
        screen.close()
        root.removeHandler(notices)


def _summary(
    request: Request,
    plan: PlanFile,
    store: Store,
    host: Sessions,
    start: Start,
    outcome: Outcome,
    interrupted: str,
) -> Summary:
    from dispatch.cli.choice import reaching
    from dispatch.view.summary import Summary, ending_of, peak_of

    ended_at = outcome.snapshot.taken_at
    stored = store.peek(outcome.snapshot.graph)[0]
    assert stored.graph is not None, "a graph that was run has been stored"
    of_slice: dict[str, list[AttemptRow]] = {}
    for row in stored.attempts:
        of_slice.setdefault(row.slice_id, []).append(row)
    views = {view.id: view for view in outcome.snapshot.slices}
    endings = tuple(
        ending_of(
            views[slice_.id],
            of_slice.get(slice_.id, ()),
            outcome.standing,
            start.began_at,
            ended_at,
            _log_path(host, stored.graph.graph_id, views[slice_.id]),
        )
        for slice_ in plan.slices
    )
    sessions, peak = peak_of(stored.attempts, start.began_at, ended_at)
    return Summary(
        graph=outcome.snapshot.graph,
        store=store.url,
        plan=str(plan.path),
        endings=endings,
        others=len(views) - len(endings),
        wall_s=ended_at - start.began_at,
        sessions=sessions,
        peak=peak,
        cap=start.cap,
        began_at=start.began_at,
        interrupted=interrupted,
        prediction=_prediction(start, endings),
        repeatable=request.repeatable,
        reach=reaching(store, outcome.snapshot.graph, request.repository),
    )


def _log_path(host: Sessions, graph_id: str, view: SliceView) -> str:
    """Where the output of the slice's last attempt is; empty if there is none."""
    path = host.log_path(graph_id, view.id, view.attempt)
    return str(path) if view.attempt and path.exists() else ""


def _prediction(start: Start, endings: Sequence[Ending]) -> Prediction | None:
    """What the schedule looked like on paper when the run began; None if nothing merged by which to scale it."""
    from dispatch.forecast import forecast
    from dispatch.slice import SliceState
    from dispatch.view.standing import standing
    from dispatch.view.summary import MERGED, Prediction

    blocked = standing(start.snapshot).blocked
    views = [view for view in start.snapshot.slices if view.state is SliceState.QUEUED and view.id not in blocked]
    awaited = {view.id for view in views}
    merged = [end for end in endings if end.outcome == MERGED and end.id in awaited and end.ran_s]
    if not merged:
        return None
    scale = sum(ending.ran_s for ending in merged) / sum(start.expected[ending.id] for ending in merged)
    on_paper = forecast(
        [view.slice for view in views],
        max(1, start.cap.places),
        expected={view.id: start.expected[view.id] * scale for view in views},
        urgency={view.id: view.priority.urgency for view in views if view.priority.urgency},
    )
    schedule = on_paper.schedule
    return Prediction(schedule.intervals, max(1, start.cap.places), schedule.makespan)


def _print(request: Request, summary: Summary, interrupts: Interrupts) -> None:
    """The summary; after a signal perhaps to a terminal that is gone."""
    from dispatch.cli.output import output, print_document
    from dispatch.view.summary import summary_document, summary_lines

    out = output(plain=request.plain)
    try:
        if request.json:
            print_document(summary_document(summary))
        else:
            out.write(summary_lines(summary, out.width, out.chart_width, out.glyphs))
    except OSError as error:
        if not interrupts.count or error.errno in FULL:
            raise
        flushed()
