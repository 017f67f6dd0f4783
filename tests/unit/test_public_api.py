"""What the three packages export: adding to it is a decision, and taking from it breaks somebody's program."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import dispatch
import harness
import listsched

EXPORTS: dict[ModuleType, list[str]] = {
    dispatch: [
        "CycleError",
        "DispatchError",
        "DispatchService",
        "Explanation",
        "FixedCap",
        "Intent",
        "InvalidCommandError",
        "InvalidIntentError",
        "InvalidSliceError",
        "InvalidTextError",
        "LearnedWeights",
        "MemoryStore",
        "Merge",
        "NotRunningError",
        "OwnedElsewhereError",
        "OwnershipLostError",
        "PriorityBreakdown",
        "Reason",
        "ReasonCode",
        "Recipe",
        "RouteDecision",
        "RouteResult",
        "Slice",
        "SliceExistsError",
        "SliceFinishedError",
        "SliceState",
        "SliceView",
        "Snapshot",
        "SqliteStore",
        "Store",
        "StoreError",
        "StoreUnavailableError",
        "TimedOutError",
        "TouchSet",
        "UnitWeights",
        "UnknownIntentError",
        "UnknownSliceError",
        "Urgency",
        "Weights",
    ],
    harness: [
        "AdoptingHost",
        "Assignment",
        "DiskLimit",
        "FencedHost",
        "HostClosedError",
        "HostMeasures",
        "Limit",
        "LimitReading",
        "LocalSessionHost",
        "MemoryLimit",
        "PromptHost",
        "Recipe",
        "ReportingHost",
        "RepositoryError",
        "SessionHost",
        "SessionPhase",
        "SessionState",
        "default_limits",
        "worker_cap",
    ],
    listsched: [
        "Plan",
        "PlanError",
        "Ranked",
        "Schedule",
        "UpwardRanks",
        "Waiting",
        "critical_path",
        "graham_bound",
        "lower_bound",
        "pick",
        "simulate",
        "upward_rank",
    ],
}


@pytest.mark.parametrize("package", EXPORTS, ids=lambda package: package.__name__)
def test_the_public_names_are_these(package: ModuleType) -> None:
    assert package.__all__ == EXPORTS[package]
    assert package.__all__ == sorted(package.__all__)


@pytest.mark.parametrize("package", EXPORTS, ids=lambda package: package.__name__)
def test_every_public_name_is_there_and_says_what_it_is(package: ModuleType) -> None:
    for name in package.__all__:
        assert inspect.getdoc(getattr(package, name)), f"{package.__name__}.{name} has no docstring"


@pytest.mark.parametrize("package", EXPORTS, ids=lambda package: package.__name__)
def test_the_packages_are_typed(package: ModuleType) -> None:
    assert package.__file__ is not None
    assert (Path(package.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize("error", [name for name in EXPORTS[dispatch] if name.endswith("Error")])
def test_every_refusal_is_a_dispatch_error(error: str) -> None:
    assert issubclass(getattr(dispatch, error), dispatch.DispatchError)


CALLS = [
    *("cancel", "check", "declare_intent", "enqueue", "enqueue_many", "explain", "frontier", "get", "hold", "list"),
    *("mark_merged", "observe_session", "pause", "release", "remeasure", "reprioritize", "resume", "retry"),
    *("revise", "route", "settle", "snapshot", "start", "stop", "wait_for_change"),
]


def test_the_services_calls_are_these() -> None:
    methods = inspect.getmembers(dispatch.DispatchService, inspect.isfunction)
    assert sorted(name for name, _ in methods if not name.startswith("_")) == CALLS


def test_the_services_parameters_are_these() -> None:
    parameters = list(inspect.signature(dispatch.DispatchService).parameters)
    positional = ["sessions", "store", "graph", "measures", "limits", "weights", "clock"]
    assert parameters == [*positional, "take_over", "checks", "history_days"]


def test_importing_starts_nothing() -> None:
    """No thread, no event loop, and nothing of the command line."""
    program = (
        "import sys, threading, dispatch; "
        "assert threading.active_count() == 1; "
        "print(*sorted({'typer', 'rich', 'trio', 'psycopg'} & sys.modules.keys()))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == []
