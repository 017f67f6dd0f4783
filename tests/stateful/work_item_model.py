"""A plain model of the authority, from the sentences of its promise: dicts and ifs, and none of the product's code.

It is played in whole transactions. A command is a tuple: its name, the item's id or the lease, and what else it takes.
A lease is (item id, owner, epoch, token). An answer is the item's dict as it stands then, or the name of a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Item = dict[str, Any]
Lease = tuple[str, str, int, int]
Command = tuple[Any, ...]
Answer = Item | str | None

HELD = ("leased", "running")
ENDED = ("succeeded", "failed", "cancelled", "dead_letter")
HOPELESS = ("failed", "cancelled")
IN_A_LEASE = ("start", "renew", "checkpoint", "succeed", "fail", "retry", "defer", "stop")


class Model:
    """`now` is moved by the test. Tokens are not foretold: each claim takes the one that it is told."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.items: dict[str, Item] = {}
        self.provenance: dict[str, list[str]] = {}  # the state that each attempt, or unheld item, was left in
        self._ended: list[str] = []

    def perform(self, commands: Sequence[Command], tokens: Sequence[int]) -> list[Answer]:
        """`tokens`: one for each claim, in order, granted or not."""
        left = list(tokens)
        claimed = [command[1] for command in commands if command[0] == "claim"]
        for name in claimed:
            self._free_the_session_of(name, claimed)
        answers = []
        for command in commands:
            token = left.pop(0) if command[0] == "claim" else 0
            answer = self._one(command, token)
            answers.append(dict(answer) if isinstance(answer, dict) else answer)
        self._follow_up()
        return answers

    def overtaken(self) -> set[str]:
        return {name for name, item in self.items.items() if self._is_dead(item) or self._is_late(item)}

    def claimable(self) -> set[str]:
        worked_on = {
            item["session_id"] for item in self.items.values() if item["state"] in HELD and not self._is_dead(item)
        }
        free = {name for name in self.undelivered(-1e9) if self.items[name]["session_id"] not in worked_on}
        return free | {name for name, item in self.items.items() if self._is_dead(item)}

    def undelivered(self, silent_s: float) -> set[str]:
        return {
            name
            for name, item in self.items.items()
            if item["state"] == "ready" and not item["delivered"] and item["not_before"] <= self.now
            and item["handed_at"] <= self.now - silent_s
        }  # fmt: skip

    # -- one command ---------------------------------------------------------------------------------------------------

    def _one(self, command: Command, token: int) -> Answer:
        name, about, *rest = command
        if name == "submit":
            return self._submit(about, *rest)
        item = self.items.get(about[0] if name in IN_A_LEASE else about)
        if item is None:
            return "UnknownItemError"
        if name in IN_A_LEASE:
            return self._in_a_lease(item, name, about, *rest)
        if name == "claim":
            return self._claim(item, token, *rest)
        if name == "cancel":
            return self._cancel(item, *rest)
        if name == "recover":
            self._put_in_order(item, pauses=True)
        elif name == "requeue":
            if item["state"] != "dead_letter":
                return "WrongStateError"
            item.update(state="ready", failures=0, not_before=0.0, delivered=False, handed_at=0.0)
        elif name == "deliver":
            item["delivered"] = item["delivered"] or item["state"] == "ready"
        elif name == "withdraw":
            return self._withdraw(item)
        return item

    def _submit(self, name: str, about: Item) -> Answer:
        if name in self.items:
            same = all(self.items[name][field] == value for field, value in about.items() if field != "not_before")
            return self.items[name] if same else "ItemExistsError"
        states = []
        for other in about["depends_on"]:
            if other not in self.items:
                return "UnknownItemError"
            states.append(self.items[other]["state"])
        if any(state in HOPELESS for state in states):
            return "WrongStateError"
        is_ready = all(state == "succeeded" for state in states)
        is_seen_to = is_ready and about["not_before"] <= self.now
        self.items[name] = {
            "id": name, **about, "state": "ready" if is_ready else "submitted", "attempt": 0, "failures": 0,
            "owner": "", "epoch": 0, "token": 0, "expires_at": 0.0, "delivered": False,
            "handed_at": self.now if is_seen_to else 0.0, "cancel_cause": "", "checkpoint": "", "result": "",
        }  # fmt: skip
        self.provenance[name] = []
        return self.items[name]

    def _withdraw(self, item: Item) -> Answer:
        if item["state"] not in ("ready", "submitted") or item["epoch"] > 0 or item["delivered"]:
            return item
        if self._waiting_for(item["id"]):
            return self._cancel(item, "refused")
        del self.items[item["id"]], self.provenance[item["id"]]
        return None

    def _claim(self, item: Item, token: int, owner: str, ttl_s: float, starts: bool) -> Answer:
        self._put_in_order(item, pauses=False)
        if item["state"] in HELD:
            return "HeldElsewhereError"
        if item["state"] != "ready":
            return "WrongStateError"
        if item["not_before"] > self.now:
            return "NotDueError"
        if self._holder(item["session_id"]) is not None:
            return "HeldElsewhereError"
        item.update(state="leased", owner=owner, epoch=item["epoch"] + 1, token=token, expires_at=self.now + ttl_s)
        if starts:
            item.update(state="running", attempt=item["attempt"] + 1)
        return item

    def _in_a_lease(self, item: Item, name: str, lease: Lease, *rest: Any) -> Answer:
        if item["state"] not in HELD or lease[1:] != (item["owner"], item["epoch"], item["token"]):
            return "LeaseLostError"
        if name in ("succeed", "fail", "retry") and item["state"] == "leased":
            return "WrongStateError"
        if name == "start" and item["state"] == "leased":
            item.update(state="running", attempt=item["attempt"] + 1)
        elif name == "renew":
            item["expires_at"] = max(item["expires_at"], self.now + rest[0])
        elif name == "checkpoint":
            item["checkpoint"] = rest[0]
        elif name == "succeed":
            item["result"] = rest[0]
            self._end(item, "succeeded")
        elif name == "fail":
            self._end(item, "failed")
        elif name == "retry":
            self._failed(item, pauses=True)
        elif name == "defer":
            self._give_back(item, self.now + rest[0])
        elif name == "stop":
            item["checkpoint"] = rest[0]
            self._end(item, "cancelled")
        return item

    def _cancel(self, item: Item, cause: str) -> Answer:
        if item["state"] == "cancelled":
            return item
        if item["state"] in ENDED:
            return "WrongStateError"
        if item["state"] in HELD and item["expires_at"] >= self.now:
            item["cancel_cause"] = item["cancel_cause"] or cause
        else:
            self._end(item, "cancelled")
        return item

    # -- how lives end -------------------------------------------------------------------------------------------------

    def _end(self, item: Item, state: str) -> None:
        item.update(state="cancelled" if item["cancel_cause"] else state, owner="", expires_at=0.0)
        self.provenance[item["id"]].append(item["state"])
        self._ended.append(item["id"])

    def _give_back(self, item: Item, due: float) -> None:
        if item["cancel_cause"]:
            self._end(item, "cancelled")
            return
        item.update(state="ready", owner="", expires_at=0.0, not_before=due, delivered=False, handed_at=0.0)
        self.provenance[item["id"]].append("ready")

    def _failed(self, item: Item, pauses: bool) -> None:
        pause = min(300.0, 2.0 ** item["failures"]) if pauses else 0.0
        item["failures"] += 1
        if item["failures"] >= item["max_attempts"]:
            self._end(item, "dead_letter")
        else:
            self._give_back(item, self.now + pause)

    def _put_in_order(self, item: Item, pauses: bool) -> None:
        if self._is_dead(item):
            if item["cancel_cause"]:
                self._end(item, "cancelled")
            elif item["state"] == "leased":
                self._give_back(item, self.now)
            else:
                self._failed(item, pauses)
        if self._is_late(item):
            self._end(item, "cancelled")

    def _is_dead(self, item: Item) -> bool:
        return item["state"] in HELD and item["expires_at"] < self.now

    def _is_late(self, item: Item) -> bool:
        waits = item["state"] in ("submitted", "ready")
        return waits and item["deadline"] is not None and item["deadline"] < self.now

    # -- others --------------------------------------------------------------------------------------------------------

    def _holder(self, session: str) -> Item | None:
        held = [item for item in self.items.values() if item["session_id"] == session and item["state"] in HELD]
        assert len(held) <= 1, held
        return held[0] if held else None

    def _free_the_session_of(self, name: str, claimed: Sequence[str]) -> None:
        if name in self.items:
            holder = self._holder(self.items[name]["session_id"])
            if holder is not None and holder["id"] not in claimed and self._is_dead(holder):
                self._put_in_order(holder, pauses=True)

    def _waiting_for(self, name: str) -> list[Item]:
        return [item for item in self.items.values() if item["state"] == "submitted" and name in item["depends_on"]]

    def _follow_up(self) -> None:
        while self._ended:
            name = self._ended.pop(0)
            if name not in self.items:
                continue
            for waiter in self._waiting_for(name):
                if self.items[name]["state"] in HOPELESS:
                    self._end(waiter, "cancelled")
                elif all(self.items[other]["state"] == "succeeded" for other in waiter["depends_on"]):
                    waiter.update(state="ready", handed_at=0.0)
