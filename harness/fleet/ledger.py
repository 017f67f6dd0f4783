"""Commands on the rows of an authority, within one transaction: what every adapter shares.

An adapter is a `Rows`: it locks, reads and writes. What a command does to an item is `lifecycle.step`'s to say; here is
what it means for others. Of a session, one item is held at a time. A success releases those that now wait for nobody, a
failure or a cancellation cancels those that waited for it, and theirs. Those that wait for a dead letter wait on, since
it may be requeued.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs

from harness.fleet.commands import Cancel, Claim, Command, Recover, Release, Submit, Withdraw, subject
from harness.fleet.errors import FleetError, UnknownItemError, WrongStateError
from harness.fleet.lifecycle import is_abandoned, step
from harness.fleet.ports import Result
from harness.fleet.work_item import HELD, Outcome, Submission, WorkItem, WorkItemState

Session = tuple[str, str]  #: tenant and session id

_HOPELESS = (WorkItemState.FAILED, WorkItemState.CANCELLED)


class Rows(Protocol):
    """An authority's rows, in a transaction that is repeated as a whole if another one was in its way."""

    def now(self) -> float:
        """Unix seconds by the database's clock, the same throughout the transaction."""
        ...

    def tokens(self, count: int) -> Sequence[int]:
        """So many fencing tokens, rising, each higher than any before."""
        ...

    def lock(self, ids: Sequence[str]) -> dict[str, WorkItem]:
        """Those that there are, as they stand now, not to be changed by anybody else meanwhile."""
        ...

    def held_in(self, sessions: Sequence[Session]) -> dict[Session, str]:
        """Of each, the item that is leased or running, if one is. Nobody else can claim an item of theirs meanwhile."""
        ...

    def waiting_for(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Of each of those items, the submitted ones that depend on it."""
        ...

    def unmet(self, ids: Sequence[str]) -> dict[str, int]:
        """Of each of those items, how many that it depends on have not succeeded by what is saved."""
        ...

    def save(
        self, new: Sequence[WorkItem], changed: Sequence[WorkItem], gone: Sequence[str], outcomes: Sequence[Outcome]
    ) -> None: ...


def perform(rows: Rows, commands: Sequence[Command]) -> tuple[Result, ...]:
    """See `WorkItems.perform`."""
    book = _Book(rows, rows.now())
    book.lock({subject(command)[1] for command in commands})
    book.lock({name for command in commands if isinstance(command, Submit) for name in command.submission.depends_on})
    claims = [command for command in commands if isinstance(command, Claim)]
    if claims:
        book.tokens = list(reversed(rows.tokens(len(claims))))
        book.look_at_sessions(claims)
    results = tuple(book.attempt(command) for command in commands)
    book.follow_up()
    return results


@attrs.define
class _Book:
    """What has been read of the rows, and what is to be written."""

    rows: Rows
    now: float
    items: dict[str, WorkItem] = attrs.field(factory=dict)
    holders: dict[Session, str] = attrs.field(factory=dict)
    tokens: list[int] = attrs.field(factory=list)
    new: dict[str, None] = attrs.field(factory=dict)
    changed: dict[str, None] = attrs.field(factory=dict)
    gone: dict[str, None] = attrs.field(factory=dict)
    outcomes: list[Outcome] = attrs.field(factory=list)
    ended: list[WorkItem] = attrs.field(factory=list)

    def lock(self, ids: Iterable[str]) -> None:
        """In the order of their ids, as everybody does, so that two seldom wait for each other."""
        missing = sorted(set(ids) - self.items.keys())
        if missing:
            self.items |= self.rows.lock(missing)

    def look_at_sessions(self, claims: Sequence[Claim]) -> None:
        """Who holds the sessions of the items to be claimed. A holder whose lease ran out is put in order first."""
        found = (self.items.get(command.item_id) for command in claims)
        sessions = sorted({(item.tenant, item.session_id) for item in found if item is not None})
        self.holders = self.rows.held_in(sessions)
        claimed = {command.item_id for command in claims}
        self.lock(self.holders.values())
        for session, holder_id in list(self.holders.items()):
            holder = self.items[holder_id]
            if holder.state not in HELD:  # it ended between two looks
                del self.holders[session]
            elif is_abandoned(holder, self.now) and holder_id not in claimed:
                self.do(Recover(holder_id, holder.tenant))

    def attempt(self, command: Command) -> Result:
        try:
            if isinstance(command, Claim):
                command = self._beside_its_session(command)
            elif isinstance(command, Submit) and command.submission.id not in self.items:
                command = attrs.evolve(command, unmet=self._unmet(command.submission))
            elif isinstance(command, Withdraw) and self._is_awaited(command):
                command = Cancel(command.item_id, command.tenant, "its delivery was refused")
            return self.do(command)
        except FleetError as refused:
            return refused

    def do(self, command: Command) -> Result:
        """Raises what it is refused with."""
        tenant, item_id = subject(command)
        item = self.items.get(item_id)
        if not isinstance(command, Submit) and (item is None or item.tenant != tenant):
            raise UnknownItemError(item_id)
        done = step(item, command, self.now)
        self.outcomes += done.outcomes
        if done.item is None:
            self._forget(item_id)
        elif done.item is not item:
            self._note(item, done.item)
        return done.refused or done.item

    def follow_up(self) -> None:
        """Save, and do what the ends mean to those that waited, until nothing more follows."""
        while True:
            ended, self.ended = self.ended, []
            self._save()
            waiting = self.rows.waiting_for(sorted(item.id for item in ended)) if ended else {}
            if not waiting:
                return
            self.lock(name for names in waiting.values() for name in names)
            hopeless = {item.id: item for item in ended if item.state in _HOPELESS}
            for cause in hopeless.values():
                for name in waiting.get(cause.id, ()):
                    self._cancel(name, f"{cause.id} was {cause.state.value}, and this depends on it")
            hopeful = sorted({name for item_id, names in waiting.items() if item_id not in hopeless for name in names})
            unmet = self.rows.unmet(hopeful) if hopeful else {}
            for name in hopeful:
                if name in self.items and not unmet.get(name):
                    self.do(Release(name, self.items[name].tenant))

    def _beside_its_session(self, command: Claim) -> Claim:
        command = attrs.evolve(command, token=self.tokens.pop())
        item = self.items.get(command.item_id)
        holder = self.items.get(self.holders.get((item.tenant, item.session_id), "")) if item else None
        if holder is None or item is None or holder.id == item.id:
            return command
        wait_s = max(0.0, holder.expires_at - self.now)
        return attrs.evolve(command, session_holder=holder.id, session_wait_s=wait_s)

    def _unmet(self, asked: Submission) -> int:
        """Raises for one that is not there, or can't succeed any more."""
        unmet = 0
        for name in dict.fromkeys(asked.depends_on):
            item = self.items.get(name)
            if item is None or item.tenant != asked.tenant:
                raise UnknownItemError(name)
            if item.state in _HOPELESS:
                raise WrongStateError("wait for", name, item.state.value)
            unmet += item.state is not WorkItemState.SUCCEEDED
        return unmet

    def _is_awaited(self, command: Withdraw) -> bool:
        """Whether it would vanish, and leave others waiting for ever."""
        item = self.items.get(command.item_id)
        if item is None or item.tenant != command.tenant or step(item, command, self.now).item is not None:
            return False
        new = (self.items[name] for name in self.new)
        return any(item.id in each.depends_on for each in new) or bool(
            item.id not in self.new and self.rows.waiting_for([item.id])
        )

    def _cancel(self, name: str, cause: str) -> None:
        if name in self.items and self.items[name].state is WorkItemState.SUBMITTED:
            self.do(Cancel(name, self.items[name].tenant, cause))

    def _note(self, before: WorkItem | None, item: WorkItem) -> None:
        self.items[item.id] = item
        if before is None:
            self.new[item.id] = None
        elif item.id not in self.new:
            self.changed[item.id] = None
        if before is not None and item.state is not before.state:
            if item.state is WorkItemState.SUCCEEDED or item.state in _HOPELESS:
                self.ended.append(item)
            session = (item.tenant, item.session_id)
            if item.state in HELD:
                self.holders[session] = item.id
            elif self.holders.get(session) == item.id:
                del self.holders[session]

    def _forget(self, item_id: str) -> None:
        del self.items[item_id]
        if item_id in self.new:
            del self.new[item_id]
        else:
            self.changed.pop(item_id, None)
            self.gone[item_id] = None

    def _save(self) -> None:
        new, changed = ([self.items[name] for name in names] for names in (self.new, self.changed))
        if new or changed or self.gone or self.outcomes:
            self.rows.save(new, changed, tuple(self.gone), self.outcomes)
        self.new, self.changed, self.gone, self.outcomes = {}, {}, {}, []
