"""`Waiting` and `pick` against a walk of all waiting tasks in key order."""

from __future__ import annotations

from collections.abc import Hashable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from listsched import Waiting, pick
from tests.effort import examples

TASKS = list(range(10))
LOCKS = ["red", "green", "blue"]
GATES = ["north", "south"]
NEEDS = st.lists(st.sampled_from(LOCKS + GATES), unique=True)
TASK, KEY = st.sampled_from(TASKS), st.integers(0, 4)


class PickMachine(RuleBasedStateMachine):
    """Tasks hold locks from start to end; closed gates keep tasks waiting too, but nobody holds them.

    Any task may be given a new key or leave at any time, also while it is parked or on its way back. Those that need
    the same, a lock among it, may wait as twins or not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waiting: Waiting[int] = Waiting()
        self.keys: dict[int, tuple[int, int]] = {}
        self.running: list[int] = []
        self.closed: set[str] = set()
        self.needs: list[list[str]] = []

    @initialize(
        kinds=st.tuples(NEEDS, NEEDS, NEEDS.map(lambda more: ["red", *more])),
        of=st.lists(st.integers(0, 2), min_size=len(TASKS), max_size=len(TASKS)),
    )
    def tasks_need(self, kinds: tuple[list[str], ...], of: list[int]) -> None:
        self.needs = [kinds[kind] for kind in of]

    @rule(task=TASK, key=KEY, as_twin=st.booleans())
    def put(self, task: int, key: int, as_twin: bool) -> None:
        if task not in self.running:
            self.keys[task] = (key, task)
            excludes = not set(LOCKS).isdisjoint(self.needs[task])
            self.waiting.put(task, (key, task), tuple(self.needs[task]) if as_twin and excludes else None)

    @rule(task=TASK, times=st.integers(50, 100), key=KEY, as_twin=st.booleans())
    def put_again_and_again(self, task: int, times: int, key: int, as_twin: bool) -> None:
        for turn in range(times):
            self.put(task, (key + turn) % 5, as_twin)

    @rule(task=TASK)
    def discard(self, task: int) -> None:
        self.waiting.discard(task)
        self.keys.pop(task, None)

    @rule(factor=st.sampled_from([-1, 0, 2]))
    def rekey(self, factor: int) -> None:
        self.keys = {task: (factor * key, task) for task, (key, _) in self.keys.items()}
        self.waiting.rekey(self.keys.__getitem__)

    @rule(gate=st.sampled_from(GATES))
    def close(self, gate: str) -> None:
        self.closed.add(gate)

    @rule(gate=st.sampled_from(GATES))
    def open(self, gate: str) -> None:
        self.closed.discard(gate)
        self.waiting.wake(gate)

    @rule(resource=st.sampled_from(LOCKS + GATES))
    def wake_for_nothing(self, resource: str) -> None:
        self.waiting.wake(resource)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.running))
        self.running.remove(task)
        for lock in self.needs[task]:
            if lock in LOCKS:
                self.waiting.wake(lock)

    @rule(places=st.integers(0, 4))
    def pick(self, places: int) -> None:
        expected = self.walk(places)
        assert pick(self.waiting, places, self.blocked, self.running.append) == expected
        assert self.running[len(self.running) - len(expected) :] == expected
        for task in expected:
            del self.keys[task]

    def blocked(self, task: int) -> Hashable | None:
        return next((need for need in self.needs[task] if need in self.closed or self.is_held(need)), None)

    def is_held(self, need: str) -> bool:
        return need in LOCKS and any(need in self.needs[task] for task in self.running)

    def walk(self, places: int) -> list[int]:
        """Look at all waiting tasks, best first."""
        started: list[int] = []
        held = {need for task in self.running for need in self.needs[task] if need in LOCKS}
        for task in sorted(self.keys, key=self.keys.__getitem__):
            if len(started) < places and (held | self.closed).isdisjoint(self.needs[task]):
                started.append(task)
                held.update(need for need in self.needs[task] if need in LOCKS)
        return started

    @invariant()
    def the_same_tasks_wait(self) -> None:
        assert self.waiting.in_order() == sorted(self.keys, key=self.keys.__getitem__)
        assert len(self.waiting) == len(self.keys)
        assert sorted(self.waiting) == sorted(self.keys)
        assert all((task in self.waiting) == (task in self.keys) for task in TASKS)


TestPick = PickMachine.TestCase
TestPick.settings = settings(
    max_examples=examples(150),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
