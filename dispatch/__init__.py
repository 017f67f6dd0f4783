"""The scheduler for people who run many coding agents at once: a slice graph, list-scheduled onto sessions.

The names are loaded when they are first used, so that a program that starts, such as the command line, need not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dispatch.capping import FixedCap
    from dispatch.errors import (
        CycleError,
        DispatchError,
        InvalidCommandError,
        InvalidIntentError,
        InvalidSliceError,
        InvalidTextError,
        NotRunningError,
        OwnedElsewhereError,
        OwnershipLostError,
        SliceExistsError,
        SliceFinishedError,
        StoreError,
        StoreUnavailableError,
        TimedOutError,
        UnknownIntentError,
        UnknownSliceError,
    )
    from dispatch.intent import Intent, Urgency
    from dispatch.service import DispatchService
    from dispatch.slice import Slice, SliceState, TouchSet
    from dispatch.store import MemoryStore, SqliteStore, Store
    from dispatch.views import (
        Explanation,
        Merge,
        PriorityBreakdown,
        Reason,
        ReasonCode,
        RouteDecision,
        RouteResult,
        SliceView,
        Snapshot,
    )
    from dispatch.weights import LearnedWeights, UnitWeights, Weights
    from harness import Recipe

__all__ = [
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
]

_HOMES = (  # where the names are looked for, in this order
    "dispatch.errors",
    "dispatch.intent",
    "dispatch.slice",
    "dispatch.views",
    "dispatch.weights",
    "dispatch.capping",
    "dispatch.store",
    "dispatch.service",
    "harness",
)

if not TYPE_CHECKING:  # else a name that isn't there would pass for one of any type

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in __all__:
            for home in map(import_module, _HOMES):
                if name in vars(home):
                    globals()[name] = vars(home)[name]
                    return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
