"""`python -m benchmarks.members`, as `docs/verification.md` tells it.

Exit status 0 only if nothing came that should not have.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator

from benchmarks.members.stage import Stage, stage
from benchmarks.members.trials import Report, churn, deadly, lost_answers

WORKERS = 3


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.members", description="Trouble a consumer group of Kafka; judge what is left."
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="for so long members come and go")
    parser.add_argument("--losses", type=int, default=200, help="of acknowledgements")
    parser.add_argument("--deadly", type=int, default=12, help="turns that kill their worker, five times each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("churn", "lost", "deadly"))
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # workers and servers end with the campaign
    trials: dict[str, Callable[[Stage], Report]] = {
        "churn": lambda on: churn(on, 60 * asked.minutes, asked.seed),
        "lost": lambda on: lost_answers(on, asked.losses, WORKERS),
        "deadly": lambda on: deadly(on, asked.deadly, 5),
    }
    reports = []
    for name, trial in trials.items():
        if asked.only in (None, name):
            with stage(0 if name == "lost" else WORKERS) as on:
                reports.append(trial(on))
            print("\n".join(lines(reports[-1])), flush=True)
    return 1 if any(report.problems for report in reports) else 0


def lines(report: Report) -> Iterator[str]:
    yield report.name
    yield from (f"  {what}: {value}" for what, value in report.seen.items())
    yield from (f"  PROBLEM {problem}" for problem in report.problems)


if __name__ == "__main__":
    sys.exit(main())
