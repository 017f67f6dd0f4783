"""The campaign on trial: rounds against a product with one defence taken out, which must not go well."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs

from benchmarks.crash.checker import judge
from benchmarks.crash.fates import Fate, Means
from benchmarks.crash.round import Round, Script


@attrs.frozen
class Trial:
    """`codes`: what a judge may find, one of them at least. Plans and script give the sabotage occasion to do harm.

    There are several `seeds`, as a kill may come at a harmless moment.
    """

    sabotage: str
    codes: frozenset[str]
    script: Script
    seeds: tuple[int, ...]

    def seen(self, told: Callable[[str], None] = print) -> bool:
        """Whether the judge finds what the sabotage does, in a product that otherwise works."""
        return any(self._seen_in(seed, told) for seed in self.seeds)

    def _seen_in(self, seed: int, told: Callable[[str], None]) -> bool:
        folder = Path(tempfile.mkdtemp(prefix=f"crash-{self.sabotage}-{seed}-"))
        played = Round(seed, folder, self.script, self.sabotage).play()
        shutil.rmtree(folder)
        found = {violation.code for violation in judge(played.plan, played.evidence)}
        told(f"sabotage {self.sabotage}, seed {seed}: found {sorted(found) or 'nothing'}")
        return bool(found & self.codes) and len(played.evidence.mainline) > 1


def trial(
    sabotage: str, codes: str, *fates: Fate, commands_at: float = 0.0, seeds: tuple[int, ...] = (1, 2, 3)
) -> Trial:
    return Trial(sabotage, frozenset(codes.split()), Script(fates, len(fates), commands_at), seeds)


AT_WORK = Fate(Means.INSTANT, 0.05)
LATER = Fate(Means.INSTANT, 0.3)
ASKED = Fate(Means.ASKED, 0.1, signals=(signal.SIGTERM,))
MERGED = Fate(Means.MERGE, place="dispatch: merge", passage=1, moment="after")
TRIALS = (
    # plans whose first sessions leave something that goes on for long
    trial("orphans", "twice rivals cap", LATER, LATER, seeds=(11, 18, 30)),
    trial("cap", "cap", AT_WORK, LATER),
    trial("rivals", "rivals in-turn", AT_WORK),
    trial("acknowledgements", "acknowledged", ASKED, ASKED, ASKED, commands_at=1.0),
    trial("verify", "intact", AT_WORK),
    trial("merge-record", "order once", MERGED, MERGED),
    trial("work", "kept", AT_WORK, AT_WORK),
)
