"""How a run is made to end, drawn from a seed: at some instant, at a named place of the code, at a step seen from
outside (a git command, an agent's beginning or end), or by a signal that asks politely. And what comes over it before:
another run that takes its graph over, or a fault of its store's server or of the way there."""

from __future__ import annotations

import ast
import enum
import functools
import random
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

import dispatch
import harness.database


class Means(enum.Enum):
    """The value is how the report names it."""

    INSTANT = "SIGKILL at an instant, agents at work"
    BOOT = "SIGKILL while it starts and recovers"
    STORE = "SIGKILL at a kill point of the store"
    GIT = "SIGKILL around a git command"
    MERGE = "SIGKILL around a git command of a merge"
    AGENT = "SIGKILL at a spawn, an exit, a verify"
    RIVAL = "a second run beside it, then SIGKILL"
    SUSPENDED = "suspended, taken over, woken; then SIGKILL"
    PARTED = "cut off, taken over, let back; then SIGKILL"
    RESTART = "the server crashes, restarts; and SIGKILL"
    RESET = "connections reset; then SIGKILL"
    UNANSWERED = "cut around a COMMIT; then SIGKILL"
    SILENT = "the server falls silent; and SIGKILL"
    ASKED = "SIGTERM or SIGINT"
    ASKED_TWICE = "SIGTERM or SIGINT, twice"
    FAIR = "left alone"

    @property
    def kills(self) -> bool:
        return self not in (Means.ASKED, Means.ASKED_TWICE, Means.FAIR)


TAKEN_OVER = (Means.SUSPENDED, Means.PARTED)
FAULTS = (*TAKEN_OVER, Means.RESTART, Means.RESET, Means.UNANSWERED, Means.SILENT)

_ANYWHERE = (
    [Means.INSTANT] * 12
    + [Means.MERGE] * 4
    + [Means.STORE] * 12
    + [Means.AGENT] * 3
    + [Means.GIT] * 2
    + [Means.BOOT] * 2
    + [Means.RIVAL]
    + [Means.ASKED, Means.ASKED, Means.ASKED_TWICE]
)
#: How often each is drawn, by kind of store, out of a deck that is dealt without putting back.
DECKS: Mapping[str, list[Means]] = {
    "sqlite": _ANYWHERE + [Means.SUSPENDED] * 4,
    "postgresql": _ANYWHERE + list(FAULTS) * 4,
}

#: Git commands, by a word of theirs.
STEPS = ("worktree", "checkout", "clean", "status", "add", "commit", "rev-parse", "merge-base", "dispatch: keep")
MERGE_STEPS = ("merge-tree", "commit-tree", "read-tree", "dispatch: merge", "update-ref")
#: Killed before git runs, while it runs on, or when it has run.
MOMENTS = ("before", "beside", "after")
PLACES = ("spawn", "exit", "verify", "verified")
#: How a graph is taken over: because somebody says so, as its claim has run out by the store's clock, or really has.
WAYS = ("told", "told", "told", "expired", "expired", "expired", "waited")
#: Who lost it may go on before its heir has begun, beside it, or when it is dead already.
ORDERS = ("early", "beside", "alone")

#: Put in front of PATH as `git`. Only calls by a run itself count; `$CRASH_GIT` is `<marks> <n> <moment> <word...>`.
SHIM = """#!/bin/sh
set -- "$@"
read -r marks at moment word <<END
$CRASH_GIT
END
hit=no
for each in "$@"; do [ "$each" = "$word" ] && hit=yes; done
if [ $hit = yes ] && tr '\\0' ' ' < /proc/$PPID/cmdline | grep -q ' dispatch run '; then
    echo . >> "$marks"
    if [ "$(wc -l < "$marks")" = "$at" ]; then
        case $moment in
            before) kill -9 $PPID; exit 1 ;;
            beside) kill -9 $PPID; exec {git} "$@" ;;
            after) {git} "$@"; code=$?; kill -9 $PPID; exit $code ;;
        esac
    fi
fi
exec {git} "$@"
"""


@attrs.frozen
class Fate:
    """`place`: which kill point, git word or agent's place, at its `passage`-th passage; `moment` is of the git call or
    of the commit, or when somebody who was taken over goes on. `way`: how the graph is taken over.

    `delay_s` counts from the first agent that starts, for `BOOT` and `early` from the start of the program. A fault
    lasts `lasts_s`; the kill comes `then_s` after its end, or, if `awaits`, after the store is used again; if `within`,
    that long after the fault's beginning.
    """

    means: Means
    delay_s: float = 0.0
    place: str = ""
    passage: int = 0
    moment: str = ""
    signals: tuple[signal.Signals, ...] = ()
    way: str = ""
    early: bool = False
    lasts_s: float = 0.0
    within: bool = False
    awaits: bool = False
    then_s: float = 0.0

    @property
    def words(self) -> str:
        place = f" {self.moment} {self.place}:{self.passage}".replace("  ", " ") if self.place else ""
        asides = [
            self.way,
            "" if place else self.moment,
            *(name for name in ("early", "within", "awaits") if getattr(self, name)),
        ]
        asides += [f"for {self.lasts_s:.1f}s"] if self.lasts_s else []
        return " ".join(filter(None, (f"{self.means.name}{place} +{self.delay_s:.3f}s", *asides)))


