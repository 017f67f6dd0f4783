"""The campaign on trial: rounds against a product with one defence taken out, which must not go well."""

from __future__ import annotations

import itertools
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs

from benchmarks.crash.checker import judge
from benchmarks.crash.fates import Fate, Means
from benchmarks.crash.plan import Plan, plan_of
from benchmarks.crash.round import Round, Script

SEEDS = 3  #: a kill may come at a harmless moment: so many rounds until the sabotage is seen


@attrs.frozen
class Trial:
    """`codes`: what a judge may find, one of them at least. Plan and script give the sabotage occasion to do harm."""

    sabotage: str
    codes: frozenset[str]
    script: Script
    suits: Callable[[Plan], bool]

    def seen(self, seed: int, told: Callable[[str], None] = print) -> bool:
        """Whether the judge finds what the sabotage does, in a product that otherwise works."""
        suitable = (each for each in itertools.count(seed) if self.suits(plan_of(each)))
        return any(self._seen_in(each, told) for each in itertools.islice(suitable, SEEDS))

    def _seen_in(self, seed: int, told: Callable[[str], None]) -> bool:
        folder = Path(tempfile.mkdtemp(prefix=f"crash-{self.sabotage}-{seed}-"))
        played = Round(seed, folder, self.script, self.sabotage).play()
        shutil.rmtree(folder)
        found = {violation.code for violation in judge(played.plan, played.evidence)}
        told(f"sabotage {self.sabotage}, seed {seed}: found {sorted(found) or 'nothing'}")
        return bool(found & self.codes) and len(played.evidence.mainline) > 1


def any_plan(plan: Plan) -> bool:
    return True


def outlived(plan: Plan) -> bool:
    """Whether slices that can start at once leave something that goes on long enough to be met by the next run."""
    first = [job for job in plan.jobs.values() if not job.needs]
    return sum(job.flavour.startswith("leaves") for job in first[: plan.cap]) >= 2


def trial(
    sabotage: str, codes: str, *fates: Fate, commands_at: float = 0.0, suits: Callable[[Plan], bool] = any_plan
) -> Trial:
    return Trial(sabotage, frozenset(codes.split()), Script(fates, len(fates), commands_at), suits)


AT_WORK = Fate(Means.INSTANT, 0.05)
LATER = Fate(Means.INSTANT, 0.3)
ASKED = Fate(Means.ASKED, 0.1, signals=(signal.SIGTERM,))
MERGED = Fate(Means.MERGE, place="dispatch: merge", passage=1, moment="after")
TRIALS = (
    trial("orphans", "twice rivals cap", LATER, LATER, LATER, suits=outlived),
    trial("cap", "cap", AT_WORK, LATER),
    trial("rivals", "rivals in-turn", AT_WORK),
    trial("acknowledgements", "acknowledged", ASKED, ASKED, ASKED, commands_at=1.0),
    trial("verify", "intact", AT_WORK),
    trial("merge-record", "order once", MERGED, MERGED),
    trial("work", "kept", AT_WORK, AT_WORK),
)
