"""Rounds until so many kills have landed, and what they come to: counts, violations, and what they prove."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import attrs

from benchmarks.crash.checker import Violation, judge
from benchmarks.crash.controls import CONTROLS, missed
from benchmarks.crash.fates import Means, killpoints
from benchmarks.crash.round import Played, Round, Script, Tally

AT_WORK = 1 / 3  #: of all kills, at least so many must have met an agent at work
AT_AN_INSTANT = 1 / 2  #: and of those that were meant to
COVERED_FROM = 200  #: kills from which every kind of place must have been met


@attrs.define
class Result:
    """What a campaign came to. `failures` are rounds with something against them, `void` says why it proves nothing."""

    seed: int
    wanted: int
    rounds: int = 0
    seconds: float = 0.0
    sessions: int = 0
    merges: int = 0
    tally: Tally = attrs.field(factory=Tally)
    failures: list[Failure] = attrs.field(factory=list)
    controls: Counter[str] = attrs.field(factory=Counter)
    unseen: set[str] = attrs.field(factory=set)
    sabotages: dict[str, bool] = attrs.field(factory=dict)

    @property
    def void(self) -> list[str]:
        """Why it proves less than it should: an untested judge, or kills that met nobody."""
        kills, landed = self.tally.kills.total(), self.tally.landed.total()
        reasons = [f"the judge did not see: {name}" for name in sorted(self.unseen)]
        reasons += [f"the sabotage was not seen: {name}" for name, seen in self.sabotages.items() if not seen]
        if kills < self.wanted:
            reasons.append(f"only {kills} of {self.wanted} kills landed")
        if landed < AT_WORK * kills:
            reasons.append(f"only {landed} of {kills} kills met an agent at work")
        instants, met = self.tally.kills[Means.INSTANT], self.tally.landed[Means.INSTANT]
        if met < AT_AN_INSTANT * instants:
            reasons.append(f"only {met} of {instants} kills at an instant met an agent at work")
        if not self.failures:
            untried = [name for name, _, _ in CONTROLS if not self.controls[name]]
            reasons += [f"the judge was not tried on: {name}" for name in untried]
        if kills >= COVERED_FROM:
            reasons += [f"no kill was: {means.value}" for means in Means if means.kills and not self.tally.kills[means]]
        return reasons

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

    @property
    def replay(self) -> str:
        return f"python -m benchmarks.crash --seed {self.seed} --rounds 1"


def campaign(
    kills: int,
    seed: int,
    rounds: int = 0,
    jobs: int = 1,
    told: Callable[[str], None] = print,
    script: Script | None = None,
) -> Result:
    """Plays rounds of the seeds from `seed` on, `jobs` at a time, until `kills` have landed, or `rounds` if given."""
    result, began = Result(seed, 0 if rounds else kills), time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        pending: set[Future[tuple[Played, Path]]] = set()
        while True:
            while len(pending) < jobs and _wants_more(result, kills, rounds, len(pending)):
                pending.add(pool.submit(_play, seed + result.rounds + len(pending), script))
            if not pending:
                break
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                _take(result, *future.result(), told)
    result.seconds = time.monotonic() - began
    return result


def _wants_more(result: Result, kills: int, rounds: int, pending: int) -> bool:
    if rounds:
        return result.rounds + pending < rounds
    return result.tally.kills.total() < kills


def _play(seed: int, script: Script | None) -> tuple[Played, Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"crash-{seed}-"))
    return Round(seed, folder, script).play(), folder


def _take(result: Result, played: Played, folder: Path, told: Callable[[str], None]) -> None:
    """Judges a round, tries the judge on it, and adds it up."""
    violations = judge(played.plan, played.evidence)
    if violations:
        result.failures.append(Failure(played.seed, tuple(violations), played.story, folder))
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


def places_not_met(result: Result) -> list[str]:
    """The store's kill points that no kill met."""
    return [name for name in killpoints() if not result.tally.places[f"store {name}"]]
