"""What is wrong with a fleet, and how to mend it.

`findings` looks: it opens what the environment names and asks each part once, but makes no file that is missing.
`judged` and the functions below it decide what the answers mean, and ask nobody.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from harness.fleet.clone import remote_problems
from harness.fleet.errors import FleetError
from harness.fleet.looking import (
    authority_to_look_at,
    is_missing,
    label,
    naming_transport,
    queue_variable,
    why_not_made,
)
from harness.fleet.opening import open_transport
from harness.fleet.ports import KEPT_S, Authority, Tally, WorkerPresence
from harness.fleet.privacy import Redactor
from harness.fleet.settings import FleetSettings, problems, queue_token
from harness.fleet.work_item import WorkItemState

CLOCKS_APART_S = 2.0  #: between this machine's and the database's, before it is worth a word
RECOVERY_S = 10.0  #: a lease that ran out is put in order within a second or two, where any worker is alive
SHORT_TTL_S = 15.0  #: a database that restarts is away for about as long
CROWDED = 0.8  #: of the depth that is allowed


class Standing(enum.Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@attrs.frozen
class Finding:
    """`name` stays the same, for those who watch it; `mend` is empty where nothing has to be done."""

    name: str
    standing: Standing
    says: str
    mend: str = ""


def worst(found: Sequence[Finding]) -> Standing:
    ranks = list(Standing)
    return max((each.standing for each in found), key=ranks.index, default=Standing.OK)


def findings(environ: Mapping[str, str], clock: Callable[[], float] = time.time) -> Iterator[Finding]:
    """One after the other, as they are known. `clock` is this machine's, in Unix seconds."""
    redactor = Redactor.of(environ)
    wrong = (*problems(environ), *remote_problems(environ))
    for problem in wrong:
        yield Finding("configuration", Standing.FAIL, redactor.redacted(str(problem)), "set it right, or unset it")
    if wrong:
        return
    settings = FleetSettings.of(environ)
    yield _configuration(settings)
    yield _leases(settings)
    yield from _authority(settings, redactor, clock)
    yield from _transport(settings, redactor)


def _authority(settings: FleetSettings, redactor: Redactor, clock: Callable[[], float]) -> Iterator[Finding]:
    if is_missing(settings.state_db_uri):
        yield _missing("authority", "STATE_DB_URI", settings.state_db_uri)
        return
    try:
        with authority_to_look_at(settings) as authority:
            yield from judged(*_asked(authority, clock), queue_token(settings))
    except FleetError as problem:
        mend = _mend("STATE_DB_URI", settings.state_db_uri)
        yield Finding("authority", Standing.FAIL, redactor.redacted(str(problem)), mend)


def _missing(name: str, variable: str, uri: str) -> Finding:
    """Of a file: nobody has begun yet, or nobody can."""
    problem = why_not_made(uri)
    if problem:
        return Finding(name, Standing.FAIL, f"{label(variable, uri)}: {problem}", _mend(variable, uri))
    says = f"{label(variable, uri)}: its file is not there yet: a worker makes it, or whoever submits the first turn"
    return Finding(name, Standing.WARN, says, "start one: agent-dispatch-worker")


def _mend(variable: str, uri: str) -> str:
    if uri.startswith("sqlite"):
        return f"see that {variable} names a file in a folder on a local disk that this user may write to"
    what = "a database that runs and lets this user in" if uri else "brokers that run and can be reached from here"
    return f"see that {variable} names {what}"


def _asked(authority: Authority, clock: Callable[[], float]) -> tuple[Tally, Sequence[WorkerPresence], float]:
    """The tally, all workers that are remembered, and by how much this machine's clock is ahead of the database's."""
    before = clock()
    tally = authority.tally()
    ahead_s = (before + clock()) / 2 - tally.at
    return tally, authority.workers(KEPT_S), ahead_s


def _transport(settings: FleetSettings, redactor: Redactor) -> Iterator[Finding]:
    variable = "KAFKA_BOOTSTRAP_SERVERS" if settings.backend == "kafka" else queue_variable(settings)
    if is_missing(settings.queue_uri):
        yield _missing("transport", variable, settings.queue_uri)
        return
    try:
        with naming_transport(settings), contextlib.closing(open_transport(settings)) as transport:
            depth = transport.depth()
    except FleetError as problem:
        mend = f"{_mend(variable, settings.queue_uri)}; turns are refused meanwhile"
        yield Finding("transport", Standing.FAIL, redactor.redacted(str(problem)), mend)
        return
    yield Finding("transport", Standing.OK, f"{settings.backend} answers")
    yield depth_judged(depth, settings.max_depth)


# -- what the answers mean ---------------------------------------------------------------------------------------------


def judged(tally: Tally, workers: Sequence[WorkerPresence], ahead_s: float, queue: str) -> Iterator[Finding]:
    """All that the authority's answers say. `queue` is the token of the one that the environment names."""
    alive = [each for each in workers if each.is_alive(tally.at)]
    yield Finding("authority", Standing.OK, f"it answers, and holds {_items(sum(tally.items.values()))}")
    yield Finding("schema", Standing.OK, f"version {tally.schema}")
    yield _clock(ahead_s)
    yield _lease_recovery(tally, alive)
    yield _workers(tally, alive, len(workers) - len(alive))
    yield _queue(alive, queue)
    yield _dead_letters(tally)


