"""The service's calls for tasks: awaitable, under asyncio and trio alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import anyio

from dispatch import commands as c
from dispatch.calls import DEFAULT_TIMEOUT_S, Deadline, Line
from dispatch.commands import Proof
from dispatch.intent import Intent
from dispatch.machine import Unproven
from dispatch.owner import Settle
from dispatch.slice import Slice
from dispatch.views import Explanation, Merge, RouteResult, SliceView, Snapshot
from harness import SessionState


class AwaitableCalls:
    """`DispatchService`'s calls, each documented there. A cancelled call may or may not have happened."""

    def __init__(self, line: Line, prove: Callable[[Intent], Awaitable[Proof]]) -> None:
        self._line, self._prove = line, prove

    async def enqueue(self, slice: Slice, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        await self._line.ask_async(c.Enqueue((slice,)), timeout)

    async def enqueue_many(self, slices: Iterable[Slice], *, timeout: float | None = None) -> None:
        await self._line.ask_async(c.Enqueue(tuple(slices)), timeout)

    async def mark_merged(
        self, slice_id: str, pull_request_url: str = "", *, timeout: float | None = DEFAULT_TIMEOUT_S
    ) -> Merge:
        merge: Merge = await self._line.ask_async(c.MarkMerged(slice_id, pull_request_url), timeout)
        return merge

    async def cancel(self, slice_id: str, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        await self._line.ask_async(c.Cancel(slice_id), timeout)

    async def retry(self, slice_id: str, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        await self._line.ask_async(c.Retry(slice_id), timeout)

    async def revise(self, slice: Slice, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        await self._line.ask_async(c.Revise(slice), timeout)

    async def hold(self, slice_id: str, reason: str = "", *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        await self._line.ask_async(c.Hold(slice_id, reason), timeout)

    async def release(self, slice_id: str, reason: str = "", *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        await self._line.ask_async(c.Release(slice_id, reason), timeout)

    async def pause(self, reason: str = "", *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        await self._line.ask_async(c.Pause(reason), timeout)

    async def resume(self, reason: str = "", *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        await self._line.ask_async(c.Resume(reason), timeout)

    async def declare_intent(self, intent: Intent, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> list[SliceView]:
        attached: list[SliceView] = await self._line.ask_async(c.DeclareIntent(intent), timeout)
        return attached

    async def reprioritize(self, intent: Intent, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> list[SliceView]:
        attached: list[SliceView] = await self._line.ask_async(c.DeclareIntent(intent, known=True), timeout)
        return attached

    async def route(
        self,
        intent: Intent,
        message: str = "",
        new_slice: Slice | None = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_S,
    ) -> RouteResult:
        deadline = Deadline(timeout)
        result = await self._line.ask_async_by(c.Route(intent, message, new_slice), deadline)
        if isinstance(result, Unproven):
            proof = await self._proof(intent, deadline)
            result = await self._line.ask_async_by(c.Route(intent, message, new_slice, proof), deadline)
        assert isinstance(result, RouteResult)
        return result

    async def _proof(self, intent: Intent, deadline: Deadline) -> Proof:
        with anyio.move_on_after(deadline.left):
            return await self._prove(intent)
        raise self._line.late(deadline)

    async def observe_session(self, state: SessionState) -> None:
        self._line.tell(c.Observe(state))

    async def remeasure(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        await self._line.ask_async(c.Remeasure(), timeout)

    async def frontier(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> list[SliceView]:
        frontier: list[SliceView] = await self._line.ask_async(c.Frontier(), timeout)
        return frontier

    async def get(self, slice_id: str, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> SliceView:
        found: SliceView = await self._line.ask_async(c.Get(slice_id), timeout)
        return found

    async def explain(self, slice_id: str, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> Explanation:
        explanation: Explanation = await self._line.ask_async(c.Explain(slice_id), timeout)
        return explanation

    async def snapshot(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> Snapshot:
        snapshot: Snapshot = await self._line.ask_async(c.TakeSnapshot(), timeout)
        return snapshot

    async def settle(self, timeout: float | None = DEFAULT_TIMEOUT_S) -> None:
        deadline = Deadline(timeout)
        before, after = -1, await self._line.ask_async_by(Settle(), deadline)
        while before != after:
            before, after = after, await self._line.ask_async_by(Settle(), deadline)

    async def wait_for_change(self, since: int, timeout: float = DEFAULT_TIMEOUT_S) -> int:
        self._line.check_begun()
        return await self._line.health.wait_async(since, timeout)

    async def check(self, *, timeout: float | None = None) -> None:
        await self._line.ask_async(c.Check(), timeout)

    async def list(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> list[SliceView]:  # last: it hides the type
        slices: list[SliceView] = await self._line.ask_async(c.ListSlices(), timeout)
        return slices
