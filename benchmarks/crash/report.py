"""What a campaign came to, in words and as a document."""

from __future__ import annotations

import json
from collections.abc import Iterator

from benchmarks.crash.campaign import Failure, Result, commit_under_test, places_not_met
from benchmarks.crash.controls import CONTROLS
from benchmarks.crash.fates import Means

SHOWN = 12  #: violations of a round


def report_lines(result: Result) -> Iterator[str]:
    """The table, the violations, the verdict."""
    tally = result.tally
    yield f"commit {commit_under_test()}, seeds {result.seed} to {result.seed + max(0, result.rounds - 1)}"
    yield ""
    yield f"{'how a run was ended':44} {'ended':>6} {'agents at work':>15} {'too late':>9}"
    for means in Means:
        ended = tally.kills[means] + tally.asked[means]
        if ended or tally.missed[means]:
            at_work = tally.landed[means] if means.kills else "-"
            yield f"{means.value:44} {ended:>6} {at_work!s:>15} {tally.missed[means]:>9}"
    yield f"{'all kills':44} {tally.kills.total():>6} {tally.landed.total():>15}"
    yield ""
    commands = ", ".join(f"{count} {what}" for what, count in sorted(tally.commands.items()))
    yield f"{result.rounds} rounds in {result.seconds:.0f} s: {tally.restarts} restarts, {result.sessions} sessions,"
    yield f"{result.merges} merges, {tally.rivals} second runs refused; commands: {commands or 'none'}"
    kills = max(1, tally.kills.total())
    yield f"{result.seconds / kills:.2f} s a kill; kill points of the store not met: {places_not_met(result) or 'none'}"
    tried = sum(map(bool, result.controls.values()))
    yield f"the judge was tried on {tried} of {len(CONTROLS)} kinds of doctored evidence"
    if result.sabotages:
        yield f"and saw {sum(result.sabotages.values())} of {len(result.sabotages)} sabotages of the product"
    for failure in result.failures:
        yield from failure_lines(failure)
    yield from (f"VOID: {reason}" for reason in result.void)
    yield "0 violations" if result.well else f"{sum(len(each.violations) for each in result.failures)} violations"


def failure_lines(failure: Failure) -> Iterator[str]:
    """What is against a round, how it went, and how to play it again."""
    yield ""
    yield f"FAILED: seed {failure.seed}, commit {commit_under_test()}; everything is in {failure.folder}"
    yield from (f"  {each.code}: {each.text}" for each in failure.violations[:SHOWN])
    if len(failure.violations) > SHOWN:
        yield f"  and {len(failure.violations) - SHOWN} more"
    yield from (f"    {line}" for line in failure.story)
    yield f"  again (the same plan and fates, at other instants): {failure.replay}"


def report_document(result: Result) -> str:
    """JSON."""
    tally = result.tally
    return json.dumps(
        {
            "commit": commit_under_test(),
            "seed": result.seed,
            "rounds": result.rounds,
            "seconds": round(result.seconds, 1),
            "kills": {means.name.lower(): count for means, count in tally.kills.items()},
            "agents_at_work": {means.name.lower(): count for means, count in tally.landed.items()},
            "asked": {means.name.lower(): count for means, count in tally.asked.items()},
            "too_late": {means.name.lower(): count for means, count in tally.missed.items()},
            "places": dict(sorted(tally.places.items())),
            "commands": dict(sorted(tally.commands.items())),
            "restarts": tally.restarts,
            "second_runs": tally.rivals,
            "sessions": result.sessions,
            "merges": result.merges,
            "controls": dict(sorted(result.controls.items())),
            "sabotages": result.sabotages,
            "violations": [
                {"seed": each.seed, "code": one.code, "text": one.text, "replay": each.replay}
                for each in result.failures
                for one in each.violations
            ],
            "void": result.void,
        },
        indent=2,
    )
