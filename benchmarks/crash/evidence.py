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
class Row:
    """A slice as the store has it."""

    state: str
    attempt: int
    held: bool


@attrs.frozen
class Look:
    """The store's rows, read past the product after something had ended: `when` says what. `told`: the slices that any
    run had said to have merged by then."""

    at: float
    when: str
    rows: Mapping[str, Row]
    told: frozenset[str]


@attrs.frozen
class Takeover:
    """A run lost its graph to another. `refused`: how many of its writes were turned down from then on. `changed`:
    whether rows changed while it alone was there."""

    run: int
    refused: int
    changed: bool


@attrs.frozen
class Step:
    """A committed transaction that moved the owner's claim: its epoch, the incarnation of its connection, and the
    number of its last batch."""

    transaction: int
    epoch: int
    incarnation: int
    batch: int


@attrs.frozen
class Evidence:
    """`mainline` from the first commit to the tip. `strays`: merges of slices that main has otherwise than in it.

    `parents` of every commit there is. `moves` of main as its reflog has them, `seen` where main was found in passing.
    `written` are objects that agents made, `safe` those that main or a kept ref has. `lines`: by shared file, what it
    says on main. `stored`: by slice, the state that the store has. `left`: what should not be there, in words.

    `looks` in the order in which they were taken.
    `steps` in the order in which they were committed, `writers` the transactions that changed rows: of a database that
    tells, else none.
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
    looks: tuple[Look, ...] = ()
    takeovers: tuple[Takeover, ...] = ()
    steps: tuple[Step, ...] = ()
    writers: tuple[int, ...] = ()
