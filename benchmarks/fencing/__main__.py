"""`python -m benchmarks.fencing`, as `docs/verification.md` tells it.

Exit status 0 only if nothing was violated and the campaign counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from benchmarks.fencing.campaign import Result, is_seen, play
from benchmarks.fencing.grounds import KINDS
from benchmarks.fencing.sabotage import SABOTAGES
from benchmarks.playing import Campaign


def lines(result: Result) -> Iterator[str]:
    """The table, the violations, the verdict."""
    yield f"{result.kind}, seed {result.seed}: {result.turns} turns in {result.seconds:.0f} s"
    yield f"  faults: {', '.join(f'{count} {what}' for what, count in sorted(result.faults.items()))}"
    yield f"  ends: {', '.join(f'{count} {state}' for state, count in sorted(result.states.items()))}"
    yield f"  {result.attempts} attempts, {result.taken_over} taken over by another worker, {result.effects} effects"
    yield f"  {result.repeated} submissions repeated; {result.verdict.excused} effects of a holder that stood still"
    if result.exits:
        yield f"  workers that ended by themselves: {dict(result.exits)}"
    yield from (f"  {code}: {text}" for code, text in result.verdict.violations[:20])
    yield from (f"  VOID: {reason}" for reason in result.void)
    yield f"  {len(result.verdict.violations)} violations"


CAMPAIGN = Campaign(
    "benchmarks.fencing", "Trouble workers; judge what is left.", ("turns", 1000), 60, tuple(KINDS), SABOTAGES,
    play, is_seen, lines,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(CAMPAIGN.main())
