"""A log keeps the head and the tail of an output, and counts what it has to drop; the last line is always known."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.local.log import LINE_LIMIT, LINE_SIZE, TAIL_SIZE, CappedLog, LastLine


def logged(path: Path, limit: int, *chunks: bytes) -> tuple[bytes, int]:
    log = CappedLog.open(path, limit)
    for chunk in chunks:
        log.write(chunk)
    log.close()
    return path.read_bytes(), log.dropped_bytes


@pytest.mark.parametrize("size", [0, 1, 59, 60, 61, 79, 80])
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_up_to_the_limit_everything_is_kept(tmp_path: Path, size: int, piece: int) -> None:
    data = bytes(index % 251 for index in range(size))
    chunks = (data[start : start + piece] for start in range(0, size, piece))
    assert logged(tmp_path / "log", 80, *chunks) == (data, 0)


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_beyond_the_limit_head_and_tail_are_kept_and_the_gap_is_noted(tmp_path: Path, piece: int) -> None:
    data = bytes(33 + index % 90 for index in range(500))
    text, dropped = logged(tmp_path / "log", 80, *(data[start : start + piece] for start in range(0, 500, piece)))
    note = b"\n[dispatch: 420 bytes left out here: the log of one run is limited to 80]\n"
    assert text == data[:60] + note + data[-20:]
    assert dropped == 420


def test_what_is_held_in_memory_is_bounded(tmp_path: Path) -> None:
    log = CappedLog.open(tmp_path / "log", 10 * TAIL_SIZE)
    for _ in range(400):
        log.write(bytes(TAIL_SIZE))
        assert len(log._tail) <= TAIL_SIZE
    log.close()
    assert log.dropped_bytes == 390 * TAIL_SIZE


def test_the_head_is_in_the_file_at_once(tmp_path: Path) -> None:
    log = CappedLog.open(tmp_path / "log", 1000)
    log.write(b"begun\n")
    assert (tmp_path / "log").read_bytes() == b"begun\n"
    log.close()


def test_a_log_goes_on_where_it_stood(tmp_path: Path) -> None:
    logged(tmp_path / "log", 100, b"one\n")
    assert logged(tmp_path / "log", 100, b"two\n") == (b"one\ntwo\n", 0)


def test_its_folder_is_made_and_the_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "log"
    logged(path, 100, b"x")
    assert path.stat().st_mode & 0o777 == 0o600


def test_one_that_can_t_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        CappedLog.open(tmp_path / "file" / "log", 100)


def test_nothing_fits_on_a_full_disk(tmp_path: Path) -> None:
    log = CappedLog.open(Path("/dev/full"), 100)
    for _ in range(30):
        log.write(b"0123456789")
    log.close()
    assert log.dropped_bytes == 300


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Files of this process can't grow beyond `size`, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_when_the_disk_has_room_again_the_gap_is_noted(tmp_path: Path) -> None:
    log = CappedLog.open(tmp_path / "log", 1000)
    log.write(b"before\n")
    with file_size_limit(10):
        log.write(b"lost or not\n")
        log.write(b"lost\n")
    log.write(b"after\n")
    log.close()
    assert (tmp_path / "log").read_bytes() == (b"before\nlos\n[dispatch: 14 bytes lost here: File too large]\nafter\n")
    assert log.dropped_bytes == 14


LINES = [
    ("nothing yet", [b"begun"], ""),
    ("one", [b"one\n"], "one"),
    ("the last of many", [b"one\ntwo\nthr"], "two"),
    ("cut anywhere", [b"o", b"n", b"e\nt", b"wo", b"\n"], "two"),
    ("blank lines don't count", [b"one\n\n  \n\r\n"], "one"),
    ("nor do colours alone", [b"one\n\x1b[0m\n"], "one"),
    ("a carriage return ends a line", [b"10%\r20%\r30"], "20%"),
    ("a character cut in two", ["é".encode()[:1], "é".encode()[1:] + b"\n"], "é"),
    ("a long line is cut, and its end is not another line", [b"x" * 5000, b"y" * 5000 + b"\n"], "x" * 299 + "…"),
    ("one after a long line", [b"x" * 5000, b"\nnext\n"], "next"),
    ("invalid bytes", [b"\xff\xfe\n"], "\ufffd\ufffd"),
]


@pytest.mark.parametrize(("chunks", "line"), [case[1:] for case in LINES], ids=[case[0] for case in LINES])
def test_the_last_complete_line(chunks: list[bytes], line: str) -> None:
    last = LastLine()
    completed = [last.feed(chunk) for chunk in chunks]
    assert last.text == line
    assert any(completed) is bool(line)


def test_a_last_line_without_an_end_counts_when_the_output_ends() -> None:
    last = LastLine()
    last.feed(b"one\ntwo")
    assert last.text == "one"
    assert last.finish()
    assert last.text == "two"
    assert not last.finish()


def test_a_line_of_any_length_takes_little_memory() -> None:
    last = LastLine()
    for _ in range(100):
        assert not last.feed(b"x" * 100_000)
        assert len(last._begun) <= LINE_SIZE
    assert last.feed(b"\n")
    assert len(last.text) == LINE_LIMIT
