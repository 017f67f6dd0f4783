"""A connection whose posted statements are answered for by what is run next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import pytest

from harness.database.postgres_wire import RefusedError, Statement, Wire, statement

LIMIT_S = 30.0


@pytest.fixture
def wire(postgres_database: str) -> Iterator[Wire]:
    with contextlib.closing(Wire(psycopg.connect(postgres_database, autocommit=True), RuntimeError)) as made:
        made.run([Statement("CREATE TABLE said (word text)")], LIMIT_S)
        yield made


def say(word: str) -> Statement:
    return statement("INSERT INTO said (word) VALUES ($1)", word)


def said(wire: Wire) -> list[str]:
    (found,) = wire.run([Statement("SELECT word FROM said ORDER BY word")], LIMIT_S, binary=True)
    return [word for (word,) in wire.rows(found)]


def test_what_was_posted_is_done_and_its_answer_is_nobody_elses(wire: Wire) -> None:
    wire.post(say("a"))
    assert said(wire) == ["a"]
    wire.post(say("b"))
    wire.post(say("c"))
    assert said(wire) == ["a", "b", "c"]
    assert said(wire) == ["a", "b", "c"]


def test_what_was_posted_and_refused_is_raised_by_what_is_run_next_which_is_done(wire: Wire) -> None:
    wire.post(Statement("SELECT 1 / 0"))
    with pytest.raises(RefusedError) as refused:
        wire.run([say("a")], LIMIT_S)
    assert refused.value.code == "22012"
    assert said(wire) == ["a"]


def test_a_notification_is_seen_after_what_was_posted_is_answered(wire: Wire, postgres_database: str) -> None:
    wire.run([Statement("LISTEN news")], LIMIT_S)
    wire.post(say("a"))
    with psycopg.connect(postgres_database, autocommit=True) as other:
        other.execute("NOTIFY news")
    assert said(wire) == ["a"]
    assert wire.notified(LIMIT_S, b"")
