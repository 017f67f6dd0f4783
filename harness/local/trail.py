"""The last merges, with the checkouts whose files went along: by it one that was left behind can be told later.

A `git checkout main` looks up what main is, takes its time for the files, and only then says in HEAD that it is on
main. A merge in between finds no checkout of main there, and none of its files go along.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection
from pathlib import Path

import attrs

from harness.local.record import write_whole
from harness.local.repository import Checkout, Repository

KEPT = 20  #: a checkout that takes longer than so many merges is not brought along


@attrs.frozen
class Passage:
    """One merge: main as it was before, and the git directories of the checkouts that went along."""

    old: str
    moved: tuple[str, ...]


def read_trail(repository: Repository) -> list[Passage]:
    """The last merges, oldest first."""
    try:
        entries = json.loads(trail_of(repository).read_text("utf-8"))
        return [Passage(str(old), tuple(map(str, moved))) for old, moved in entries]
    except (OSError, ValueError, TypeError):
        return []  # nothing is lost but the chance to tell


def note_passage(repository: Repository, old: str, moved: Collection[Checkout]) -> None:
    """Adds a merge, or with an empty `old` just who has caught up. Called while `writing`."""
    passages = [*read_trail(repository), Passage(old, tuple(str(checkout.git_dir) for checkout in moved))]
    entries = [[passage.old, passage.moved] for passage in passages[-KEPT:]]
    write_whole(trail_of(repository), json.dumps(entries) + "\n")


def left_at(repository: Repository, checkout: Checkout) -> str:
    """What main was when the checkout was made, if main has been merged into since and its files stayed behind.

    Empty if that can't be told for certain: without a reflog of HEAD, what lags can't be told from what a person wants.
    """
    made_at = last_logged(checkout.git_dir)
    for passage in reversed(read_trail(repository)):
        if str(checkout.git_dir) in passage.moved:
            return ""
        if passage.old == made_at:
            return made_at
    return ""


def last_logged(git_dir: Path) -> str:
    """The commit that the last entry of HEAD's reflog leads to; empty if there is none."""
    with contextlib.suppress(OSError):
        lines = (git_dir / "logs" / "HEAD").read_bytes().splitlines()
        while lines and lines[-1].endswith(b"\tdispatch: merge"):  # main moved below it
            lines.pop()
        fields = lines[-1].split(b" ", 2) if lines else []
        return fields[1].decode("ascii", errors="replace") if len(fields) > 1 else ""
    return ""


def trail_of(repository: Repository) -> Path:
    return repository.root / "trail.json"
