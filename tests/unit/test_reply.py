"""Replies to tasks: one waking of the loop serves all that is answered before it gets to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from dispatch.reply import AwaitableReply, NoAnswerYet


class CountedLoop(asyncio.SelectorEventLoop):
    """Counts how often another thread wakes it."""

    wakings = 0

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> asyncio.Handle:  # type: ignore[override]
        self.wakings += 1
        return super().call_soon_threadsafe(*args, **kwargs)


def elsewhere(work: Callable[[], None]) -> None:
    """In another thread, and this one stands still until it is done."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def answers(replies: list[AwaitableReply]) -> Callable[[], None]:
    def work() -> None:
        for number, reply in enumerate(replies):
            reply.answer(number)

    return work


def test_one_waking_serves_all_that_is_answered_at_once() -> None:
    async def ask() -> list[Any]:
        replies = [AwaitableReply() for _ in range(50)]
        elsewhere(answers(replies))
        first = [await reply.wait(1.0) for reply in replies]
        again = AwaitableReply()
        elsewhere(answers([again]))
        return [*first, await again.wait(1.0)]

    with asyncio.Runner(loop_factory=CountedLoop) as runner:
        loop = runner.get_loop()
        assert runner.run(ask()) == [*range(50), 0]
        assert isinstance(loop, CountedLoop)
        assert loop.wakings == 2


def test_each_loop_of_a_thread_has_its_own() -> None:
    async def ask() -> Any:
        reply = AwaitableReply()
        elsewhere(answers([reply]))
        return await reply.wait(1.0)

    assert [asyncio.run(ask()), trio.run(ask), asyncio.run(ask()), trio.run(ask)] == [0, 0, 0, 0]


@pytest.mark.parametrize("run", [asyncio.run, lambda make: trio.run(lambda: make)], ids=["asyncio", "trio"])
def test_an_answer_for_a_loop_that_has_ended_is_dropped(run: Callable[[Any], Any]) -> None:
    left: list[AwaitableReply] = []

    async def leave() -> None:
        left.extend(AwaitableReply() for _ in range(2))

    run(leave())
    for reply in left:
        reply.answer(1)
        reply.refuse(ValueError("late"))


def test_a_reply_that_does_not_come_is_told() -> None:
    async def ask() -> None:
        with pytest.raises(NoAnswerYet):
            await AwaitableReply().wait(0.0)

    asyncio.run(ask())
