"""`bench fleet` measures what it says, on both databases, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from dispatch.bench.fleet import ALONE, BATCHES, BURSTS, FLOOR, SLOTS, WHAT, Cost, Fleet, Sizes, _pace_us, measure_fleet
from dispatch.bench.fleet_crew import Crew, Done
from dispatch.bench.fleet_member import Teller
from dispatch.bench.fleet_ours import work
from dispatch.bench.fleet_report import fleet_document, fleet_tables
from dispatch.cli import serve
from dispatch.cli.bench import peers_named, postgres_named
from dispatch.cli.ending import RefusedError
from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.errors import FleetBrokenError
from harness.fleet.opening import Fleet as OurFleet
from harness.fleet.ports import Delivery
from harness.fleet.settings import FleetSettings
from harness.fleet.transport.memory import MemoryTransport
from tests.postgres_server import databases

CONTENDERS = ["dispatch", *(f"bare {batch}" for batch in BATCHES)]
SIZES = Sizes(ones=4, burst=40, starts=2, repeat=1)


@pytest.fixture(scope="module")
def url() -> str:
    known = conninfo_to_dict(databases().new())
    return f"postgresql://{known['user']}@/{known['dbname']}?host={known['host']}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sqlite")


@pytest.fixture(scope="module")
def fleet(url: str, folder: Path) -> Fleet:
    return measure_fleet(folder, url, sizes=SIZES)


def test_it_measures_all_contenders_on_each_database(fleet: Fleet) -> None:
    assert [(row.store, row.what, row.who) for row in fleet.rows] == [
        (store, what, who) for store in ("sqlite", "postgresql") for what in WHAT for who in CONTENDERS
    ]
    assert all(row.us > 0 for row in fleet.rows)
    assert all(row.ratio == 1 for row in fleet.rows if row.who == FLOOR)
    assert all((row.p99_us is not None) == (row.what in ALONE) for row in fleet.rows)
    assert all(row.us <= (row.p99_us or row.us) for row in fleet.rows)


def test_commits_are_counted_for_each_turn(fleet: Fleet) -> None:
    commits = {(row.who, row.what): row.commits for row in fleet.rows if row.store == "postgresql"}
    assert all(row.commits is row.wal_bytes is None for row in fleet.rows if row.store == "sqlite")
    # one to insert, one to claim, one to delete; whatever else the server does by itself may add one
    for what, count, turns in (("admit_one", 1.0, SIZES.ones), ("admit_many", 1 / 40, 40), ("end_1", 3.0, 2)):
        seen = commits["bare 1", what]
        assert seen is not None
        assert count <= seen <= count + 1 / turns
    seen = commits["bare 1", "work_1"]
    assert seen is not None
    assert 2 + 1 / 40 <= seen <= 2 + 2 / 40
    ours = commits["dispatch", "admit_one"]
    assert ours is not None
    assert 1 <= ours <= 1 + 1 / SIZES.ones, "a work item and its delivery"


def test_it_leaves_nothing_behind(fleet: Fleet, url: str, folder: Path) -> None:
    assert list(folder.iterdir()) == []
    with psycopg.connect(url) as connection:
        left = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'dispatch_bench%'").fetchall()
        schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'agent%'").fetchall()
    assert (left, schemas) == ([], []), "a queue in use is none of its business"


def test_the_document_is_what_scripts_rely_on(fleet: Fleet) -> None:
    document = json.loads(json.dumps(fleet_document(fleet)))["fleet"]
    assert document.keys() == {"rows", "env"}
    columns = {"store", "who", "what", "us", "p99_us", "commits", "wal_bytes", "ratio"}
    assert all(row.keys() == columns for row in document["rows"])
    env = document["env"]
    assert {name: env[name] for name in ("ones", "burst", "starts", "repeat", "slots", "peers")} == {
        "ones": 4, "burst": 40, "starts": 2, "repeat": 1, "slots": SLOTS, "peers": {},
    }  # fmt: skip


def test_there_is_a_table_for_each_database(fleet: Fleet) -> None:
    tables = list(fleet_tables(fleet))
    assert [table.row_count for table in tables] == [len(CONTENDERS)] * 4
    burst, alone = 1 + len(BURSTS), 1 + len(ALONE)
    assert [len(table.columns) for table in tables] == [burst, alone, burst + 2, alone + 2]


def test_a_turn_alone_begins_before_it_ends(fleet: Fleet) -> None:
    us = {(row.store, row.who, row.what): row.us for row in fleet.rows}
    for store, who, what in us:
        if what.startswith("end"):
            size = what.removeprefix("end_")
            start, commit = us[store, who, f"start_{size}"], us[store, who, f"commit_{size}"]
            assert 0 < start < us[store, who, what] and 0 < commit < us[store, who, what]


def test_a_ratio_is_to_the_floor() -> None:
    rows = tuple(
        Cost("sqlite", who, what, us, us, None, None, us / 4) for who, us in (("x", 8.0), (FLOOR, 4.0)) for what in WHAT
    )
    bursts, alone = fleet_tables(Fleet(rows, {}))
    assert list(bursts.columns[1].cells) == ["8, 8 (2.0)", "4, 4 (1.0)"]
    assert list(alone.columns[1].cells) == ["8, 8 (2.0)", "4, 4 (1.0)"]


def test_the_last_tenth_of_a_burst_decides_nothing() -> None:
    done = [Done(4, 10.5, 11.0), Done(5, 11.5, 12.0), Done(1, 12.5, 90.0)]
    assert _pace_us(done, 10.0, 10) == pytest.approx(2.0 / 9 * 1e6)
    assert _pace_us(done, 11.0, 10) == pytest.approx(1.5 / 9 * 1e6), "it began before the call had returned"


# -- the processes -----------------------------------------------------------------------------------------------------


def work_badly(place: str, batch: int, tell: Teller, over: threading.Event) -> None:
    """As `place` says."""
    if place == "too soon":
        raise SystemExit(3)
    tell.ready()
    if place == "too much":
        tell.done(batch)
    over.wait()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name by which a new process finds this module."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    return f"{Path(__file__).stem}:work_badly"


def test_a_worker_that_ends_before_its_time_is_told_of(here: str) -> None:
    with pytest.raises(ChildProcessError, match="ended before its time"), Crew(here, "too soon", 1, 2):
        pass


def test_a_turn_that_is_done_twice_is_told_of(here: str) -> None:
    with Crew(here, "too much", 2, 1) as crew, pytest.raises(AssertionError, match="twice"):
        crew.wait_for(1)


def test_workers_that_are_silent_are_not_waited_for_forever(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatch.bench.fleet_crew.LIMIT_S", 0.05)
    with pytest.raises(TimeoutError), Crew(here, "silence", 1, 1) as crew:
        crew.wait_for(1)


class BrokenTransport(MemoryTransport):
    """One whose queue can't be used."""

    def receive(self, limit: int, wait_s: float) -> tuple[Delivery, ...]:
        raise FleetBrokenError("the queue is none")


