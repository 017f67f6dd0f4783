"""`python -m benchmarks.crash`, as `docs/verification.md` tells it.

Exit status 0 only if nothing was violated and the campaign counts. SIGTERM breaks it off: the rounds that are being
played are played to their end, and the report is of all that were, and void for what was not seen.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable

import attrs

from benchmarks.crash.campaign import Demand, Result, campaign
from benchmarks.crash.report import report_document, report_lines
from benchmarks.crash.stores import STORES
from benchmarks.crash.trial import TRIALS


def told(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash", description="Kill a real run again and again.")
    parser.add_argument("--store", choices=(*STORES, "both"), default="sqlite", help="where the graph is kept")
    parser.add_argument("--kills", type=int, default=300, help="play rounds until so many kills have landed")
    parser.add_argument("--faults", type=int, help="and so many of each fault; by default a tenth")
    parser.add_argument("--rounds", type=int, default=0, help="play so many rounds instead")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next has the next")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="rounds at a time")
    parser.add_argument("--no-trial", action="store_true", help="don't try the campaign on sabotaged products as well")
    parser.add_argument("--json", action="store_true", help="print a document instead of the table")
    asked = parser.parse_args()
    asked_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    results = [
        _played(store, asked, asked_to_end.is_set) for store in (STORES if asked.store == "both" else (asked.store,))
    ]
    if asked.json:
        print(json.dumps([report_document(result) for result in results], indent=2))
    else:
        print("\n\n".join("\n".join(report_lines(result)) for result in results))
    return 0 if all(result.well for result in results) else 1


def _played(store: str, asked: argparse.Namespace, broken_off: Callable[[], bool]) -> Result:
    wanted = Demand(rounds=asked.rounds) if asked.rounds else Demand.of(asked.kills)
    if asked.faults is not None and not asked.rounds:
        wanted = attrs.evolve(wanted, faults=asked.faults)
    result = campaign(store, wanted, asked.seed, asked.jobs, told, broken_off=broken_off)
    if not (asked.no_trial or broken_off()):
        result.sabotages = {trial.sabotage: trial.seen(told) for trial in TRIALS if trial.store == store}
    return result


if __name__ == "__main__":
    sys.exit(main())
