"""Everything the service refuses, by name.

Each error is named for what happened, carries its evidence as attributes, and its message says what to do next. A
refused command has changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence


class DispatchError(Exception):
    """The base of all of them."""


class InvalidSliceError(DispatchError):
    """A slice has a field outside its grammar."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class InvalidIntentError(DispatchError):
    """An intent has a field outside its grammar."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class InvalidTextError(DispatchError):
    """A command brings a text that not every store can hold."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class InvalidCommandError(DispatchError):
    """The slice's state has no room for the command."""

    def __init__(self, command: str, slice_id: str, state: str) -> None:
        super().__init__(f"cannot {command} {slice_id!r}: it is {state}")
        self.command, self.slice_id, self.state = command, slice_id, state


class SliceExistsError(DispatchError):
    """The id is taken, perhaps by a finished slice."""

    def __init__(self, slice_id: str) -> None:
        super().__init__(f"slice {slice_id!r} exists already; ids are never used twice")
        self.slice_id = slice_id


class UnknownSliceError(DispatchError):
    """No slice has that id."""

    def __init__(self, slice_id: str, named_by: str = "") -> None:
        super().__init__(f"no slice {slice_id!r}" + (f", which {named_by} names; enqueue it first" if named_by else ""))
        self.slice_id, self.named_by = slice_id, named_by


class UnknownIntentError(DispatchError):
    """No intent of that id is registered."""

    def __init__(self, intent_id: str) -> None:
        super().__init__(f"no intent {intent_id!r} is registered; declare it first")
        self.intent_id = intent_id


class CycleError(DispatchError):
    """The edge would close a cycle; `.cycle` spells it out, first and last the same."""

    def __init__(self, cycle: Sequence[str]) -> None:
        super().__init__("depends_on would run in a circle: " + " -> ".join(cycle))
        self.cycle = tuple(cycle)


class SliceFinishedError(DispatchError):
    """The slice is merged or canceled (or, as a required_by, under way): too late."""

    def __init__(self, slice_id: str, state: str, wanted: str) -> None:
        super().__init__(f"cannot {wanted} {slice_id!r}: it is {state}")
        self.slice_id, self.state = slice_id, state


class NotRunningError(DispatchError):
    """The service isn't started, was stopped, or its owner crashed (then the cause is chained)."""


class StoreError(DispatchError):
    """The store can't be used as it is: no database, a newer version, no permission. The message says the way out."""


class StoreUnavailableError(DispatchError):
    """The store is out of reach or full for now. The command may or may not have happened; sending it again is safe."""


class OwnedElsewhereError(DispatchError):
    """Another process owns the graph."""

    def __init__(self, graph: str, since: str, owner: str) -> None:
        super().__init__(
            f"graph {graph!r} is owned by another process ({owner}) since {since}; "
            "stop that one, or take over with --take-over"
        )
        self.graph, self.since, self.owner = graph, since, owner


class OwnershipLostError(DispatchError):
    """This owner's claim ended and another took the graph over: nothing was written, and nothing will be."""


class TimedOutError(DispatchError, TimeoutError):
    """No answer came in time, though owner and store are well. The command may or may not have happened; sending it
    again is safe."""