def test_a_worker_that_cannot_go_on_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = OurFleet(FleetSettings(queue_uri="sqlite:////elsewhere"), MemoryWorkItems(time.time), BrokenTransport())
    monkeypatch.setattr("dispatch.bench.fleet_ours._opened", lambda place: fleet)
    with Path(os.devnull).open("wb") as nobody, pytest.raises(FleetBrokenError, match="the queue is none"):
        work("", 1, Teller(nobody.fileno()), threading.Event())


def test_what_is_told_is_when_the_first_began(capfd: pytest.CaptureFixture[str]) -> None:
    tell = Teller(sys.stdout.fileno())
    tell.ready()
    tell.done(0)
    tell.started()
    tell.started()
    tell.done(2)
    tell.done(1)
    ready, first, second = capfd.readouterr().out.splitlines()
    count, started_at, at = first.split()
    assert (ready, count) == ("ready", "2")
    assert float(started_at) < float(at)
    _, started_at, at = second.split()
    assert started_at == at, "nobody began"


# -- the command -------------------------------------------------------------------------------------------------------


def test_it_prints_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("STATE_DB_URI", raising=False)
    words = ["bench", "fleet", "--dir", str(tmp_path / "new"), "--repeat", "1", "--turns", "10", "--starts", "1"]
    assert serve([*words, "--json"]) == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["fleet"]["rows"]) == len(WHAT) * len(CONTENDERS)
    assert "sqlite, 1 of 1: dispatch" in printed.err


def test_it_measures_the_server_of_the_authority(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DB_URI", "sqlite:///elsewhere.db")
    assert postgres_named("", "STATE_DB_URI") == ""
    monkeypatch.setenv("STATE_DB_URI", "postgres://here/db")
    assert postgres_named("", "STATE_DB_URI") == "postgres://here/db"


def test_peers_are_asked_for_by_name() -> None:
    assert peers_named("", lambda name: None) == ()
    assert peers_named(" huey,pgqueuer, huey", lambda name: name) == ("huey", "pgqueuer")
    with pytest.raises(RefusedError, match=r"^asyncpg, uvloop: not installed; install slice-dispatch"):
        peers_named("pgqueuer", lambda name: None if name in ("asyncpg", "uvloop") else name)


def test_nothing_of_theirs_is_imported_unless_asked_for() -> None:
    asked = "import sys, dispatch.bench.fleet as f; print([name for name in f.PEERS_NEED if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (lambda folder: ["--postgres", "sqlite:///x"], "begins with postgresql://"),
        (lambda folder: ["--postgres", f"postgresql:///x?host={folder}"], "no connection to the server"),
        (lambda folder: ["--dir", f"{folder}/file/below"], "name another folder with --dir"),
        (lambda folder: ["--against", "celery"], "pgqueuer, procrastinate, huey"),
    ],
)
def test_it_refuses_in_one_line(
    words: Callable[[Path], list[str]], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert serve(["bench", "fleet", "--dir", str(tmp_path), *words(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_it_refuses_a_server_on_which_no_database_can_be_made(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE dispatch_bench_guest LOGIN")
        try:
            guest = url.replace(conninfo_to_dict(url)["user"] + "@", "dispatch_bench_guest@")
            assert serve(["bench", "fleet", "--dir", str(tmp_path), "--postgres", guest]) == 2
        finally:
            connection.execute("DROP ROLE dispatch_bench_guest")
    assert "could not be made" in capsys.readouterr().err
