"""Turns run while workers are killed, suspended, drained and cut off, and servers restarted; then all is judged."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from benchmarks.fencing.checker import ENDS, Evidence, Verdict, judge
from benchmarks.fencing.chore import KIND, Chore
from benchmarks.fencing.grounds import RENEW_S, TTL_S, Grounds, grounds_of
from benchmarks.fencing.notes import holders
from benchmarks.fencing.sabotage import NAME as SABOTAGE
from benchmarks.fencing.workers import Workers
from harness.fleet.commands import Cancel
from harness.fleet.errors import FleetUnavailableError, QueueFullError, WrongStateError
from harness.fleet.opening import open_fleet
from harness.fleet.ports import Authority, Transport
from harness.fleet.queue import TurnQueue
from harness.fleet.settings import FleetSettings
from harness.fleet.work_item import Submission

WORKERS = 4
SESSIONS = 12  #: few, so that turns wait for their session
MAX_DEPTH = 40
LAST = 5  #: turns that are left to end in peace
QUIET_S = 120.0  #: from the last fault, all must have ended within so long
#: What befalls workers, by weight; servers' faults come in between.
FAULTS = {"kill": 6, "suspend": 5, "brief": 2, "drain": 1, "join": 1}
SUSPENSIONS = {"suspend": 1}
SERVERS = 0.25  #: the share of faults that befall a server, where there is one


@attrs.define
class Result:
    """What was played and what came of it."""

    kind: str
    seed: int
    turns: int
    seconds: float = 0.0
    faults: Counter[str] = attrs.field(factory=Counter)
    states: Counter[str] = attrs.field(factory=Counter)
    attempts: int = 0
    effects: int = 0
    repeated: int = 0
    taken_over: int = 0
    exits: Counter[int] = attrs.field(factory=Counter)
    verdict: Verdict = attrs.field(factory=Verdict)

    @property
    def void(self) -> list[str]:
        """Why it proves less than it should."""
        reasons = []
        if self.taken_over < self.turns / 20:
            reasons.append(f"only {self.taken_over} attempts were taken over by another worker")
        return reasons

    @property
    def well(self) -> bool:
        return not self.verdict.violations and not self.void


def play(
    kind: str, turns: int, seed: int, told: Callable[[str], None] = lambda _: None, faults: Mapping[str, int] = FAULTS
) -> Result:
    """One campaign: `turns` turns on one kind of fleet. `faults` are those of workers, by weight."""
    return _played(kind, turns, seed, told, faults, "")


def is_seen(sabotage: str, turns: int, seed: int) -> bool:
    """Whether a campaign whose workers are sabotaged, and often suspended, finds something."""
    return bool(_played("sqlite", turns, seed, lambda _: None, SUSPENSIONS, sabotage).verdict.violations)


def _played(
    kind: str, turns: int, seed: int, told: Callable[[str], None], faults: Mapping[str, int], sabotage: str
) -> Result:
    began, rng, result = time.monotonic(), random.Random(seed), Result(kind, seed, turns)
    with tempfile.TemporaryDirectory(prefix="fencing-") as inside, grounds_of(kind, Path(inside), MAX_DEPTH) as grounds:
        folder = Path(inside)
        settings = FleetSettings.of(grounds.direct)
        with contextlib.closing(open_fleet(settings)) as fleet:
            transport = fleet.transport
            workers = Workers(folder, {**grounds.environ, SABOTAGE: sabotage})
            submitter = _Submitter(fleet.authority, fleet.queue, turns, rng.randrange(2**32))
            try:
                for _ in range(WORKERS):
                    workers.start()
                submitter.start()
                _trouble(grounds, workers, submitter, rng, result, told, faults)
                _wait_for_the_end(transport, workers, submitter, result)
            finally:
                submitter.stop()
                workers.end()
            evidence = Evidence(
                submitter.accepted,
                tuple(workers.notes()),
                grounds.rows(),
                _depth(transport),
                {pid: tuple(spans) for pid, spans in workers.suspended.items()},
                frozenset(submitter.cancelled),
            )
    result.verdict = judge(evidence)
    result.seconds = time.monotonic() - began
    _count(result, evidence, submitter)
    return result


class _Submitter:
    """A thread that submits, now and then twice, now and then to be cancelled; through outages and a full queue."""

    def __init__(self, authority: Authority, queue: TurnQueue, turns: int, seed: int) -> None:
        self._authority, self._queue, self._rng = authority, queue, random.Random(seed)
        self._turns, self._stopped = turns, threading.Event()
        self._thread = threading.Thread(target=self._run, name="submitter")
        self.accepted: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self._tenants: dict[str, str] = {}
        self.repeated = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def unended(self) -> int:
        """How many of those that were accepted have not ended. More than any, if nobody can tell."""
        names = list(self.accepted)
        try:
            items = self._authority.find(names)
        except FleetUnavailableError:
            return self._turns
        return sum(name not in items or items[name].state.value not in ENDS for name in names)

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        for number in range(self._turns):
            submission, effects = self._submission(number)
            for _ in range(1 + (self._rng.random() < 0.1)):
                if not self._until_taken(functools.partial(self._queue.submit, submission)):
                    return
                self.repeated += submission.id in self.accepted
                self.accepted[submission.id] = effects
            if self._rng.random() < 0.04:
                self.cancelled.add(submission.id)
                self._until_taken(functools.partial(self._cancel, submission.id))
        self._until_taken(self._queue.flush)

    def _submission(self, number: int) -> tuple[Submission, int]:
        """Lengths of three classes: a hundredth of a lease, most of one, three of them."""
        effects, pause_s = self._rng.choice(
            [(1, 0.0), (3, 0.01), (2, TTL_S / 2), (4, 0.75 * TTL_S)][: 3 + (number % 4 == 0)]
        )
        chore = Chore(effects, pause_s, stumbles=int(self._rng.random() < 0.1))
        payload = self._until_kept(json.dumps(attrs.asdict(chore)).encode())
        earlier = [name for name in list(self.accepted)[-20:] if name not in self.cancelled]
        depends_on = (self._rng.choice(earlier),) if earlier and self._rng.random() < 0.1 else ()
        tenant, session = f"tenant-{number % 3}", f"session-{self._rng.randrange(SESSIONS)}"
        tenant = self._tenants.get(depends_on[0], tenant) if depends_on else tenant
        self._tenants[f"turn-{number}"] = tenant
        return (
            Submission(
                f"turn-{number}", tenant, f"{tenant}/{session}", KIND, payload, self._rng.randrange(4),
                depends_on=depends_on, max_attempts=50,
            ),
            effects,
        )  # fmt: skip

    def _cancel(self, name: str) -> None:
        (result,) = self._authority.perform([Cancel(name, self._tenants[name], "the campaign wants it")])
        assert not isinstance(result, Exception) or isinstance(result, WrongStateError), result

    def _until_kept(self, payload: bytes) -> str:
        kept: list[str] = []
        self._until_taken(lambda: kept.append(self._authority.keep(payload)))
        return kept[-1] if kept else ""

    def _until_taken(self, call: Callable[[], object]) -> bool:
        """Whether it was, before the campaign stopped."""
        while not self._stopped.is_set():
            try:
                call()
            except (QueueFullError, FleetUnavailableError):
                self._stopped.wait(0.05)
            else:
                return True
        return False


def _trouble(
    grounds: Grounds,
    workers: Workers,
    submitter: _Submitter,
    rng: random.Random,
    result: Result,
    told: Callable[[str], None],
    faults: Mapping[str, int],
) -> None:
    """Until all is submitted, and little is left to be run."""
    said = time.monotonic()
    while not submitter.is_done or submitter.unended() > LAST:
        time.sleep(rng.uniform(*grounds.pause_s))
        servers = grounds.faults()
        if servers and rng.random() < SERVERS:
            fault = rng.choice(servers)
            grounds.strike(fault)
        else:
            fault = rng.choices(list(faults), list(faults.values()))[0]
            _befall(grounds, workers, fault, rng)
        result.faults[fault] += 1
        result.exits.update(workers.mind())
        if time.monotonic() - said > 15:
            said = time.monotonic()
            told(f"{grounds.name}: {len(submitter.accepted)} turns taken, {result.faults.total()} faults")


def _befall(grounds: Grounds, workers: Workers, fault: str, rng: random.Random) -> None:
    """One that is at work, if any is: who holds nothing loses nothing."""
    at_work = holders(workers.notes(), time.monotonic() - TTL_S)
    process = rng.choice([each for each in workers.running if each.pid in at_work] or workers.running)
    match fault:
        case "kill":
            workers.kill(process)
            workers.start()
        case "suspend":  # past its leases
            workers.suspend(process, rng.uniform(*grounds.suspension_s))
        case "brief":  # not past them
            workers.suspend(process, rng.uniform(0.1, 0.5) * RENEW_S)
        case "drain":
            workers.drain(process)
            workers.start()
        case "join":  # one more for a while, and one less: whoever shares out has to share out anew
            workers.start()
            workers.kill(process)


def _wait_for_the_end(transport: Transport, workers: Workers, submitter: _Submitter, result: Result) -> None:
    """All ended, nothing queued; or long enough waited for it."""
    deadline = time.monotonic() + QUIET_S
    while time.monotonic() < deadline:
        if submitter.unended() == 0 and _depth(transport) == 0:
            return
        result.exits.update(workers.mind())
        time.sleep(0.2)


def _depth(transport: Transport) -> int:
    """A server that was restarted since it was last asked is asked again."""
    try:
        return transport.depth()
    except FleetUnavailableError:
        return transport.depth()


def _count(result: Result, evidence: Evidence, submitter: _Submitter) -> None:
    result.states = Counter(row.state for row in evidence.rows.values())
    starts = [note for note in evidence.notes if note.what == "start"]
    result.attempts = len(starts)
    result.effects = sum(note.what == "effect" for note in evidence.notes)
    result.repeated = submitter.repeated
    first: dict[str, int] = {}
    for note in starts:
        result.taken_over += note.pid != first.setdefault(note.item, note.pid)
