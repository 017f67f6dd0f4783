"""`python -m benchmarks.fencing`, as `docs/verification.md` tells it.

Exit status 0 only if nothing was violated and the campaign counts.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator

from benchmarks.fencing.campaign import Result, is_seen, play
from benchmarks.fencing.grounds import KINDS
from benchmarks.fencing.sabotage import SABOTAGES

TRIAL = 60  #: turns of a campaign with sabotaged workers


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fencing", description="Trouble workers; judge what is left."
    )
    parser.add_argument(
        "--fleet", choices=(*KINDS, "all"), default="all", help="where work items and deliveries are kept"
    )
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-trial", action="store_true", help="don't try the campaign on sabotaged workers as well")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # workers and servers end with the campaign
    results = []
    for kind in KINDS if asked.fleet == "all" else (asked.fleet,):
        results.append(play(kind, asked.turns, asked.seed, lambda line: print(line, file=sys.stderr, flush=True)))
        print("\n".join(lines(results[-1])), flush=True)
    unseen = [] if asked.no_trial else [name for name in SABOTAGES if not is_seen(name, TRIAL, asked.seed)]
    print("\n".join(f"VOID: the sabotage was not seen: {name}" for name in unseen) or "each sabotage was seen")
    return 0 if all(result.well for result in results) and not unseen else 1


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


if __name__ == "__main__":
    sys.exit(main())
