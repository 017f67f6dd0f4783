"""Whose machine it is, and which, is nowhere in what the fleet stores, prints or serves: verified by canaries.

The workers run as a user, on a host, in a home and in a folder with names that occur nowhere else, and an executor
fails with a path in its message. Then every byte that was stored or said is searched for them, in several encodings.
"""

from __future__ import annotations

import base64
import json
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.topology import topology
from tests.e2e.desk import Desk, end, until
from tests.e2e.fleet_yard import Yard

HOST, USER, HOME, FOLDER = "kellerkiste-7", "quastenflosser", "nasenbaer", "zimtstern"
CANARIES = (HOST, USER, HOME, FOLDER)
SITE = f"""
import getpass, os, platform, pwd, socket
socket.gethostname = platform.node = lambda: {HOST!r}
socket.getfqdn = lambda name="": {HOST!r} + ".example"
os.uname = lambda: os.uname_result(("Linux", {HOST!r}, "6", "1", "x86_64"))
getpass.getuser = os.getlogin = lambda: {USER!r}
"""


def encodings(word: str) -> Iterator[bytes]:
    yield from (word.encode(), word.upper().encode(), word.encode("utf-16-le"), word.encode().hex().encode())
    for pad in range(3):  # wherever the word begins in what was encoded; its ends may be others' bits
        yield base64.b64encode(b"\0" * pad + word.encode())[pad + 1 : -4]


def check(where: str, found: bytes) -> None:
    assert found, where
    for word in CANARIES:
        for each in encodings(word):
            assert each not in found, f"{word!r} is in {where}"


def tables(url: str) -> bytes:
    """Every row of every table that is ours, as text; bytes as hex."""
    with psycopg.connect(url) as connection:
        named = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname LIKE 'agent_dispatch%'"
        )
        rows = [
            str(row)
            for schema, table in named.fetchall()
            for row in connection.execute(f'SELECT t::text FROM "{schema}"."{table}" AS t').fetchall()  # type: ignore[call-overload]
        ]
    return "\n".join(rows).encode()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    folder = tmp_path / HOME
    folder.mkdir()
    desk = Desk(folder)
    desk.repo = desk.repo.rename(folder / FOLDER)
    (folder / "sitecustomize.py").write_text(SITE)
    desk.env |= {"USER": USER, "LOGNAME": USER, "HOSTNAME": HOST, "HOME": str(folder)}
    yield desk
    desk.close()


def of_sqlite(desk: Desk, url: str) -> Callable[[], bytes]:
    (desk.folder / "data").mkdir()
    desk.env |= {name: f"sqlite:///{desk.folder / 'data' / name}" for name in ("STATE_DB_URI", "TASK_QUEUE_URI")}
    return lambda: b"".join(path.read_bytes() for path in (desk.folder / "data").iterdir())


def of_postgres(desk: Desk, conninfo: str) -> Callable[[], bytes]:
    known = conninfo_to_dict(conninfo)
    url = f"postgresql:///{known.pop('dbname')}?{urlencode(known)}"
    desk.env |= {"STATE_DB_URI": url, "TASK_QUEUE_BACKEND": "postgres", "TASK_QUEUE_URI": ""}
    return lambda: tables(url)


@pytest.mark.parametrize("of_kind", [of_sqlite, of_postgres])
def test_no_canary_is_heard(
    desk: Desk, postgres_database: str, of_kind: Callable[[Desk, str], Callable[[], bytes]]
) -> None:
    yard = Yard(desk)
    stored = of_kind(desk, postgres_database)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    yard.submit("a", "b")
    yard.submit("c", kind="careless", max_attempts=1)
    with yard.fleet() as fleet:
        fleet.transport.put_many([AgentTurnEnvelope("nobody", "s", "echo", "", "t")], 100)
    worker = yard.work("--metrics-port", str(port))
    until(lambda: {yard.state(name) for name in "ab"} == {"succeeded"} and yard.state("c") == "dead_letter", worker)
    with yard.fleet() as fleet:
        until(lambda: fleet.authority.graves(10), worker)
        check("the topology", json.dumps(topology(fleet.authority, fleet.transport, "x")).encode())
        check("the rows while a worker is there", stored())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        check("metrics", answer.read() + str(answer.headers).encode())
    status, _, err = end(worker, signal.SIGTERM)
    assert status == 0, err
    assert "FileNotFoundError" in err  # the log says what it can
    assert re.search(r"in turns_at_hand, careless, line \d+", err)
    check("a worker's log", err.encode())
    check("what is stored", stored())
    for words in (("list",), ("status", "c", "--json"), ("dead", "--json")):
        check(f"jobs {words}", said(desk, "jobs", *words))
    check("a doctor's findings", said(desk, "doctor", "--json"))


@pytest.mark.parametrize(
    "settings",
    [
        {"STATE_DB_URI": "sqlite:///{folder}/taken"},
        {"TASK_QUEUE_URI": "sqlite:///{folder}/taken"},
        {"STATE_DB_URI": f"postgresql://{USER}:{USER}@{HOST}.invalid/{USER}"},
        {"STATE_DB_URI": f"postgresql:///{USER}?host={{folder}}&user={USER}"},
        {"TASK_QUEUE_BACKEND": "kafka", "KAFKA_BOOTSTRAP_SERVERS": f"{HOST}.invalid:9092"},
    ],
)
def test_no_canary_is_heard_of_what_is_out_of_reach(desk: Desk, settings: dict[str, str]) -> None:
    Yard(desk)
    (desk.folder / "taken").mkdir()
    desk.env |= {name: value.format(folder=desk.folder) for name, value in settings.items()}
    if "KAFKA_BOOTSTRAP_SERVERS" not in settings:  # which is waited for, for ten seconds each time
        check("a doctor's findings", said(desk, "doctor", "--json"))
    done = desk.run("worker", "--executor", "echo=turns_at_hand:echo")
    assert (done.returncode, done.stdout) == (2, "")
    check("a worker's last words", done.stderr.encode())
    if "STATE_DB_URI" in settings:
        done = desk.run("jobs", "list")
        assert done.returncode == 2
        check("what jobs says", done.stderr.encode())


def said(desk: Desk, *words: str) -> bytes:
    done: subprocess.CompletedProcess[str] = desk.run(*words)
    assert done.returncode in (0, 1, 2), done
    return (done.stdout + done.stderr).encode()
