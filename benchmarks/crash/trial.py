"""The campaign on trial: rounds against a product with one defence taken out, which must not go well."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs

from benchmarks.crash.checker import judge
from benchmarks.crash.fates import Fate, Means
from benchmarks.crash.round import Round, Script
from benchmarks.crash.stores import Servers


@attrs.frozen
class Trial:
    """`codes`: what a judge may find, one of them at least. Plans and script give the sabotage occasion to do harm.

    There are several `seeds`, as a kill may come at a harmless moment.
    """

    sabotage: str
    codes: frozenset[str]
    script: Script
    seeds: tuple[int, ...]
    store: str = "sqlite"

    def seen(self, told: Callable[[str], None] = print) -> bool:
        """Whether the judge finds what the sabotage does, in a product that otherwise works."""
        with contextlib.closing(Servers()) as servers:
            return any(self._seen_in(servers, seed, told) for seed in self.seeds)

    def _seen_in(self, servers: Servers, seed: int, told: Callable[[str], None]) -> bool:
        folder = Path(tempfile.mkdtemp(prefix=f"crash-{self.sabotage}-{seed}-"))
        with servers.kept(self.store, folder, str(seed)) as kept:
            played = Round(seed, folder, kept, self.script, self.sabotage).play()
        shutil.rmtree(folder)
        found = {violation.code for violation in judge(played.plan, played.evidence)}
        told(f"sabotage {self.sabotage}, seed {seed}: found {sorted(found) or 'nothing'}")
        return bool(found & self.codes) and len(played.evidence.mainline) > 1


def trial(
    sabotage: str,
    codes: str,
    *fates: Fate,
    commands_at: float = 0.0,
    seeds: tuple[int, ...] = (1, 2, 3),
    store: str = "sqlite",
) -> Trial:
    return Trial(sabotage, frozenset(codes.split()), Script(fates, len(fates), commands_at), seeds, store)


AT_WORK = Fate(Means.INSTANT, 0.05)
LATER = Fate(Means.INSTANT, 0.3)
ASKED = Fate(Means.ASKED, 0.1, signals=(signal.SIGTERM,))
MERGED = Fate(Means.MERGE, place="dispatch: merge", passage=1, moment="after")
CUT_AFTER = Fate(Means.UNANSWERED, 0.05, "COMMIT", 1, "after", awaits=True, then_s=0.5)
CUT_BEFORE = Fate(Means.UNANSWERED, 0.05, "COMMIT", 1, "before", then_s=0.05)
WOKEN = Fate(Means.SUSPENDED, 0.1, moment="alone", way="expired")
SECOND = Fate(Means.RIVAL, 0.1)
TRIALS = (
    # plans whose first sessions leave something that goes on for long
    trial("orphans", "twice rivals cap", LATER, LATER, seeds=(11, 18, 30)),
    trial("cap", "cap", AT_WORK, LATER),
    trial("rivals", "rivals in-turn", AT_WORK),
    trial("acknowledgements", "acknowledged", ASKED, ASKED, ASKED, commands_at=1.0),
    trial("verify", "intact", AT_WORK),
    trial("merge-record", "order once", MERGED, MERGED),
    trial("work", "kept", AT_WORK, AT_WORK),
    trial("expiry", "left", SECOND, SECOND),
    trial("expiry", "left", SECOND, SECOND, store="postgresql"),
    trial("epoch", "fenced batches", WOKEN, WOKEN, store="postgresql"),
    trial("unknown-failed", "batches", CUT_AFTER, CUT_AFTER, store="postgresql"),
    trial("unknown-done", "durable", CUT_BEFORE, CUT_BEFORE, store="postgresql"),
    trial("early-word", "durable", AT_WORK, AT_WORK, commands_at=1.0, store="postgresql"),
)
