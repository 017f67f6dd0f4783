"""Rounds until so many kills have landed, and what they come to: counts, violations, and what they prove."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import attrs

from benchmarks.crash.case import Violation
from benchmarks.crash.checker import judge
from benchmarks.crash.controls import CONTROLS, missed
from benchmarks.crash.fates import FAULTS, Means, killpoints
from benchmarks.crash.round import Played, Round, Script, Tally
from benchmarks.crash.stores import Servers

AT_WORK = 1 / 3  #: of all kills, at least so many must have met an agent at work
AT_AN_INSTANT = 1 / 2  #: and of those that were meant to
COVERED_FROM = 200  #: kills from which every kind of place must have been met
TOO_MANY = 2  #: times the kills that were asked for: by then what is still lacking will not come


@attrs.frozen
class Demand:
    """What a campaign is to see: so many kills, so many of each fault, so many at each kill point of the store; or just
    so many `rounds`."""

    kills: int = 0
    faults: int = 0
    at_each_point: int = 0
    rounds: int = 0

    @classmethod
    def of(cls, kills: int) -> Demand:
        """In proportion: a thousand kills go with a hundred of each fault, and twenty at each point."""
        return cls(kills, kills // 10, kills // 50)


@attrs.define
class Result:
    """What a campaign came to. `failures` are rounds with something against them, `void` says why it proves nothing."""

    store: str
    seed: int
    wanted: Demand
    rounds: int = 0
    seconds: float = 0.0
    sessions: int = 0
    merges: int = 0
    tally: Tally = attrs.field(factory=Tally)
    failures: list[Failure] = attrs.field(factory=list)
    controls: Counter[str] = attrs.field(factory=Counter)
    unseen: set[str] = attrs.field(factory=set)
    sabotages: dict[str, bool] = attrs.field(factory=dict)
    broken_off: bool = False

    @property
    def void(self) -> list[str]:
        """Why it proves less than it should: an untested judge, or kills that met nobody."""
        kills, landed = self.tally.kills.total(), self.tally.landed.total()
        reasons = [f"the judge did not see: {name}" for name in sorted(self.unseen)]
        reasons += [f"the sabotage was not seen: {name}" for name, seen in self.sabotages.items() if not seen]
        reasons += ["it was broken off"] * self.broken_off + self.lacking
        if landed < AT_WORK * kills:
            reasons.append(f"only {landed} of {kills} kills met an agent at work")
        instants, met = self.tally.kills[Means.INSTANT], self.tally.landed[Means.INSTANT]
        if met < AT_AN_INSTANT * instants:
            reasons.append(f"only {met} of {instants} kills at an instant met an agent at work")
        if not self.failures:
            untried = [name for name, _, _ in CONTROLS if not self.controls[name]]
            reasons += [f"the judge was not tried on: {name}" for name in untried]
        if kills >= COVERED_FROM:
            reasons += [f"no kill was: {means.value}" for means in self._means if not self.tally.kills[means]]
        if self.tally.refused < self.tally.struck[Means.SUSPENDED]:
            reasons.append(f"only {self.tally.refused} writes of runs that were taken over were refused")
        return reasons

    @property
    def _means(self) -> list[Means]:
        faults = FAULTS if self.store != "sqlite" else (Means.SUSPENDED,)
        return [means for means in Means if means.kills and (means in faults or means not in FAULTS)]

    @property
    def lacking(self) -> list[str]:
        """What was asked for and has not been seen."""
        kills, places, struck = self.tally.kills.total(), self.tally.places, self.tally.struck
        lacking = [f"only {kills} of {self.wanted.kills} kills landed"] if kills < self.wanted.kills else []
        for means in set(self._means) & set(FAULTS):
            if struck[means] < self.wanted.faults:
                lacking.append(f"only {struck[means]} of {self.wanted.faults}: {means.value}")
        for name in killpoints(self.store):
            if places[f"store {name}"] < self.wanted.at_each_point:
                lacking.append(f"only {places[f'store {name}']} of {self.wanted.at_each_point} kills at {name}")
        return sorted(lacking)

    @property
    def well(self) -> bool:
        return not self.failures and not self.void


@attrs.frozen
class Failure:
    """A round that did not go as promised; `folder` has all that is known of it."""

    seed: int
    violations: tuple[Violation, ...]
    story: tuple[str, ...]
    folder: Path
    store: str

    @property
    def replay(self) -> str:
        return f"python -m benchmarks.crash --store {self.store} --seed {self.seed} --rounds 1"


def campaign(
    store: str,
    wanted: Demand,
    seed: int,
    jobs: int = 1,
    told: Callable[[str], None] = print,
    script: Script | None = None,
    broken_off: Callable[[], bool] = lambda: False,
) -> Result:
    """Plays rounds of the seeds from `seed` on, `jobs` at a time, until it has seen what is wanted.

    No round begins once it is `broken_off`.
    """
    result, began = Result(store, seed, wanted), time.monotonic()
    killpoints(store)  # in one thread: Python's parser fails if two of them are in it at once (seen with 3.11.7)
    with ThreadPoolExecutor(jobs) as pool, contextlib.closing(Servers()) as servers:
        pending: set[Future[tuple[Played, Path]]] = set()
        while True:
            while len(pending) < jobs and not broken_off() and _wants_more(result, len(pending)):
                pending.add(pool.submit(_play, servers, store, seed + result.rounds + len(pending), script))
            if not pending:
                break
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                _take(result, *future.result(), told)
    result.seconds, result.broken_off = time.monotonic() - began, broken_off()
    return result


def _wants_more(result: Result, pending: int) -> bool:
    if result.wanted.rounds:
        return result.rounds + pending < result.wanted.rounds
    return bool(result.lacking) and result.tally.kills.total() < TOO_MANY * result.wanted.kills


def _play(servers: Servers, store: str, seed: int, script: Script | None) -> tuple[Played, Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"crash-{seed}-"))
    with servers.kept(store, folder, str(seed)) as kept:
        return Round(seed, folder, kept, script).play(), folder


def _take(result: Result, played: Played, folder: Path, told: Callable[[str], None]) -> None:
    """Judges a round, tries the judge on it, and adds it up."""
    violations = judge(played.plan, played.evidence)
    if violations:
        result.failures.append(Failure(played.seed, tuple(violations), played.story, folder, result.store))
        (folder / "evidence").write_text(repr(played.evidence))
    else:
        unseen, unsuitable = missed(played.plan, played.evidence)
        result.unseen |= set(unseen)
        result.controls.update(name for name, _, _ in CONTROLS if name not in unsuitable)
        shutil.rmtree(folder)
    result.rounds += 1
    result.sessions += sum(start.role == "agent" for start in played.evidence.starts)
    result.merges += sum(bool(merge.slice) for merge in played.evidence.mainline)
    result.tally.add(played.tally)
    kills = played.tally.kills.total()
    told(f"seed {played.seed}: {kills} kills, {'well' if not violations else f'{len(violations)} violations'}")


def commit_under_test() -> str:
    """Of the checkout this runs from; with a mark if that has changes."""
    said = subprocess.run(
        ("git", "describe", "--always", "--dirty", "--abbrev=12"),
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return said.stdout.strip() or "unknown"
