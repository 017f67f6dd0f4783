"""When a graph may be claimed. One graph has one owner: a row with an epoch that only grows, and an expiry.

The epoch decides who may write: every write says which one it belongs to. The expiry decides only how long somebody
else must wait: an owner that was paused past it, but that nobody followed, goes on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import attrs

from dispatch.errors import OwnedElsewhereError, OwnershipLostError, StoreError
from dispatch.store.port import Claim
from dispatch.store.process import Owner, Presence

CLAIM_S = 10.0  #: a claim that isn't renewed runs out after so many seconds
RENEW_S = 3.0  #: an owner renews so often


@attrs.frozen
class Held:
    """A claim as stored. Times are Unix seconds by the store's clock; `expires_at` is 0 once it was given up."""

    graph: str
    epoch: int
    owner: Owner
    since: float
    expires_at: float

    @property
    def claim(self) -> Claim:
        return Claim(self.graph, self.epoch, _moment(self.since))

    def is_same(self, other: Held | None) -> bool:
        """Whether both are one ownership, however often it was renewed."""
        return other is not None and (self.epoch, self.owner.token) == (other.epoch, other.owner.token)


@attrs.frozen
class Wait:
    """The claim in the way may be a dead owner's: look again when it has run out, `left_s` seconds from now."""

    held: Held
    left_s: float


def hindrance(
    held: Held | None, now: float, presence: Callable[[Owner], Presence], outlasted: Held | None = None
) -> Wait | None:
    """What keeps the graph from being claimed at `now`; None if nothing does.

    Raises `OwnedElsewhereError` if its owner is known to live. `presence` is asked only where it matters. `outlasted`
    is a claim that was watched for `CLAIM_S` without being renewed: it is over whatever its expiry says, which may
    have been set by a clock that ran ahead.
    """
    if held is None or held.expires_at <= now or held == outlasted:
        return None
    match presence(held.owner):
        case Presence.GONE:
            return None
        case Presence.ALIVE:
            raise _owned_elsewhere(held)
        case Presence.UNKNOWN:
            return Wait(held, held.expires_at - now)


def succession(graph: str, held: Held | None, owner: Owner, now: float) -> Held:
    """The claim that follows `held`."""
    return Held(graph, held.epoch + 1 if held is not None else 1, owner, now, now + CLAIM_S)


def live_claim(held: Held | None, now: float, presence: Callable[[Owner], Presence]) -> Claim | None:
    """`held` as others see it: None if it has run out, was given up, or its process is gone."""
    if held is None or held.expires_at <= now or presence(held.owner) is Presence.GONE:
        return None
    return held.claim


def claim_in_turn(attempt: Callable[[Held | None], Held | Wait], sleep: Callable[[float], None]) -> Held:
    """Repeat `attempt(outlasted)` until it claims, for `CLAIM_S` at the most.

    A claim in the way that is renewed meanwhile has a living owner: refused. An owner renews every `RENEW_S`, so
    looking that often tells a living one long before its claim would run out.
    """
    outcome, watched, waited_s = attempt(None), None, 0.0
    while isinstance(outcome, Wait):
        if watched is not None and outcome.held != watched:
            raise _owned_elsewhere(outcome.held)
        watched, pause_s = outcome.held, min(outcome.left_s, RENEW_S, CLAIM_S - waited_s)
        sleep(pause_s)
        waited_s += pause_s
        outcome = attempt(watched if waited_s >= CLAIM_S else None)
    return outcome


def lost(graph: str) -> OwnershipLostError:
    return OwnershipLostError(f"graph {graph!r} was taken over by another process; nothing was written; start again")


def unclaimed() -> OwnershipLostError:
    return OwnershipLostError("no graph is claimed here: the claim was lost, given up or never made; claim it first")


def serves_another(graph: str) -> StoreError:
    return StoreError(f"this store serves the owner of graph {graph!r}; give each owner a store of its own")


def _owned_elsewhere(held: Held) -> OwnedElsewhereError:
    return OwnedElsewhereError(held.graph, f"{_moment(held.since):%Y-%m-%d %H:%M:%S} UTC", f"pid {held.owner.pid}")


def _moment(unix_s: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(unix_s, dt.UTC)
