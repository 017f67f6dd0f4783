"""What a worker makes sure of before it takes its first turn: all that can be wrong is told at once, and nothing is
started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from harness.fleet.clone import remote_problems
from harness.fleet.envelope import check_reference
from harness.fleet.errors import FleetError, InvalidSettingError, InvalidTurnError, NotReadyError
from harness.fleet.executors import Executor, load_executors
from harness.fleet.looking import naming_authority, naming_transport
from harness.fleet.opening import Fleet, open_fleet
from harness.fleet.settings import FleetSettings, problems


@attrs.frozen(eq=False)
class Ready:
    """All that a worker needs."""

    fleet: Fleet
    executors: Mapping[str, Executor]


def prepared(environ: Mapping[str, str], named: Sequence[str]) -> Ready:
    """The fleet that the environment names, opened and heard from, and the executors: installed ones and those `named`
    as `kind=module:callable`. Raises `NotReadyError`.
    """
    executors, wrong = _executors(named)
    settings_wrong = [str(problem) for problem in problems(environ)]
    wrong = [*settings_wrong, *map(str, remote_problems(environ)), *wrong]
    fleet: Fleet | None = None
    if not settings_wrong:
        try:
            settings = FleetSettings.of(environ)
            with naming_transport(settings):  # an authority is reached when it is first asked
                fleet = open_fleet(settings)
            wrong += _unheard(fleet)
        except FleetError as problem:
            wrong.append(str(problem))
    if wrong or fleet is None:
        if fleet is not None:
            fleet.close()
        raise NotReadyError(wrong)
    return Ready(fleet, executors)


def _unheard(fleet: Fleet) -> list[str]:
    """What is wrong with those of its two sides that don't answer."""
    wrong: list[str] = []
    for naming, ask in (
        (naming_authority, lambda: fleet.authority.overtaken(1)),
        (naming_transport, fleet.transport.depth),
    ):
        try:
            with naming(fleet.settings):
                ask()
        except FleetError as problem:
            wrong.append(str(problem))
        except BaseException:
            fleet.close()
            raise
    return list(dict.fromkeys(wrong))  # both may be in the one database that is away


def _executors(named: Sequence[str]) -> tuple[dict[str, Executor], list[str]]:
    """By kind, and what is wrong with them."""
    places: dict[str, str] = {}
    wrong: list[str] = []
    for text in named:
        kind, equals, place = text.partition("=")
        if not (kind and equals and place):
            wrong.append(f"--executor {text}: write kind=module:callable")
        elif problem := _problem_of(kind):
            wrong.append(f"--executor {text!r}: {problem}")
        elif kind in places:
            wrong.append(f"--executor {text}: there is another one of kind {kind!r}; name each kind once")
        else:
            places[kind] = place
    executors: dict[str, Executor] = {}
    for some in ({}, *({kind: place} for kind, place in places.items())):  # one by one, to tell all that is wrong
        try:
            executors |= load_executors(some)
        except InvalidSettingError as problem:
            wrong.append(str(problem))
    if not executors and not wrong:
        wrong.append("no executor is installed or named: name one with --executor kind=module:callable")
    return executors, list(dict.fromkeys(wrong))


def _problem_of(kind: str) -> str:
    """Why no turn can be of that kind; nothing if one can."""
    try:
        check_reference("kind", kind)
    except InvalidTurnError as problem:
        return str(problem)
    return ""
