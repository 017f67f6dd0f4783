"""How a run is made to end, drawn from a seed: at some instant, at a named place of the code, at a step seen from
outside (a git command, an agent's beginning or end), or by a signal that asks politely."""

from __future__ import annotations

import ast
import enum
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import attrs

import dispatch


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
    ASKED = "SIGTERM or SIGINT"
    ASKED_TWICE = "SIGTERM or SIGINT, twice"
    FAIR = "left alone"

    @property
    def kills(self) -> bool:
        return self not in (Means.ASKED, Means.ASKED_TWICE, Means.FAIR)


#: How often each is drawn, out of a deck that is dealt without putting back.
DECK = (
    [Means.INSTANT] * 9
    + [Means.MERGE] * 4
    + [Means.STORE] * 4
    + [Means.AGENT] * 3
    + [Means.GIT] * 2
    + [Means.BOOT] * 2
    + [Means.RIVAL, Means.SUSPENDED]
    + [Means.ASKED, Means.ASKED, Means.ASKED_TWICE]
)

#: Git commands, by a word of theirs.
STEPS = ("worktree", "checkout", "clean", "status", "add", "commit", "rev-parse", "merge-base", "dispatch: keep")
MERGE_STEPS = ("merge-tree", "commit-tree", "read-tree", "dispatch: merge", "update-ref")
#: Killed before git runs, while it runs on, or when it has run.
MOMENTS = ("before", "beside", "after")
PLACES = ("spawn", "exit", "verify", "verified")

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
    """`place`: which kill point, git word or agent's place, at its `passage`-th passage; `moment` is of the git call.

    `delay_s` counts from the first agent that starts, for `BOOT` from the start of the program.
    """

    means: Means
    delay_s: float = 0.0
    place: str = ""
    passage: int = 0
    moment: str = ""
    signals: tuple[signal.Signals, ...] = ()

    @property
    def words(self) -> str:
        place = f" {self.moment} {self.place}:{self.passage}".replace("  ", " ") if self.place else ""
        return f"{self.means.name}{place} +{self.delay_s:.3f}s"


FAIR = Fate(Means.FAIR)


def dealt(rng: random.Random) -> Iterator[Fate]:
    """Fates without end, every means among them after a deck's length. The first run is the one that makes a store."""
    if rng.random() < 0.5:
        yield Fate(Means.STORE, place=rng.choice([name for name in killpoints() if opens(name)]), passage=1)
    while True:
        deck = list(DECK)
        rng.shuffle(deck)
        yield from (fate(rng, means) for means in deck)


def fate(rng: random.Random, means: Means) -> Fate:
    """One of that kind."""
    delay_s = rng.choice((rng.uniform(0.0, 0.15), rng.uniform(0.0, 1.0)))
    polite = (signal.SIGTERM, signal.SIGINT)
    match means:
        case Means.BOOT:
            return Fate(means, rng.uniform(0.3, 1.5))
        case Means.STORE:
            place = rng.choice([name for name in killpoints() if not opens(name)])
            passage = rng.choice((1, 1, 2, 3, 5)) if "-write" in place else 1
            return Fate(means, delay_s, place, passage, signals=polite[:1] if "-release" in place else ())
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


def opens(killpoint: str) -> bool:
    """Whether it lies where a store is made, which happens once."""
    return "-create" in killpoint or "-migration" in killpoint


def killpoints() -> list[str]:
    """Every name that is passed to `killpoint` in the code under test."""
    names = []
    for path in sorted(Path(dispatch.__file__).parent.rglob("*.py")):
        text = path.read_text()
        if "killpoint(" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "killpoint":
                    names += [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
    return names
