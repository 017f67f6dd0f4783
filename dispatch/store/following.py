"""Following a graph from elsewhere: read only, on one connection, while its owner notices nothing.

A *hint* says that something in the store was written: cheap, sometimes false, and allowed to get lost. The *position*
is the truth: how far the graph's log goes, and who owns the graph. It is asked for after each hint, and once a second
without.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import attrs

from dispatch.errors import StoreUnavailableError
from dispatch.store.port import Claim, Contents

Answer = TypeVar("Answer")

ASK_S = 1.0  #: between two looks at the position without a hint: an owner that dies writes nothing


@attrs.frozen
class Position:
    """What differs if a graph has changed: the last entry of its log, the epoch of its claim, whether that is live."""

    last: int = 0
    epoch: int = 0
    owned: bool = False


class Look(Protocol):
    """An adapter's part: a connection that only reads one graph. Raises what `Store.peek` raises."""

    def position(self) -> Position:
        """The present one."""
        ...

    def read(self) -> tuple[Position, Contents, Claim | None]:
        """The graph, its live claim and the position, all of one moment."""
        ...

    def pause(self, seconds: float) -> None:
        """Until there is a hint, at most so many seconds."""
        ...

    def close(self) -> None: ...


class Follower:
    """Waits for changes of one graph and reads it. For one thread; close it, or use it as a context manager.

    After `StoreUnavailableError` it may be asked again: it connects anew. `tests/conformance/test_following.py` defines
    it for every store.
    """

    def __init__(self, look: Callable[[], Look]) -> None:
        self._open = look
        self._look: Look | None = None
        self._seen: Position | None = None

    def wait(self, timeout_s: float) -> bool:
        """True as soon as the graph is not as it was last read, at once if it never was; False after `timeout_s`."""
        return self._asked(lambda look: self._wait(look, time.monotonic() + timeout_s))

    def read(self) -> tuple[Contents, Claim | None]:
        """The whole graph as it stands, and its live claim, as `Store.peek` gives them."""
        self._seen, contents, claim = self._asked(lambda look: look.read())
        return contents, claim

    def close(self) -> None:
        look, self._look = self._look, None
        if look is not None:
            look.close()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, look: Look, deadline: float) -> bool:
        while look.position() == self._seen:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            look.pause(min(left, ASK_S))
        return True

    def _asked(self, question: Callable[[Look], Answer]) -> Answer:
        if self._look is None:
            self._look = self._open()
        try:
            return question(self._look)
        except StoreUnavailableError:
            self.close()
            raise


@runtime_checkable
class CanBeFollowed(Protocol):
    """A store whose graphs can be followed while another process runs them."""

    def follow(self, graph: str) -> Follower:
        """Nothing is opened before it is asked."""
        ...
