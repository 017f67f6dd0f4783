"""`python -m benchmarks.crash`, as `docs/verification.md` tells it.

Exit status 0 only if nothing was violated and the campaign counts.
"""

from __future__ import annotations

import argparse
import os
import sys

from benchmarks.crash.campaign import campaign
from benchmarks.crash.report import report_document, report_lines
from benchmarks.crash.trial import TRIALS


def told(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash", description="Kill a real run again and again.")
    parser.add_argument("--kills", type=int, default=300, help="play rounds until so many kills have landed")
    parser.add_argument("--rounds", type=int, default=0, help="play so many rounds instead")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next has the next")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="rounds at a time")
    parser.add_argument("--no-trial", action="store_true", help="don't try the campaign on sabotaged products as well")
    parser.add_argument("--json", action="store_true", help="print a document instead of the table")
    asked = parser.parse_args()
    result = campaign(asked.kills, asked.seed, asked.rounds, asked.jobs, told)
    if not asked.no_trial:
        result.sabotages = {trial.sabotage: trial.seen(told) for trial in TRIALS}
    print(report_document(result) if asked.json else "\n".join(report_lines(result)))
    return 0 if result.well else 1


if __name__ == "__main__":
    sys.exit(main())