FAIR = Fate(Means.FAIR)


def dealt(rng: random.Random, kind: str = "sqlite", turn: int = 0) -> Iterator[Fate]:
    """Fates without end, every means among them after a deck's length. The first run is the one that makes a store.

    The store's kill points come one after the other; with `turn` counting on by one a round, all come equally often.
    """
    opening = [name for name in killpoints(kind) if opens(name)]
    if rng.random() < 0.8:
        yield Fate(Means.STORE, place=opening[turn % len(opening)], passage=1)
    others = [name for name in killpoints(kind) if not opens(name)]
    number = turn
    while True:
        deck = list(DECKS[kind])
        rng.shuffle(deck)
        for means in deck:
            number += means is Means.STORE
            yield fate(rng, means, others[number % len(others)])


def fate(rng: random.Random, means: Means, killpoint: str = "") -> Fate:
    """One of that kind."""
    delay_s = rng.choice((rng.uniform(0.0, 0.15), rng.uniform(0.0, 1.0)))
    polite = (signal.SIGTERM, signal.SIGINT)
    if means in FAULTS:
        return _fault(rng, means, delay_s)
    match means:
        case Means.BOOT:
            return Fate(means, rng.uniform(0.3, 1.5))
        case Means.STORE:
            asked = polite[:1] if "-release" in killpoint else ()
            return Fate(means, delay_s, killpoint, rng.choice(_passages(killpoint)), signals=asked)
        case Means.GIT:
            return Fate(means, place=rng.choice(STEPS), passage=rng.choice((1, 1, 2)), moment=rng.choice(MOMENTS))
        case Means.MERGE:
            return Fate(means, place=rng.choice(MERGE_STEPS), passage=rng.randint(1, 2), moment=rng.choice(MOMENTS))
        case Means.AGENT:
            return Fate(means, place=rng.choice(PLACES), passage=rng.randint(1, 2))
        case Means.ASKED:
            return Fate(means, delay_s, signals=(rng.choice(polite),))
        case Means.ASKED_TWICE:
            return Fate(means, delay_s, signals=(rng.choice(polite), rng.choice(polite)))
        case _:
            return Fate(means, delay_s)


def _fault(rng: random.Random, means: Means, delay_s: float) -> Fate:
    drawn = Fate(means, delay_s, awaits=rng.random() < 0.4, then_s=rng.choice((0.0, rng.uniform(0.0, 0.8))))
    early = rng.random() < 0.25
    match means:
        case Means.SUSPENDED | Means.PARTED:
            way = rng.choice(WAYS)  # who is back before its heir has looked renews a claim that ran out
            soon = way == "told" and means is Means.SUSPENDED
            moment = rng.choice(ORDERS if soon else ORDERS[1:])
            return attrs.evolve(drawn, way=way, moment=moment, awaits=False)
        case Means.UNANSWERED:
            moment = rng.choice(("after", "after", "after", "before", "beside"))
            passage = rng.randint(1, 8) if early else 1
            return attrs.evolve(drawn, place="COMMIT", moment=moment, passage=passage, early=early)
        case Means.RESTART:
            drawn = attrs.evolve(drawn, lasts_s=rng.choice((0.05, rng.uniform(0.0, 1.5))))
        case Means.SILENT:
            drawn = attrs.evolve(drawn, lasts_s=rng.choice((*[rng.uniform(0.1, 2.5)] * 9, 12.0)))
        case _:
            pass
    within = bool(drawn.lasts_s) and rng.random() < 0.25
    delay_s = rng.uniform(0.2, 0.8) if early else delay_s
    return attrs.evolve(drawn, delay_s=delay_s, early=early, within=within, awaits=drawn.awaits and not within)


def _passages(killpoint: str) -> tuple[int, ...]:
    if killpoint.endswith("-send"):
        return (1, 4, 8, 12, 16, 24, 32)
    return (1, 2, 3, 4, 6, 8) if "-write" in killpoint else (1,)


def opens(killpoint: str) -> bool:
    """Whether it lies where a store is made, which happens once."""
    return "-create" in killpoint or "-migration" in killpoint


@functools.cache
def killpoints(kind: str) -> tuple[str, ...]:
    """Every name that is passed to `killpoint` in the code under test, of one kind of store, but for those of pruning:
    that comes once an hour, beside the owner, and is killed at each of them by `tests/integration/test_pruning.py`."""
    names = []
    folders = (Path(str(package.__file__)).parent for package in (dispatch, harness.database))
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        text = path.read_text()
        if "killpoint(" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "killpoint":
                    names += [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
    ours = (name for name in names if kind.startswith(name.partition(".")[0]))
    return tuple(name for name in ours if "-keyframe" not in name and "-prune" not in name)
