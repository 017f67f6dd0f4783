"""`python -m benchmarks.envelopes`, as `docs/verification.md` tells it.

Exit status 0 only if nothing was violated and each sabotage was seen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from benchmarks.envelopes.campaign import KINDS, Result, is_seen, play
from benchmarks.envelopes.checker import by_code
from benchmarks.envelopes.sabotage import SABOTAGES
from benchmarks.playing import Campaign

SHOWN = 5  #: violations of a code


def lines(result: Result) -> Iterator[str]:
    """The table, the violations, the verdict."""
    yield f"{result.fleet}, seed {result.seed}: {result.planted.total()} strays in {result.seconds:.0f} s"
    yield from (f"  {count:6,} {kind}" for kind, count in result.planted.items())
    yield f"  {result.good:6,} good turns among them"
    yield f"  {result.poisons} kinds of poison; {result.graves:,} graves of {result.burials:,} deliveries"
    yield f"  {result.verdict.recounted} burials more than were planted; {result.runs:,} turns ran"
    delays_s = result.verdict.delays_s
    if delays_s:
        at_99 = delays_s[len(delays_s) * 99 // 100]
        middle = delays_s[len(delays_s) // 2]
        yield f"  from deadline to cancellation: {middle:.2f} s, p99 {at_99:.2f} s, at most {delays_s[-1]:.2f} s"
    for code, texts in by_code(result.verdict.violations).items():
        yield from (f"  {code}: {text}" for text in texts[:SHOWN])
        yield f"  {code}: {len(texts)} in all"
    yield f"  {len(result.verdict.violations)} violations"


CAMPAIGN = Campaign(
    "benchmarks.envelopes", "Plant strays among good turns; judge what is left.", ("strays", 10_000), 120, tuple(KINDS),
    SABOTAGES, play, is_seen, lines,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
