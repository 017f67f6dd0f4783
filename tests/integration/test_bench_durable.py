"""`bench durable` measures what it says, on both databases, and leaves nothing behind but the product's graphs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from dispatch.bench.bare import sync_us
from dispatch.bench.durable import BURST, Counting, Durable, measure_durable
from dispatch.bench.report import durable_document, durable_table
from dispatch.cli import serve
from dispatch.cli.bench import postgres_named
from dispatch.store import MemoryStore
from dispatch.store.port import Changes
from tests.postgres_server import databases

WHAT = ["lone", "burst", "enqueue_many", "restore"]


@pytest.fixture(scope="module")
def url() -> str:
    known = conninfo_to_dict(databases().new())
    return f"postgresql://{known['user']}@/{known['dbname']}?host={known['host']}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sqlite")


@pytest.fixture(scope="module")
def durable(url: str, folder: Path) -> Durable:
    return measure_durable(folder, url, slices=30, repeat=1)


def test_it_measures_each_store_beside_its_floor(durable: Durable, url: str, folder: Path) -> None:
    assert [(cost.store, cost.what) for cost in durable.rows] == [
        *(("sqlite", what) for what in WHAT),
        *(("postgresql", what) for what in WHAT),
    ]
    assert all(cost.product_us > 0 and cost.floor_us > 0 for cost in durable.rows)
    logged = {(cost.store, cost.what) for cost in durable.rows if cost.log_bytes}
    assert logged == {("postgresql", "lone"), ("postgresql", "burst")}
    commits = {(cost.store, cost.what): cost.commits for cost in durable.rows}
    for store in ("sqlite", "postgresql"):
        assert commits[store, "lone"] == 1
        assert 1 / BURST <= commits[store, "burst"] < 0.2
        assert commits[store, "enqueue_many"] == 1 / 30
    restored = [cost for cost in durable.rows if cost.what == "restore"]
    assert all(cost.peak_bytes and cost.floor_bytes is not None for cost in restored)
    assert list(folder.iterdir()) == []
    with psycopg.connect(url) as connection:
        schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'dispatch%'").fetchall()
    assert schemas == [("dispatch",)]


def test_the_document_is_what_scripts_rely_on(durable: Durable) -> None:
    document = json.loads(json.dumps(durable_document(durable)))["durable"]
    assert document.keys() == {"rows", "sync_us", "pgbench_us", "env"}
    columns = {"store", "what", "product_us", "floor_us", "commits", "log_bytes", "peak_bytes", "floor_bytes", "ratio"}
    assert all(row.keys() == columns for row in document["rows"])
    assert (document["env"]["slices"], document["env"]["burst"]) == (30, BURST)
    assert durable_table(durable).row_count == len(durable.rows)


def test_a_synced_write_takes_time(tmp_path: Path) -> None:
    assert sync_us(tmp_path, times=3) > 0


def test_writes_are_counted() -> None:
    store = Counting(MemoryStore())
    store.claim("g")
    for _ in range(3):
        store.write(Changes())
    assert store.writes == 3


def test_it_prints_json(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "durable", "--postgres", url, "--dir", str(tmp_path / "new"), "--slices", "9", "--repeat", "1"]
    assert serve([*words, "--json"]) == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["durable"]["rows"]) == 2 * len(WHAT)
    assert "postgresql: 9 slices" in printed.err


def test_it_measures_the_store_of_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPATCH_STORE", "sqlite:///elsewhere.db")
    assert postgres_named("") == ""
    assert postgres_named(url) == url
    monkeypatch.setenv("DISPATCH_STORE", "postgres://here/db")
    assert postgres_named("") == "postgres://here/db"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (lambda folder: ["--postgres", "sqlite:///x"], "begins with postgresql://"),
        (lambda folder: ["--postgres", "postgresql://a:b@c@d/e"], "percent-encode"),
        (lambda folder: ["--dir", f"{folder}/file/below"], "name another folder with --dir"),
    ],
)
def test_it_refuses_in_one_line(
    words: Callable[[Path], list[str]], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert serve(["bench", "durable", *words(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
