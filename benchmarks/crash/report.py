"""What a campaign came to, in words and as a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.crash.campaign import Failure, Result, commit_under_test
from benchmarks.crash.controls import CONTROLS
from benchmarks.crash.fates import FAULTS, Means, killpoints

SHOWN = 12  #: violations of a round


def report_lines(result: Result) -> Iterator[str]:
    """The table, the violations, the verdict."""
    tally = result.tally
    last = result.seed + max(0, result.rounds - 1)
    yield f"{result.store}, commit {commit_under_test()}, seeds {result.seed} to {last}"
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
    yield f"{result.seconds / kills:.2f} s a kill"
    yield from _fault_lines(result)
    tried = sum(map(bool, result.controls.values()))
    yield f"the judge was tried on {tried} of {len(CONTROLS)} kinds of doctored evidence"
    if result.sabotages:
        yield f"and saw {sum(result.sabotages.values())} of {len(result.sabotages)} sabotages of the product"
    for failure in result.failures:
        yield from failure_lines(failure)
    yield from (f"VOID: {reason}" for reason in result.void)
    yield "0 violations" if result.well else f"{sum(len(each.violations) for each in result.failures)} violations"


def _fault_lines(result: Result) -> Iterator[str]:
    """What the store met with."""
    tally = result.tally
    met = {name: tally.places[f"store {name}"] for name in killpoints(result.store)}
    least = min(met, key=lambda name: met[name])
    yield f"kills at {len(met)} kill points of the store: {sum(met.values())}, {met[least]} at least ({least})"
    struck = [f"{tally.struck[means]} {means.name.lower()}" for means in FAULTS if tally.struck[means]]
    yield f"faults that met a run: {', '.join(struck) or 'none'}; {tally.refused} writes of former owners refused"
    if tally.cuts:
        yield f"cut around a COMMIT: {', '.join(f'{count} {what}' for what, count in sorted(tally.cuts.items()))}"
    if tally.resumed_s:
        took = sorted(tally.resumed_s)
        yield (
            f"the store was used again {len(took)} times after the fault's end, after {took[len(took) // 2]:.1f} s"
            f" (median), {took[-1]:.1f} s at the most"
        )


def failure_lines(failure: Failure) -> Iterator[str]:
    """What is against a round, how it went, and how to play it again."""
    yield ""
    yield f"FAILED: seed {failure.seed}, commit {commit_under_test()}; everything is in {failure.folder}"
    yield from (f"  {each.code}: {each.text}" for each in failure.violations[:SHOWN])
    if len(failure.violations) > SHOWN:
        yield f"  and {len(failure.violations) - SHOWN} more"
    yield from (f"    {line}" for line in failure.story)
    yield f"  again (the same plan and fates, at other instants): {failure.replay}"


def report_document(result: Result) -> dict[str, Any]:
    """For JSON."""
    tally = result.tally
    return {
        "store": result.store,
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
        "faults": {means.name.lower(): count for means, count in tally.struck.items()},
        "cuts": dict(sorted(tally.cuts.items())),
        "resumed_s": [round(each, 2) for each in sorted(tally.resumed_s)],
        "refused_writes": tally.refused,
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
    }
