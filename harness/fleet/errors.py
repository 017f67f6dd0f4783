"""What the fleet refuses, by name. Each message is one line that says what to do."""

from __future__ import annotations

from collections.abc import Sequence


class FleetError(Exception):
    """The base of all of them."""


class InvalidTurnError(FleetError):
    """A field of a submission or an envelope is outside its grammar."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class InvalidSettingError(FleetError):
    """A setting has a value it can't have. `.name` is the environment variable."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name, self.problem = name, problem


class NotReadyError(FleetError):
    """A worker can't start. Each of `.problems` is a line that names what is to be set right."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class UnknownItemError(FleetError):
    """No WorkItem of that tenant has that id."""

    def __init__(self, item_id: str) -> None:
        super().__init__(f"there is no work item {item_id!r}; `slice-dispatch jobs list` shows those that there are")
        self.item_id = item_id


class ItemExistsError(FleetError):
    """The id is another piece of work's: submitted before, with other contents."""

    def __init__(self, item_id: str, field: str) -> None:
        super().__init__(f"work item {item_id!r} was submitted before with another {field}; choose another id")
        self.item_id, self.field = item_id, field


#: A state in words, and what else there is to say of what was wanted.
_STANDS = {
    "submitted": "it waits for others",
    "ready": "it waits for a worker",
    "leased": "a worker has taken it",
    "running": "it is running",
    "succeeded": "it has succeeded",
    "failed": "it has failed",
    "cancelled": "it was cancelled",
    "dead_letter": "it is a dead letter",
}
_ADVICE = {"requeue": "; only a dead letter is tried again. Submit the work anew, by another id"}


class WrongStateError(FleetError):
    """The item's state has no room for what was asked. `.state` is its name."""

    def __init__(self, wanted: str, item_id: str, state: str) -> None:
        stands, advice = _STANDS.get(state, f"it is {state}"), _ADVICE.get(wanted, "")
        super().__init__(f"cannot {wanted} work item {item_id!r}: {stands}{advice}")
        self.wanted, self.item_id, self.state = wanted, item_id, state


class NotDueError(FleetError):
    """The item waits for its next attempt, `.wait_s` seconds from now."""

    def __init__(self, item_id: str, wait_s: float) -> None:
        super().__init__(f"work item {item_id!r} is not due for another {wait_s:.1f} s")
        self.item_id, self.wait_s = item_id, wait_s


class HeldElsewhereError(FleetError):
    """A live lease is in the way: on the item, or on another of its session. It ends in `.wait_s` at the latest."""

    def __init__(self, item_id: str, holder_id: str, wait_s: float) -> None:
        what = "it is being worked on" if item_id == holder_id else f"its session works on {holder_id!r}"
        super().__init__(f"cannot claim work item {item_id!r}: {what}, leased for another {wait_s:.1f} s")
        self.item_id, self.holder_id, self.wait_s = item_id, holder_id, wait_s


class LeaseLostError(FleetError):
    """The lease is not the item's any more: nothing was changed, and nothing may be done in its name."""

    def __init__(self, item_id: str, epoch: int) -> None:
        super().__init__(f"the lease on work item {item_id!r} (epoch {epoch}) was lost; stop, and start nothing more")
        self.item_id, self.epoch = item_id, epoch


class StopRequestedError(FleetError):
    """The turn is to stop here, and to keep what there is for whoever goes on."""

    def __init__(self, item_id: str, cause: str) -> None:
        super().__init__(f"work item {item_id!r} is to be stopped: {cause}")
        self.item_id, self.cause = item_id, cause


class CancelRequestedError(StopRequestedError):
    """Its work is not wanted any more."""


class DrainRequestedError(StopRequestedError):
    """Its worker is about to end; another one will go on."""


class QueueFullError(FleetError):
    """Admission was refused: so many deliveries as may be are unacknowledged."""

    def __init__(self, depth: int, limit: int) -> None:
        super().__init__(f"the queue holds {depth:,} turns and may hold {limit:,}; try again when some have ended")
        self.depth, self.limit = depth, limit


class StaleReceiptError(FleetError):
    """The delivery was handed to somebody else meanwhile: it can't be acknowledged or given back with this receipt."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the delivery of {job_id!r} is another worker's by now")
        self.job_id = job_id


class FleetUnavailableError(FleetError):
    """Authority or transport is out of reach for now. What was asked may or may not have happened; asking again is
    safe."""


class FleetBrokenError(FleetError):
    """Authority or transport can't be used as it is. The message says the way out."""
