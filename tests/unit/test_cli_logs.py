"""How a log is shown, and when following one ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatch import MemoryStore, Slice, SliceState
from dispatch.cli.ending import RefusedError
from dispatch.cli.logs import ASK_S, LONGEST, SHARE, EndOfAttempt, Printer, follow_log
from dispatch.store.port import AttemptRow, Changes, GraphRow, SliceRow

Shown = pytest.CaptureFixture[bytes]


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntw", b"o\n"], ["one", "two"]),
        ([b"no end"], ["no end"]),
        ([b"\x1b[31mred\x1b[0m\n", b"\x1b]0;title\x07x\n"], ["red", "x"]),
        ([b"\x1b[3", b"1mred in two\x1b[", b"0m\n"], ["red in two"]),
        ([b"\xc3", b"\xa9\n", b"\xff\n"], ["é", "\N{REPLACEMENT CHARACTER}"]),
        ([b"a\tb\r\n"], ["a        b"]),
        ([b"x" * LONGEST, b"y\n"], ["x" * LONGEST, "y"]),
    ],
    ids=["cut lines", "no line end", "sequences", "a cut sequence", "a cut character", "tab and CR", "a long line"],
)
def test_a_terminal_gets_whole_lines_that_do_nothing(
    pieces: list[bytes], lines: list[str], capsysbinary: Shown
) -> None:
    printer = Printer(terminal=True)
    for piece in pieces:
        printer.put(piece)
    printer.finish()
    assert capsysbinary.readouterr().out.decode() == "".join(f"{line}\n" for line in lines)


def test_a_pipe_gets_the_bytes_as_they_are(capsysbinary: Shown) -> None:
    printer = Printer(terminal=False)
    for piece in (b"\x1b[31m\xff", b"\0no end"):
        printer.put(piece)
    printer.finish()
    assert capsysbinary.readouterr().out == b"\x1b[31m\xff\0no end"


def test_what_was_written_before_the_end_is_printed_after_it(tmp_path: Path, capsysbinary: Shown) -> None:
    """The file is made, grows and ends between the looks."""
    path = tmp_path / "1.log"
    steps = iter([lambda: None, lambda: path.write_bytes(b"one\n"), lambda: path.write_bytes(b"one\ntwo\n")])

    def has_ended() -> bool:
        step = next(steps, None)
        if step is not None:
            step()
        return step is None

    follow_log(path, has_ended)
    assert capsysbinary.readouterr().out == b"one\ntwo\n"


def test_an_attempt_that_ended_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="there is no log at"):
        follow_log(tmp_path / "1.log", lambda: True)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class SlowStore(MemoryStore):
    """A look at it takes two seconds by the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.looks = clock, 0

    def peek(self, graph: str):  # type: ignore[no-untyped-def]
        self.looks += 1
        self.clock.now += 2.0
        return super().peek(graph)


def attempt_row(number: int, outcome: str = "") -> AttemptRow:
    return AttemptRow("a", number, f"dispatch/a/{number}", 1.0, 2.0 if outcome else 0.0, outcome)


def claimed(store: MemoryStore, *attempts: AttemptRow) -> None:
    store.claim("g")
    rows = (SliceRow(Slice("a"), 1, SliceState.RUNNING, attempt=len(attempts)),)
    store.write(Changes(GraphRow("id"), rows, attempts))


@pytest.mark.parametrize(
    ("attempts", "followed", "ended"),
    [
        ([attempt_row(1)], 1, False),
        ([attempt_row(1, "closed")], 1, True),
        ([attempt_row(1, "closed"), attempt_row(2)], 1, True),
        ([attempt_row(1, "closed"), attempt_row(2)], 2, False),
    ],
)
def test_an_attempt_ends_by_its_own_outcome(attempts: list[AttemptRow], followed: int, ended: bool) -> None:
    store = MemoryStore()
    claimed(store, *attempts)
    assert EndOfAttempt(store, "g", "a", followed)() is ended


def test_without_an_owner_nothing_runs() -> None:
    store = MemoryStore()
    claimed(store, attempt_row(1))
    store.release()
    assert EndOfAttempt(store, "g", "a", 1)()


def test_the_store_is_not_asked_at_every_look() -> None:
    clock = Clock()
    store = SlowStore(clock)
    claimed(store, attempt_row(1))
    end = EndOfAttempt(store, "g", "a", 1, clock)
    assert not end()
    store.write(Changes(attempts=(attempt_row(1, "merged"),)))
    clock.now += max(ASK_S, SHARE * 2.0) - 0.5
    assert not end()
    assert store.looks == 1
    clock.now += 1.0
    assert end()
    assert end()
    assert store.looks == 2
