"""`python -m benchmarks.envelopes`, as `docs/verification.md` tells it.

Exit status 0 only if nothing was violated and each sabotage was seen.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator

from benchmarks.envelopes.campaign import KINDS, Result, is_seen, play
from benchmarks.envelopes.checker import by_code
from benchmarks.envelopes.sabotage import SABOTAGES

TRIAL = 120  #: strays of a campaign with sabotaged workers
SHOWN = 5  #: violations of a code


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.envelopes", description="Plant strays among good turns; judge what is left."
    )
    parser.add_argument(
        "--fleet", choices=(*KINDS, "all"), default="all", help="where work items and deliveries are kept"
    )
    parser.add_argument("--strays", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-trial", action="store_true", help="don't try the campaign on sabotaged workers as well")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # workers and servers end with the campaign
    results = []
    for fleet in KINDS if asked.fleet == "all" else (asked.fleet,):
        results.append(play(fleet, asked.strays, asked.seed, lambda line: print(line, file=sys.stderr, flush=True)))
        print("\n".join(lines(results[-1])), flush=True)
    unseen = [] if asked.no_trial else [name for name in SABOTAGES if not is_seen(name, TRIAL, asked.seed)]
    if not asked.no_trial:
        print("\n".join(f"VOID: the sabotage was not seen: {name}" for name in unseen) or "each sabotage was seen")
    return 0 if all(result.well for result in results) and not unseen else 1


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


if __name__ == "__main__":
    sys.exit(main())
