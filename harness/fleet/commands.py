"""What changes a WorkItem: a closed set of commands. What each does is `lifecycle.step`'s to say."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from harness.fleet.work_item import Lease, Submission


@attrs.frozen
class Submit:
    """Again with the same contents: no change. `unmet`: how many of those it depends on have not succeeded."""

    submission: Submission
    unmet: int = 0


@attrs.frozen
class Withdraw:
    """Take a submission back whose delivery was refused. The item vanishes, as if it had never been; if it has begun
    to live (a delivery, a claim), it stays; if others wait for it, it is cancelled, and they are."""

    item_id: str
    tenant: str


@attrs.frozen
class Deliver:
    """A delivery of it was admitted. No change if it was claimed since it had the `epoch`: then that delivery is used
    up, and if it is ready again it needs another. None: whatever its epoch."""

    item_id: str
    tenant: str
    epoch: int | None = None


@attrs.frozen
class Hand:
    """A pump sees to its delivery from now on, for a while."""

    item_id: str
    tenant: str


@attrs.frozen
class Release:
    """All it depends on has succeeded."""

    item_id: str
    tenant: str


@attrs.frozen
class Claim:
    """Lease it to `owner` for `ttl_s` seconds; with `starts`, the turn begins at once (see `Start`).

    The ledger fills in the rest: `token` is the next fencing token; `session_holder` another item of its session that
    is held, and `session_wait_s` for how long yet.
    """

    item_id: str
    tenant: str
    owner: str
    ttl_s: float
    starts: bool = False
    token: int = 0
    session_holder: str = ""
    session_wait_s: float = 0.0


@attrs.frozen
class Start:
    """The turn begins: an attempt is counted."""

    lease: Lease


@attrs.frozen
class Renew:
    """Hold it for `ttl_s` from now."""

    lease: Lease
    ttl_s: float


@attrs.frozen
class Checkpoint:
    """What the next attempt should know if this one ends here."""

    lease: Lease
    text: str


@attrs.frozen
class Succeed:
    """The turn is done."""

    lease: Lease
    result: str = ""


@attrs.frozen
class Fail:
    """It ended in a way that another attempt would not mend."""

    lease: Lease
    cause: str


@attrs.frozen
class Retry:
    """It ended badly: another attempt, after a pause. `jitter`, from 0 to 1, spreads those that failed together."""

    lease: Lease
    cause: str
    jitter: float = 0.0


@attrs.frozen
class Defer:
    """It is given back unharmed, not to be tried for `delay_s` seconds; no failure."""

    lease: Lease
    cause: str
    delay_s: float = 0.0


@attrs.frozen
class Stop:
    """It stopped because it was asked to, with `checkpoint` for whoever goes on."""

    lease: Lease
    cause: str = ""
    checkpoint: str | None = None


@attrs.frozen
class Cancel:
    """It is not wanted any more."""

    item_id: str
    tenant: str
    cause: str


@attrs.frozen
class Recover:
    """Put in order what time has overtaken: a lease that ran out, a deadline that passed before anybody held it. Else,
    no change."""

    item_id: str
    tenant: str
    jitter: float = 0.0


@attrs.frozen
class Requeue:
    """A dead letter is to be tried again, with its failures forgiven."""

    item_id: str
    tenant: str


Holding: TypeAlias = Start | Renew | Checkpoint | Succeed | Fail | Retry | Defer | Stop  #: in the name of a lease
Command: TypeAlias = Submit | Withdraw | Deliver | Hand | Release | Claim | Cancel | Recover | Requeue | Holding


def subject(command: Command) -> tuple[str, str]:
    """The tenant and the id of the item that a command is about."""
    match command:
        case Submit(submission):
            return submission.tenant, submission.id
        case Start() | Renew() | Checkpoint() | Succeed() | Fail() | Retry() | Defer() | Stop():
            return command.lease.tenant, command.lease.item_id
        case _:
            return command.tenant, command.item_id
