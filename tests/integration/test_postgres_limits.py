"""The time limits of an owner's transactions, and how they commit, taken down by the server from inside each of them.

On a connection that leads to the server itself they are the session's; behind a pooler each transaction has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import attrs
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from dispatch.store import Changes, GraphRow
from dispatch.store.postgres import PostgresStore
from dispatch.store.postgres_rows import COPY_FROM
from harness.database.postgres_wire import Statement, Wire
from tests.conformance.store_rig import slice_row
from tests.integration.store_child import never_waits

PATIENCE_S = 20.0  #: of the owner; that it never runs out is the limits' doing
IN_FORCE = ("12s", "30s", "30s", "on")
NAMES = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "synchronous_commit")
ONE = Changes(GraphRow("g"), (slice_row("a"),))
MANY = Changes(slices=tuple(slice_row(f"s{n}", n) for n in range(1, COPY_FROM + 1)))


@attrs.define
class Rig:
    """A store that has claimed a graph in `database`, which takes down what is in force whenever the claim is moved."""

    database: str
    store: PostgresStore

    @property
    def wire(self) -> Wire:
        assert self.store._wire is not None
        return self.store._wire

    def stranger(self, statement: str) -> list[tuple[object, ...]]:
        with closing(psycopg.connect(self.database, autocommit=True)) as stranger:
            cursor = stranger.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def seen(self) -> list[tuple[object, ...]]:
        """Of each transaction so far."""
        return self.stranger("SELECT a, b, c, d FROM public.seen ORDER BY n")


@pytest.fixture
def rig(postgres_database: str) -> Iterator[Rig]:
    """Left to itself, the database would not wait for its disk."""
    rig = Rig(postgres_database, PostgresStore(postgres_database, sleep=never_waits, patience_s=PATIENCE_S))
    rig.stranger(f"ALTER DATABASE {conninfo_to_dict(postgres_database)['dbname']} SET synchronous_commit = off")
    rig.store.claim("default")
    rig.stranger("CREATE TABLE seen (n INTEGER GENERATED ALWAYS AS IDENTITY, a TEXT, b TEXT, c TEXT, d TEXT)")
    settings = ", ".join(f"current_setting('{name}')" for name in NAMES)
    rig.stranger(
        f"CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN INSERT INTO public.seen (a, b, c, d) SELECT {settings}; RETURN NEW; END $$"
    )
    rig.stranger("CREATE TRIGGER see BEFORE UPDATE ON dispatch.claims FOR EACH ROW EXECUTE FUNCTION see()")
    yield rig
    rig.store.release()


def behind_a_pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections tell of a server process that there isn't. Its numbers go up to 4194304 on Linux."""
    monkeypatch.setattr(Wire, "server_pid", 2**31 - 2)


def another_session(wire: Wire) -> None:
    """As of a pooler, which hands out another server connection after each transaction."""
    wire.run([Statement("DISCARD ALL")], PATIENCE_S)


def use(rig: Rig, between: Callable[[Wire], None] = lambda wire: None) -> None:
    """Four transactions. The last one that is not copied is sent with all of its statements prepared."""
    for step in (lambda: rig.store.write(ONE), lambda: rig.store.write(MANY), rig.store.renew, rig.store.renew):
        step()
        between(rig.wire)


def test_the_servers_own_connection_has_them_for_as_long_as_it_lasts(rig: Rig) -> None:
    assert rig.wire.limited
    use(rig)
    assert rig.seen() == [IN_FORCE] * 4


def test_behind_a_pooler_each_transaction_has_them_and_leaves_nothing_behind(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind_a_pooler(monkeypatch)
    rig.store.release()
    rig.store.claim("default")
    assert not rig.wire.limited
    given_up = rig.seen()
    use(rig, another_session)
    assert rig.seen() == given_up + [IN_FORCE] * 4
    rig.store.renew()
    left = [rig.wire.run([Statement(f"SHOW {name}")], PATIENCE_S)[0].get_value(0, 0) for name in NAMES]
    assert left == [b"0", b"0", b"0", b"off"]


def test_a_session_that_turns_out_to_be_another_gets_them_in_each_transaction(rig: Rig) -> None:
    """A pooler that tells its clients of a process that there is, and where it is found out."""
    rig.store.renew()
    another_session(rig.wire)
    rig.store.renew()
    rig.store.write(ONE)
    assert rig.seen() == [IN_FORCE] * 3
    assert not rig.wire.limited


@pytest.mark.parametrize("pooled", [False, True])
def test_a_connection_that_takes_the_place_of_a_lost_one_has_them_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, pooled: bool
) -> None:
    if pooled:
        behind_a_pooler(monkeypatch)
    lost = rig.wire
    rig.stranger("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'slice-dispatch'")
    rig.store.renew()
    assert rig.wire is not lost
    coming_back, renewal = rig.seen()
    assert coming_back == ("5s", "30s", "30s", "on")  # its own
    assert renewal == IN_FORCE
    assert rig.wire.limited is not pooled
    rig.store.write(ONE)
    assert rig.seen()[2:] == [IN_FORCE]


def test_giving_up_is_on_the_disk_as_well(rig: Rig) -> None:
    rig.store.release()
    assert rig.seen() == [IN_FORCE]
