"""Strays are planted among good turns while workers run; then all is judged."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import attrs

from benchmarks.envelopes import ledger, mix, reading
from benchmarks.envelopes.checker import Burial, Evidence, Verdict, Wanted, judge
from benchmarks.envelopes.mix import ENDED, STRAYS, Item
from benchmarks.envelopes.post import POSTS, Post, Stray
from benchmarks.envelopes.sabotage import NAME as SABOTAGE
from benchmarks.envelopes.workers import Workers
from benchmarks.fencing.grounds import KINDS, Grounds, grounds_of
from harness.fleet.commands import Cancel, Submit
from harness.fleet.opening import Fleet, open_fleet
from harness.fleet.settings import FleetSettings
from harness.fleet.work_item import Submission

__all__ = ["KINDS", "Result", "is_seen", "play"]

PROCESSES, SLOTS = 3, 4
MAX_DEPTH = 100_000  #: admission is not what is tried here
GOOD = 0.1  #: good turns, for each stray
CHUNK = 100  #: strays that are planted at a time
QUIET_S = 120.0  #: so long nothing may stand still, nor go on after the last one was planted
TRIAL_S = 3.0  #: the same where workers are sabotaged
SETTINGS = {"AGENT_DISPATCH_CLAIM_TTL_S": "60", "AGENT_DISPATCH_RENEW_INTERVAL_S": "5"}
LOOK_S = 0.05


@attrs.define
class Result:
    """What was planted and what came of it."""

    fleet: str
    seed: int
    seconds: float = 0.0
    planted: Counter[str] = attrs.field(factory=Counter)
    good: int = 0
    poisons: int = 0  #: kinds of poison
    runs: int = 0
    graves: int = 0
    burials: int = 0
    verdict: Verdict = attrs.field(factory=Verdict)

    @property
    def well(self) -> bool:
        return not self.verdict.violations


def play(
    fleet: str, count: int, seed: int, told: Callable[[str], None] = lambda _: None, sabotage: str = "",
    quiet_s: float = QUIET_S,
) -> Result:  # fmt: skip
    """One campaign: `count` strays on one kind of fleet."""
    began, result = time.monotonic(), Result(fleet, seed)
    with tempfile.TemporaryDirectory(prefix="envelopes-") as inside, grounds_of(fleet, Path(inside), MAX_DEPTH) as at:
        evidence = _played(at, Path(inside), count, result, told, sabotage, quiet_s)
    result.verdict = judge(evidence)
    result.seconds = time.monotonic() - began
    result.runs = sum(note.what == "began" for note in evidence.notes)
    result.graves, result.burials = len(evidence.graves), sum(each.count for each in evidence.graves.values())
    return result


def is_seen(sabotage: str, count: int, seed: int) -> bool:
    """Whether a campaign with sabotaged workers finds something."""
    return bool(play("sqlite", count, seed, sabotage=sabotage, quiet_s=TRIAL_S).verdict.violations)


def _played(
    at: Grounds, folder: Path, count: int, result: Result, told: Callable[[str], None], sabotage: str, quiet_s: float
) -> Evidence:
    direct = at.direct | SETTINGS
    post = POSTS[at.name](direct)
    workers = Workers(folder, at.environ | SETTINGS | {SABOTAGE: sabotage}, SLOTS)
    with contextlib.closing(open_fleet(FleetSettings.of(direct))) as fleet:
        field = _Field(fleet, post, direct["STATE_DB_URI"], folder, Random(result.seed), result, told, quiet_s)
        try:
            for _ in range(PROCESSES):
                workers.start()
            field.prepare(early=4 + count // 100)
            field.first_wave(count - count // 20)
            (folder / "morning").touch()
            field.second_wave(count // 20)
            exits = workers.end()
        finally:
            workers.kill()
        return Evidence(
            field.wanted,
            field.buried,
            ledger.read(folder / "ledger"),
            reading.rows(direct["STATE_DB_URI"]),
            reading.graves(direct["STATE_DB_URI"]),
            post.depth(),
            exits,
            redelivers=post.carries_copies,
        )


@attrs.define
class _Field:
    """Where it is played. `wanted` and `buried` are what the judge is told to expect."""

    fleet: Fleet
    post: Post
    uri: str
    folder: Path
    rng: Random
    result: Result
    told: Callable[[str], None]
    quiet_s: float
    wanted: dict[str, Wanted] = attrs.field(factory=dict)
    buried: dict[str, Burial] = attrs.field(factory=dict)
    ended: list[Submission] = attrs.field(factory=list)
    waiting: list[Submission] = attrs.field(factory=list)
    running: list[Submission] = attrs.field(factory=list)
    fresh: list[Submission] = attrs.field(factory=list)  # good turns that were put a moment ago
    poison: list[Stray] = attrs.field(factory=list)
    number: int = 0
    is_stuck: bool = False  # nothing makes way any more, and nothing else is planted

    def prepare(self, early: int) -> None:
        """Items that have ended, that run, and that wait for those."""
        items = mix.early(early)
        cancelled = items.pop("cancelled")
        self._perform(cancelled)
        self._submit([each for some in items.values() for each in some])
        self._until(lambda: reading.unended(self.uri) == 0, "early turns end")
        sleepers, waiters = mix.sleepers(), mix.waiters(early)
        self._submit(sleepers)
        self._submit(waiters)
        self._until(lambda: self._began() >= len(sleepers), "sleepers begin")
        self.ended = [each.submission for some in (cancelled, *items.values()) for each in some]
        self.waiting = [each.submission for each in waiters]
        self.running = [each.submission for each in sleepers]
        assert {self.wanted[each.id].state for each in self.ended} == set(ENDED)

    def first_wave(self, count: int) -> None:
        """Until the deadlines of those have passed that wait for a sleeper's session."""
        self._wave(count, "while sleepers run")
        with contextlib.suppress(TimeoutError):  # what has not ended then, the judge sees
            self._until(lambda: reading.unended(self.uri, "expires-") == 0, "deadlines pass")

    def second_wave(self, count: int) -> None:
        """In the end a good turn for each session, behind all the rest."""
        self.ended += self.waiting + self.running
        self.waiting, self.running = [], []
        self._wave(count, "in the morning")
        began = time.monotonic()
        self._submit([mix.item(f"last-{tenant}-{session}", tenant, session) for tenant, session in mix.places()])
        with contextlib.suppress(TimeoutError):  # what has not ended then, the judge sees
            self._until(lambda: reading.unended(self.uri) == 0 and self.post.depth() == 0, "all ends")
        self.told(f"{self.result.fleet}: drained {time.monotonic() - began:.0f} s after the last was planted")

    def _wave(self, count: int, when: str) -> None:
        for kinds in mix.chunks(mix.shuffled(count, STRAYS, self.rng), CHUNK):
            turns = [mix.good(self._next(), self.rng) for _ in range(round(GOOD * len(kinds)))]
            self.result.good += len(turns)
            for some in mix.chunks(kinds, 10):  # interleaved: strays, a good turn, strays
                self._submit([turns.pop()] if turns else [])
                self._plant(list(self._strays(some)))
            self._submit(turns)
            self.told(f"{self.result.fleet}: {self.result.planted.total()} planted {when}")

    def _strays(self, kinds: Sequence[str]) -> Iterator[Stray]:
        """Those to be planted. Turns whose deadline passes are submitted, and come by themselves."""
        now = time.time()
        late: list[Item] = []
        for kind in kinds:
            self.result.planted[kind] += 1
            match kind:
                case "poison":
                    self.poison.append(self.post.poison(self.rng, self._next()))
                    yield self.poison[-1]
                case "poison again":
                    yield self.rng.choice(self.poison) if self.poison else self.post.poison(self.rng, self._next())
                case "no item":
                    yield mix.stranger(self._next(), now, self.rng)
                case "another tenant's":
                    yield self._of_another_tenant(now)
                case "expired":
                    late.append(mix.expired(self._next(), now, self.rng))
                case "expires" if self.running:
                    late.append(mix.expiring(self._next(), now))
                case "expires":
                    late.append(mix.expired(self._next(), now, self.rng))
                case "altered":
                    yield self._altered(now)
                case _:
                    yield mix.letter(kind, self.rng.choice(self._doubled(kind)), now)
        self._submit(late)

    def _of_another_tenant(self, now: float) -> Stray:
        of = self.rng.choice([*self.ended, *self.waiting, *(self.running if self.post.carries_copies else [])])
        other = self.rng.choice(
            [name for name in ("tenant-0", "tenant-1", "tenant-9", " tenant-0") if name != of.tenant]
        )
        return mix.letter("another tenant's", of, now + self._next() * 1e-6, tenant=other)

    def _altered(self, now: float) -> Stray:
        """Of an item that there is; but what is to be done, and where, is another's word."""
        of = self.rng.choice([*self.ended, *self.waiting])
        changes = ({"payload_ref": "note:altered"}, {"session_id": "session-1"}, {"kind": "doomed"}, {"priority": 3})
        return mix.letter("altered", of, now, **self.rng.choice(changes))

    def _doubled(self, kind: str) -> Sequence[Submission]:
        match kind:
            case "a second of one that runs":
                return self.running or self.fresh
            case "a second of one that waits":
                return [*self.waiting, *self.fresh]
            case _:
                return self.ended

    def _plant(self, strays: list[Stray]) -> None:
        """All of them. Where the queue has a delivery of a job yet, another one waits for that; of an item that runs or
        waits in it, it is put as its submitter would, and the queue says that it is there."""
        put = [] if self.post.carries_copies else [each for each in strays if self._is_queued(each)]
        if put:
            queued = {name: each for each in (*self.running, *self.fresh) for name in [each.id]}
            found = self.fleet.authority.find([each.fields[0] for each in put])
            assert found.keys() == queued.keys() & found.keys()
            self.fleet.transport.put_many([each.envelope(time.time()) for each in found.values()], MAX_DEPTH)
        rest = [each for each in strays if each not in put]
        end = time.monotonic() + self.quiet_s
        while rest and not self.is_stuck:
            digests = self.post.plant(rest)
            for stray, digest in zip(rest, digests, strict=True):
                self._expect(stray, digest)
            rest = [stray for stray, digest in zip(rest, digests, strict=True) if not digest]
            self.is_stuck = bool(rest) and time.monotonic() > end
            if rest:
                time.sleep(LOOK_S)  # no one tells a stranger that a place is free

    def _is_queued(self, stray: Stray) -> bool:
        return stray.is_letter and stray.fields[0] in {each.id for each in (*self.running, *self.fresh)}

    def _expect(self, stray: Stray, digest: str) -> None:
        if not digest or (stray.is_letter and stray.kind not in ("no item", "another tenant's")):
            return
        name, tenant = (stray.fields[0], stray.fields[4]) if stray.is_letter else ("", "")
        known = self.buried.get(digest)
        count = 1 if known is None else known.count + 1
        self.buried[digest] = Burial(stray.kind, name, tenant, count)
        if not stray.is_letter:
            self.result.poisons = len({each.kind for each in self.buried.values() if not each.job_id})

    # -- the fleet -----------------------------------------------------------------------------------------------------

    def _submit(self, items: Sequence[Item]) -> None:
        results = self.fleet.queue.submit_many([each.submission for each in items])
        assert not [each for each in results if isinstance(each, Exception)], results
        self.wanted |= {each.submission.id: each.wanted for each in items}
        if items and items[0].submission.id.startswith("good"):
            self.fresh = [*self.fresh[-20:], *(each.submission for each in items)]

    def _perform(self, items: Sequence[Item]) -> None:
        """Submit them, and cancel them before they have a delivery."""
        commands = [
            command
            for each in items
            for command in (
                Submit(each.submission),
                Cancel(each.submission.id, each.submission.tenant, "the campaign wants it"),
            )
        ]
        results = self.fleet.authority.perform(commands)
        assert not [each for each in results if isinstance(each, Exception)], results
        self.wanted |= {each.submission.id: each.wanted for each in items}

    def _began(self) -> int:
        notes = ledger.read(self.folder / "ledger")
        return sum(note.what == "began" and note.item.startswith("sleeper") for note in notes)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + self.quiet_s
        while not holds():
            if time.monotonic() > end:
                raise TimeoutError(what)
            time.sleep(LOOK_S)

    def _next(self) -> int:
        self.number += 1
        return self.number