def depth_judged(depth: int, limit: int) -> Finding:
    says = f"{depth:,} of {limit:,} turns that may wait or run"
    if depth >= limit:
        return Finding("depth", Standing.WARN, f"{says}: new ones are refused", "start more workers, or wait for them")
    if depth >= CROWDED * limit:
        mend = "start more workers, or raise AGENT_DISPATCH_MAX_DEPTH"
        return Finding("depth", Standing.WARN, f"{says}: new ones will soon be refused", mend)
    return Finding("depth", Standing.OK, says)


def _configuration(settings: FleetSettings) -> Finding:
    authority = "PostgreSQL" if settings.state_db_uri.startswith("postgres") else "SQLite"
    if settings.backend == "kafka" and authority == "SQLite":
        says = "turns travel through Kafka, but STATE_DB_URI is a file, which no other machine can use"
        return Finding("configuration", Standing.WARN, says, "name a PostgreSQL database with STATE_DB_URI")
    weakness, mend = settings.kafka_servers.weakness()
    if weakness:
        return Finding("configuration", Standing.WARN, f"of Kafka, {weakness}", mend)
    return Finding("configuration", Standing.OK, f"authority in {authority}, transport {settings.backend}")


def _leases(settings: FleetSettings) -> Finding:
    says = f"a lease lasts {settings.claim_ttl_s:g} s and is renewed every {settings.renew_interval_s:g} s"
    if settings.claim_ttl_s < SHORT_TTL_S:
        says += ": a database that is away for as long takes turns from workers that are well"
        return Finding("leases", Standing.WARN, says, "raise AGENT_DISPATCH_CLAIM_TTL_S; 120 is the default")
    return Finding("leases", Standing.OK, says)


def _clock(ahead_s: float) -> Finding:
    if abs(ahead_s) <= CLOCKS_APART_S:
        return Finding("clock", Standing.OK, f"within {CLOCKS_APART_S:g} s of the database's")
    way = "ahead of" if ahead_s > 0 else "behind"
    says = f"this machine's clock is {abs(ahead_s):,.0f} s {way} the database's"
    mend = "keep both on time (NTP); leases go by the database's, but deadlines that are reckoned here would be off"
    return Finding("clock", Standing.WARN, says, mend)


def _lease_recovery(tally: Tally, alive: Sequence[WorkerPresence]) -> Finding:
    name = "dispatch_lease_recovery"
    if tally.overdue_s <= RECOVERY_S:
        return Finding(name, Standing.OK, "no lease has run out and been left")
    says = f"{_leases_out(tally.overdue)} and nobody put that in order, the oldest {tally.overdue_s:,.0f} s ago"
    if not alive:
        return Finding(name, Standing.FAIL, f"{says}: no worker is alive", "start one: agent-dispatch-worker")
    mend = "look into the workers' logs: each looks for such leases every second, and must have failed at it"
    return Finding(name, Standing.FAIL, says, mend)


def _workers(tally: Tally, alive: Sequence[WorkerPresence], silent: int) -> Finding:
    """Turns that are due and that none of them can run are a failure; a fleet without work needs no workers."""
    kinds = {kind for each in alive for kind in each.kinds}
    stranded = {kind: number for kind, number in tally.due.items() if kind not in kinds}
    due = ", ".join(f"{number:,} of kind {kind!r}" for kind, number in sorted(stranded.items())[:5])
    if not alive:
        gone = f"; {silent} fell silent within the hour" if silent else ""
        if not stranded:
            return Finding("workers", Standing.WARN, f"none is alive{gone}", "start one: agent-dispatch-worker")
        return Finding(
            "workers", Standing.FAIL, f"turns are due and none is alive{gone}: {due}", "start: agent-dispatch-worker"
        )
    if stranded:
        mend = "start a worker with --executor KIND=module:callable for each"
        return Finding("workers", Standing.FAIL, f"turns are due that no worker has an executor for: {due}", mend)
    busy, slots = sum(each.busy for each in alive), sum(each.slots for each in alive)
    says = f"{len(alive):,} alive, {busy:,} of {slots:,} slots busy"
    if silent:
        mend = "they were killed or cut off: see that they were started again"
        return Finding("workers", Standing.WARN, f"{says}; {silent} fell silent within the hour", mend)
    return Finding("workers", Standing.OK, says)


def _queue(alive: Sequence[WorkerPresence], queue: str) -> Finding:
    """A turn that was put into another queue than a worker takes from is not found there, and keeps a place in it."""
    tokens = {each.queue for each in alive if each.queue}
    elsewhere = sum(each.queue not in ("", queue) for each in alive)
    if len(tokens) > 1:
        says = f"living workers take turns from {len(tokens)} different queues, {elsewhere} of them not from this one"
    elif elsewhere:
        says = "living workers take turns from another queue than the one that is named here"
    else:
        return Finding("queue", Standing.OK, "living workers take turns from this one")
    mend = "give all workers and all who submit the same TASK_QUEUE_BACKEND, TASK_QUEUE_URI and KAFKA_BOOTSTRAP_SERVERS"
    return Finding("queue", Standing.WARN, says, mend)  # one server may go by two names


def _dead_letters(tally: Tally) -> Finding:
    number = tally.items.get(WorkItemState.DEAD_LETTER, 0)
    if not number:
        return Finding("dead_letters", Standing.OK, "none")
    mend = "`slice-dispatch jobs dead` shows them and their causes; `jobs requeue ID` tries one again"
    return Finding("dead_letters", Standing.WARN, f"{_items(number)} failed too often", mend)


def _items(number: int) -> str:
    return f"{number:,} work item{'' if number == 1 else 's'}"


def _leases_out(number: int) -> str:
    return "1 lease ran out" if number == 1 else f"{number:,} leases ran out"
