"""Nothing that the fleet prints says whose machine it is, or which."""

from __future__ import annotations

import getpass
import logging
import socket
from io import StringIO
from pathlib import Path

import pytest

from harness.fleet.log import Once, PrivateFormatter, log_to
from harness.fleet.privacy import HIDDEN, Redactor

ENVIRON = {
    "USER": "zwinkelfritz",
    "HOSTNAME": "kellerkiste.example",
    "STATE_DB_URI": "postgresql://grombold:s3cr%C3%A4t@datenbank-9.intern:5432/fleet?sslmode=require",
    "TASK_QUEUE_URI": "sqlite:////srv/unter lagen/queue.db",
    "KAFKA_BOOTSTRAP_SERVERS": "broker-a.intern:9092,broker-b.intern:9092",
    "KAFKA_SASL_USERNAME": "mithrandir",
    "KAFKA_SASL_PASSWORD": "mellon und so",
    "KAFKA_SSL_KEY_PASSWORD": "durins tag",
}
NAMES = (
    "zwinkelfritz",
    "kellerkiste",
    "grombold",
    "s3cr",
    "datenbank",
    "unter",
    "lagen",
    "broker",
    "intern",
    "mithrandir",
    "mellon",
    "durin",
    "10.1.2.3",
)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://grombold@datenbank-9.intern:5432/fleet is out of reach; see that the server runs",
        'connection to server at "datenbank-9.intern" (10.1.2.3), port 5432 failed: Connection refused',
        'FATAL: password authentication failed for user "grombold"',
        "/srv/unter lagen/queue.db is locked by another program",
        "there is no authority at /home/zwinkelfritz/.local/share/slice-dispatch/fleet/state.db; make one",
        "broker-a.intern:9092/1: Connect to ipv4#10.1.2.3:9092 failed",
        "zwinkelfritz@kellerkiste.example said s3crät",
        "SASL: mithrandir is not let in with mellon und so; the key wants durins tag",
        "FileNotFoundError: [Errno 2] No such file or directory: '/srv/unter lagen/x'",
    ],
)
def test_names_addresses_and_paths_go(text: str) -> None:
    told = Redactor.of(ENVIRON).redacted(text)
    assert HIDDEN in told
    assert not [name for name in NAMES if name in told], told


@pytest.mark.parametrize(
    "text",
    [
        "STATE_DB_URI: names no database; an authority is postgresql or sqlite",
        "TASK_QUEUE_BACKEND: is none of sqlite, postgres, kafka",
        "worker 5eed0f15a has no executor of kind 'k'; name one with --executor kind=module:callable",
        "work item 'a/b' is not due for another 2.5 s, 3/4 done, and/or more",
        "2026-11-30T23:31:25Z INFO 1 of 2 slots busy: 10:30 is no moment",
        "agent-dispatch-worker ended; `jobs requeue ID` tries again",
    ],
)
def test_what_says_nothing_of_anybody_stays(text: str) -> None:
    assert Redactor.of({"USER": "worker", "STATE_DB_URI": "postgresql://dispatch@localhost/db"}).redacted(text) == text


def test_this_machine_is_known_without_a_word_of_the_environment() -> None:
    redactor = Redactor.of({})
    for name in (socket.gethostname(), getpass.getuser(), str(Path.home()), str(Path.cwd())):
        if len(name) >= 3 and name != "root":
            assert name not in redactor.redacted(f"it is {name} that failed")


def fail() -> None:
    raise FileNotFoundError(2, "No such file or directory", "/srv/unter lagen/task")


def test_a_traceback_names_modules_and_no_files() -> None:
    stream = StringIO()
    logger = logging.Logger("a logger of its own")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PrivateFormatter(Redactor.of(ENVIRON)))
    logger.addHandler(handler)
    try:
        try:
            fail()
        except FileNotFoundError as error:
            raise RuntimeError("the turn failed for zwinkelfritz") from error
    except RuntimeError:
        logger.exception("work item %r failed", "a")
    text = stream.getvalue()
    first, *more = text.splitlines()
    assert first[10] == "T"
    assert first[19:] == "Z ERROR work item 'a' failed"
    assert "RuntimeError: the turn failed for" in more[0]
    assert f"in {__name__}, fail, line " in text
    assert "caused by FileNotFoundError" in text
    assert ".py" not in text
    assert not [name for name in NAMES if name in text]
    assert str(Path(__file__).parent) not in text


def test_a_warning_that_comes_again_and_again_is_written_once_in_a_while() -> None:
    told: list[str] = []

    def warn(at: float, words: str, level: int = logging.WARNING) -> None:
        record = logging.LogRecord("x", level, "", 0, "no %s", (words,), None)
        record.created = at
        if once.filter(record):
            told.append(record.getMessage())

    once = Once(60.0)
    for at in range(100):
        warn(float(at), "server")
        warn(float(at), f"one of {at}")
        if at in (3, 4):
            warn(float(at), "luck", logging.ERROR)
    servers = [words for words in told if "server" in words]
    assert servers == ["no server", "no server (and 59 times since it was last said)"]
    assert told.count("no luck") == 2
    assert len(told) == len(servers) + 2 + 100


def test_the_log_is_all_that_is_written() -> None:
    stream, root = StringIO(), logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        log_to(stream, Redactor.of({}))
        logging.getLogger("anything").info("one")
        logging.getLogger("anything").debug("too much")
    finally:
        root.handlers[:], root.level = before, level
    assert [line.partition("Z ")[2] for line in stream.getvalue().splitlines()] == ["INFO one"]
