"""What runs a turn, by the kind of it, and what its end means."""

from __future__ import annotations

import importlib
import logging
import random
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TypeAlias

from harness.fleet.commands import Defer, Fail, Holding, Retry, Stop, Succeed
from harness.fleet.errors import (
    CancelRequestedError,
    DrainRequestedError,
    FleetUnavailableError,
    InvalidSettingError,
    LeaseLostError,
)
from harness.fleet.lease import WorkItemLeaseGuard

logger = logging.getLogger(__name__)

SHORTEST_DELAY_S, LONGEST_DELAY_S = 1.0, 30 * 86_400.0
ENTRY_POINTS = "slice_dispatch.executors"  #: the group in which a distribution names its executors, by kind

#: Called with the payload and the guard. What it returns is the result; what it raises, see `ending_of`.
Executor: TypeAlias = Callable[[bytes, WorkItemLeaseGuard], str | None]


class TurnFailedError(Exception):
    """Raised by an executor: the turn has failed, and another attempt would not mend it. The text is the cause."""


class TryAgainError(Exception):
    """Raised by an executor: this attempt has failed, and another may do better. The text is the cause."""


class NotNowError(Exception):
    """Raised by an executor: give the turn back unharmed, for `delay_s` seconds, at least one. The text says why."""

    def __init__(self, cause: str, delay_s: float) -> None:
        super().__init__(cause)
        self.delay_s = delay_s


def run(executor: Executor, payload: bytes, guard: WorkItemLeaseGuard) -> Holding | None:
    """The turn, and the command that ends it; None if nothing may be said any more, since the lease is another's.

    What is kept of an unexpected exception is its type alone: its text may hold paths and names.
    """
    lease = guard.lease
    try:
        result: object = executor(payload, guard)
    except LeaseLostError:
        return None
    except CancelRequestedError as asked:
        return Stop(lease, asked.cause)
    except TurnFailedError as failed:
        return Fail(lease, _cause(failed))
    except TryAgainError as failed:
        return Retry(lease, _cause(failed), random.random())
    except NotNowError as deferred:
        return Defer(lease, _cause(deferred), delay_of(deferred))
    except DrainRequestedError as asked:
        return Defer(lease, asked.cause)
    except FleetUnavailableError:
        logger.exception("work item %r could not be guarded", guard.item.id)
        return Retry(lease, "its authority was out of reach when an effect was to be guarded", random.random())
    except BaseException as error:
        logger.exception("the executor of kind %r failed", guard.item.kind)
        return Retry(lease, f"its executor raised {type(error).__name__}; see the worker's log", random.random())
    if result is None or isinstance(result, str):
        return Succeed(lease, result or "")
    return Fail(lease, f"its executor returned {type(result).__name__}; it may return text, or nothing")


def _cause(raised: Exception) -> str:
    """Its text; if it has none, that it was raised, and what."""
    return str(raised).strip() or f"its executor raised {type(raised).__name__}, and gave no cause"


def delay_of(deferred: NotNowError) -> float:
    """For how long the turn is given back: a moment at least, whatever the executor said, so that nothing spins."""
    delay_s = deferred.delay_s
    return (
        delay_s
        if isinstance(delay_s, (int, float)) and SHORTEST_DELAY_S <= delay_s < LONGEST_DELAY_S
        else SHORTEST_DELAY_S
    )


def load_executors(named: Mapping[str, str]) -> dict[str, Executor]:
    """By kind: installed ones, and those given as `module:callable`. Raises `InvalidSettingError`."""
    executors = {point.name: _loaded(point.name, point.value) for point in entry_points(group=ENTRY_POINTS)}
    return executors | {kind: _loaded(kind, place) for kind, place in named.items()}


def _loaded(kind: str, place: str) -> Executor:
    """Whatever a stranger's module raises when it is imported, it is told in one line; its text may hold paths."""
    module, _, name = place.partition(":")
    if not (module and name):
        raise InvalidSettingError(f"executor of {kind!r}", f"{place!r} names no callable; write module:callable")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        hint = "; put its folder on PYTHONPATH" if error.name == module.partition(".")[0] else ""
        raise InvalidSettingError(f"executor of {kind!r}", f"there is no module {error.name!r}{hint}") from error
    except (AttributeError, ValueError) as error:
        raise InvalidSettingError(f"executor of {kind!r}", f"{place!r} can't be loaded: {error}") from error
    except (Exception, SystemExit) as error:
        problem = f"importing {module!r} raised {type(error).__name__}; see: python -c 'import {module}'"
        raise InvalidSettingError(f"executor of {kind!r}", problem) from error
    if not callable(found):
        raise InvalidSettingError(f"executor of {kind!r}", f"{place!r} is not callable; write module:callable")
    return found
