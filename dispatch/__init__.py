"""The scheduler for people who run many coding agents at once: a slice graph, list-scheduled onto sessions."""

from dispatch.capping import FixedCap
from dispatch.errors import (
    CycleError,
    DispatchError,
    InvalidCommandError,
    InvalidIntentError,
    InvalidSliceError,
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
