"""What is known of a round once it is over. Values only; `scene` collects them, `checker` judges them."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class Start:
    """A process of a slice began: its `agent`, or its `verify` command. `at` in seconds of the machine's clock.

    `free`: nothing else of the slice held its lock. `alive` are the other slices whose locks were held. `head` is the
    commit that it found checked out.
    """

    slice: str
    attempt: int
    role: str
    pid: int
    at: float
    free: bool
    alive: frozenset[str]
    head: str


@attrs.frozen
class Stop:
    """It came to its own end, `how`: done, failed, asked; for a verify command good or bad, of the commit `head`."""

    slice: str
    attempt: int
    role: str
    pid: int
    at: float
    how: str
    head: str


@attrs.frozen
class Command:
    """An operator's command between two runs. `status` None: it was killed, so that nobody knows.

    `main` is where main was when it had ended, `alive` which slices still had processes when it began.
    """

    verb: str
    slice: str
    began: float
    ended: float
    status: int | None
    main: str


@attrs.frozen
class Merge:
    """A commit of main's first-parent history. `slice` is empty for one that is no merge of a slice.

    `files`: by path below `out/`, the object on main there.
    """

    commit: str
    slice: str
    files: Mapping[str, str]


@attrs.frozen
class Evidence:
    """`mainline` from the first commit to the tip. `strays`: merges of slices that main has otherwise than in it.

    `parents` of every commit there is. `moves` of main as its reflog has them, `seen` where main was found in passing.
    `written` are objects that agents made, `safe` those that main or a kept ref has. `lines`: by shared file, what it
    says on main. `stored`: by slice, the state that the store has. `left`: what should not be there, in words.
    """

    starts: tuple[Start, ...]
    stops: tuple[Stop, ...]
    commands: tuple[Command, ...]
    mainline: tuple[Merge, ...]
    strays: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]]
    moves: tuple[tuple[str, str], ...]
    seen: tuple[str, ...]
    written: tuple[str, ...]
    safe: frozenset[str]
    lines: Mapping[str, tuple[str, ...]]
    stored: Mapping[str, str]
    left: tuple[str, ...]
