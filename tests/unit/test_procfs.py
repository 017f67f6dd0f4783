"""Reading the process table, from recorded trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import procfs
from harness.procfs import ProcessTable, parse_stat

TAIL = b"0 -1 4194560 111 222 0 0 7 5 30 40 20 0 {threads} 0 {start} 9000000 500 18446744073709551615 1 1 0 0"


def stat_line(
    pid: int, name: bytes = b"sh", state: bytes = b"S", parent: int = 1, start: int = 100, threads: int = 1
) -> bytes:
    tail = TAIL.replace(b"{threads}", b"%d" % threads).replace(b"{start}", b"%d" % start)
    return b"%d (%s) %s %d %d %d %s\n" % (pid, name, state, parent, pid, pid, tail)


def record(root: Path, pid: int, start: int = 100) -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_bytes(stat_line(pid, start=start))


@pytest.mark.parametrize("name", [b"sh", b"a b", b"a) S 1 (b", b")", b"", b"\xff\xfe"])
def test_a_name_may_hold_anything(name: bytes) -> None:
    stat = parse_stat(stat_line(42, name, parent=7, start=12345))
    assert (stat.pid, stat.state, stat.parent, stat.group, stat.session) == (42, "S", 7, 42, 42)
    assert (stat.start_ticks, stat.cpu_ticks, stat.waited_ticks) == (12345, 82, 70)


@pytest.mark.parametrize(
    ("state", "threads", "ended"), [(b"S", 1, False), (b"Z", 1, True), (b"X", 0, True), (b"Z", 3, False)]
)
def test_a_zombie_has_ended_unless_threads_of_its_go_on(state: bytes, threads: int, ended: bool) -> None:
    assert parse_stat(stat_line(42, state=state, threads=threads)).ended is ended


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    assert procfs.stat_of(42, tmp_path) is None
    assert procfs.environ_of(42, tmp_path) == {b""}


@pytest.mark.parametrize(
    ("files", "blank"),
    [
        ({"environ": b"A=1\0", "cmdline": b"sh\0"}, False),
        ({"environ": b"", "cmdline": b"sh\0"}, False),
        ({"environ": b"", "cmdline": b""}, True),
        ({}, True),
    ],
    ids=["an ordinary process", "no environment", "on its way to another program", "gone"],
)
def test_a_process_may_be_blank(tmp_path: Path, files: dict[str, bytes], blank: bool) -> None:
    record(tmp_path, 42)
    for name, content in files.items():
        (tmp_path / "proc" / "42" / name).write_bytes(content)
    assert procfs.is_blank(42, tmp_path) is blank


def test_only_numbers_are_processes(tmp_path: Path) -> None:
    for name in ("1", "42", "self", "sys", "4x"):
        (tmp_path / "proc" / name).mkdir(parents=True)
    assert sorted(procfs.pids(tmp_path)) == [1, 42]


@pytest.mark.parametrize(
    ("files", "boot"),
    [
        ({"sys/kernel/random/boot_id": "3f2a-b\n", "stat": "cpu 1\nbtime 5\n"}, "3f2a-b"),
        ({"stat": "cpu 1 2\nbtime 1700000000\nprocesses 3\n"}, "btime 1700000000"),
        ({}, ""),
    ],
)
def test_which_boot_it_is(tmp_path: Path, files: dict[str, str], boot: str) -> None:
    for name, text in files.items():
        path = tmp_path / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert procfs.boot_id(tmp_path) == boot


def test_the_table_gives_what_started_since(tmp_path: Path) -> None:
    for pid, start in ((1, 0), (50, 99), (51, 100), (52, 101)):
        record(tmp_path, pid, start)
    (tmp_path / "proc" / "60").mkdir()  # it ended while the table was read
    snapshot = ProcessTable(root=tmp_path).since(100)
    assert {stat.pid for stat in snapshot.stats} == {51, 52}
    assert snapshot.vanished == [60]


def test_the_table_opens_no_process_it_knows_to_be_older_for_as_long_as_it_trusts(tmp_path: Path) -> None:
    now = 0.0
    table = ProcessTable(trust_s=1.0, root=tmp_path, clock=lambda: now)
    record(tmp_path, 50, start=10)
    assert table.since(100).stats == []
    record(tmp_path, 50, start=200)  # the pid was handed out again
    record(tmp_path, 51, start=200)
    now = 0.9
    assert {stat.pid for stat in table.since(100).stats} == {51}
    now = 1.0
    assert {stat.pid for stat in table.since(100).stats} == {50, 51}


def test_the_table_reads_those_it_does_not_know_to_be_older_every_time(tmp_path: Path) -> None:
    table = ProcessTable(root=tmp_path, clock=lambda: 0.0)
    record(tmp_path, 50, start=200)
    assert [stat.start_ticks for stat in table.since(100).stats] == [200]
    record(tmp_path, 50, start=300)
    assert [stat.start_ticks for stat in table.since(100).stats] == [300]
    assert [stat.start_ticks for stat in table.since(0).stats] == [300]
