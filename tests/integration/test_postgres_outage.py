"""A PostgreSQL store and everything that can come between it and its server. What is acknowledged is there, once.

Nobody waits on the server for longer than the patience, and what became of a transaction whose answer was lost is found
out, not guessed.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from dispatch.errors import OwnedElsewhereError, OwnershipLostError, StoreError, StoreUnavailableError
from dispatch.store import Changes, Contents, GraphRow
from dispatch.store.postgres import PostgresStore
from dispatch.store.postgres_rows import COPY_FROM
from harness.database.postgres_wire import Statement
from tests.conformance.store_rig import attempt_row, intent_row, slice_row
from tests.integration.store_child import never_waits
from tests.postgres_server import Databases, PostgresServer
from tests.tcp_proxy import Flow, TcpProxy

LIMIT_S = 30.0
HASTY_S = 0.3  #: for tests in which the server stays silent
ENOUGH_S = 1.0  #: for tests of what happens within the patience
BATCH = Changes(GraphRow("g"), (slice_row("a"),), (attempt_row("a"),), (intent_row("i"),))
NEXT = Changes(GraphRow("g", "paused"), (slice_row("b", 2),))
MANY = Changes(slices=tuple(slice_row(f"s{n}", n, checkpoint="x" * 1000) for n in range(1, 3 * COPY_FROM)))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@attrs.define
class Rig:
    """A store that has claimed a graph through the proxy, and a way to its database past the proxy."""

    server: PostgresServer
    proxy: TcpProxy
    database: str
    store: PostgresStore

    def direct(self) -> PostgresStore:
        return PostgresStore(self.server.url(self.database), sleep=never_waits)

    def look(self) -> Contents:
        return self.direct().peek("default")[0]

    def query(self, statement: str) -> list[tuple[object, ...]]:
        return self.server.execute(statement, self.database)

    def batches(self) -> int:
        """How many batches the server has counted."""
        ((written,),) = self.query("SELECT written FROM dispatch.claims")
        assert isinstance(written, int)
        return written

    def until(self, condition: Callable[[], bool]) -> None:
        """The server tells nobody; it is asked again and again."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, "it never came true"

    def until_back(self) -> None:
        """Until the store has a connection again, or knows that it is the owner no more."""
        back = self.store._return
        assert back is not None
        assert back._over.wait(LIMIT_S), f"it never came back: {back.problem}"

    def refused_at_once(self, use: Callable[[], object]) -> str:
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError) as refused:
            use()
        assert time.monotonic() - began < ENOUGH_S / 2
        return str(refused.value)


@contextmanager
def rigged(server: PostgresServer, patience_s: float) -> Iterator[Rig]:
    def dial() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(server.socket))
        except OSError:
            connection.close()
            raise
        return connection

    proxy = TcpProxy(dial)
    database = conninfo_to_dict(Databases(server.url()).new())["dbname"]  # it goes with its server
    assert isinstance(database, str)
    url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{database}"
    store = PostgresStore(url, sleep=never_waits, patience_s=patience_s)
    store.claim("default")
    yield Rig(server, proxy, database, store)
    store._close()  # not released: its server may be out of reach, and goes too
    proxy.close()


@pytest.fixture
def rig(server: PostgresServer) -> Iterator[Rig]:
    """Its store waits for a new connection for as long as a busy machine may take."""
    with rigged(server, LIMIT_S) as rig:
        yield rig


@pytest.fixture
def prompt(server: PostgresServer) -> Iterator[Rig]:
    with rigged(server, ENOUGH_S) as rig:
        yield rig


@pytest.fixture
def hasty(server: PostgresServer) -> Iterator[Rig]:
    with rigged(server, HASTY_S) as rig:
        yield rig


# -- connections that break ----------------------------------------------------------------------------------------


def test_a_connection_that_broke_while_idle_is_replaced_within_the_call(rig: Rig) -> None:
    for use in (lambda: rig.store.write(BATCH), rig.store.renew, rig.store.load, lambda: rig.store.write(NEXT)):
        rig.proxy.last.reset()
        use()
    assert rig.batches() == 2
    assert [row.slice.id for row in rig.look().slices] == ["a", "b"]


def test_a_server_that_hung_up_is_called_again(rig: Rig) -> None:
    rig.store.write(BATCH)
    rig.proxy.last.hang_up_on_client()
    rig.store.write(NEXT)
    rig.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'slice-dispatch'")
    rig.store.renew()
    assert rig.batches() == 2


def test_bytes_may_come_one_by_one(rig: Rig) -> None:
    rig.proxy.last.set(up=Flow.TRICKLE, down=Flow.TRICKLE)
    rig.store.write(BATCH)
    assert rig.store.load().slices == BATCH.slices
    assert len(rig.proxy.links) == 1


@pytest.mark.parametrize("changes", [BATCH, NEXT])
def test_a_commit_whose_answer_was_lost_is_found_and_not_written_again(rig: Rig, changes: Changes) -> None:
    """The reset comes within the patience: the caller doesn't even hear of it."""
    rig.store.write(BATCH)
    link = rig.proxy.last
    link.set(down=Flow.SWALLOW)
    with rig.server.connection(rig.database) as stranger:
        stranger.execute("LISTEN nothing")  # its own connection, ready before the clock runs
        answers = link.seen("down")
        writing = _in_thread(lambda: rig.store.write(changes))
        link.wait_for("down", answers)
        rig.until(lambda: stranger.execute("SELECT written FROM dispatch.claims").fetchone() == (2,))
        link.reset()
        writing()
    assert rig.batches() == 2


@pytest.mark.parametrize(("again", "batches"), [(BATCH, 1), (NEXT, 2)])
def test_a_commit_whose_answer_never_came_is_known_when_the_server_is_back(
    hasty: Rig, again: Changes, batches: int
) -> None:
    hasty.proxy.last.set(down=Flow.SWALLOW)
    hasty.proxy.up = hasty.proxy.down = Flow.HOLD
    with pytest.raises(StoreUnavailableError, match=r"has not answered for 0\.3 s"):
        hasty.store.write(BATCH)
    hasty.refused_at_once(lambda: hasty.store.write(again))
    assert hasty.batches() == 1
    hasty.proxy.heal()
    hasty.until_back()
    hasty.store.write(again)
    assert hasty.batches() == batches
    assert hasty.look().slices == (BATCH.slices if again is BATCH else (*BATCH.slices, *NEXT.slices))


def test_a_batch_that_never_arrived_is_written_when_the_server_is_back(hasty: Rig) -> None:
    hasty.proxy.fall_silent()
    with pytest.raises(StoreUnavailableError):
        hasty.store.write(BATCH)
    hasty.proxy.reset()
    hasty.proxy.heal()
    hasty.until_back()
    assert hasty.batches() == 0
    hasty.store.write(BATCH)
    assert hasty.batches() == 1
    assert hasty.look().slices == BATCH.slices


@pytest.mark.parametrize("after_the_next", [False, True])
def test_a_batch_that_arrives_after_its_owner_came_back_changes_nothing(hasty: Rig, after_the_next: bool) -> None:
    late = hasty.proxy.last
    late.set(up=Flow.HOLD)
    with pytest.raises(StoreUnavailableError):
        hasty.store.write(BATCH)
    hasty.until_back()
    if after_the_next:
        hasty.store.write(NEXT)
    answers = late.seen("down")
    late.set(up=Flow.PASS)  # what is held goes to the server, though the client has gone
    late.wait_for("down", answers)
    late.wait_closed()
    assert hasty.batches() == after_the_next
    hasty.store.write(NEXT)
    assert hasty.look().slices == NEXT.slices


def test_the_owner_never_waits_for_longer_than_the_patience(prompt: Rig) -> None:
    prompt.store.write(BATCH)
    prompt.proxy.fall_silent()
    for use in (lambda: prompt.store.write(NEXT), prompt.store.renew):
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            use()
        assert time.monotonic() - began < 2 * ENOUGH_S
    for use in (lambda: prompt.store.write(NEXT), prompt.store.renew, prompt.store.load):
        prompt.refused_at_once(use)
    prompt.proxy.heal()
    prompt.until_back()
    prompt.store.write(NEXT)
    assert prompt.batches() == 2


def test_the_way_back_is_tried_until_the_server_takes_connections(hasty: Rig) -> None:
    hasty.proxy.refuse()
    with pytest.raises(StoreUnavailableError) as refused:
        hasty.store.write(BATCH)
    assert "\n" not in str(refused.value)
    hasty.until(lambda: "refused" in hasty.refused_at_once(hasty.store.renew))
    hasty.proxy.listen_again()
    hasty.until_back()
    hasty.store.write(BATCH)
    assert hasty.batches() == 1


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGINT])
def test_a_server_that_restarts_has_all_that_was_acknowledged(hasty: Rig, how: signal.Signals) -> None:
    hasty.store.write(BATCH)
    hasty.server.stop(how)
    with pytest.raises(StoreUnavailableError):
        hasty.store.write(NEXT)
    hasty.server.start()
    hasty.until_back()
    hasty.store.write(NEXT)
    assert hasty.batches() == 2
    assert [row.slice.id for row in hasty.look().slices] == ["a", "b"]


def test_a_large_batch_that_breaks_in_the_middle_is_not_there_by_half(rig: Rig) -> None:
    first = rig.proxy.last
    sent = first.seen("up")
    writing = _in_thread(lambda: rig.store.write(MANY))
    first.wait_for("up", sent + 500_000)
    first.reset()
    writing()  # it was sent again from the beginning
    assert len(rig.proxy.links) == 2
    assert rig.batches() == 1
    assert len(rig.look().slices) == len(MANY.slices)


# -- a server that refuses -----------------------------------------------------------------------------------------


REFUSALS = [
    ("53100", StoreUnavailableError, "run out of something"),
    ("53200", StoreUnavailableError, "run out of something"),
    ("40001", StoreUnavailableError, "will be tried again"),
    ("40P01", StoreUnavailableError, "will be tried again"),
    ("57014", StoreUnavailableError, "is locked"),
    ("58030", StoreUnavailableError, "check its disk"),
    ("57P01", StoreUnavailableError, "was lost"),
    ("25006", StoreUnavailableError, "read-only for now"),
    ("42501", StoreError, "GRANT"),
    ("P0001", StoreError, "SQLSTATE P0001"),
]


@pytest.mark.parametrize(("code", "error", "message"), REFUSALS)
def test_a_batch_that_the_server_refuses_is_not_there_and_the_next_is(
    rig: Rig, code: str, error: type[Exception], message: str
) -> None:
    """The server raises the code itself, from within the writing transaction."""
    rig.query(
        f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION 'no, sorry' USING ERRCODE = '{code}'; END $$"
    )
    rig.query("CREATE TRIGGER refuse BEFORE INSERT ON dispatch.attempts EXECUTE FUNCTION refuse()")
    with pytest.raises(error, match=message) as refused:
        rig.store.write(BATCH)
    assert type(refused.value) in (error, *error.__subclasses__())
    assert "\n" not in str(refused.value)
    assert rig.look() == Contents()
    rig.query("DROP TRIGGER refuse ON dispatch.attempts")
    if rig.store._return is not None:
        rig.until_back()
    rig.store.write(BATCH)
    assert rig.batches() == 1
    assert rig.look().slices == BATCH.slices


@pytest.mark.parametrize("use", [lambda store: store.write(BATCH), lambda store: store.renew()])
def test_a_lock_of_another_transaction_is_waited_for_shortly_then_reported(
    rig: Rig, use: Callable[[PostgresStore], object]
) -> None:
    assert rig.store._wire is not None
    rig.store._wire.run([Statement("SET lock_timeout = 100")], LIMIT_S)
    with rig.server.connection(rig.database) as stranger:
        stranger.execute("BEGIN")
        stranger.execute("SELECT FROM dispatch.claims FOR UPDATE")
        with pytest.raises(StoreUnavailableError, match="is locked by another transaction"):
            use(rig.store)
        stranger.execute("ROLLBACK")
    use(rig.store)
    assert len(rig.proxy.links) == 1


def test_a_database_that_turns_read_only_refuses_until_it_is_no_more(hasty: Rig) -> None:
    hasty.store.write(BATCH)
    hasty.query("ALTER SYSTEM SET default_transaction_read_only = on")
    hasty.query("SELECT pg_reload_conf()")
    hasty.until(lambda: hasty.query("SHOW default_transaction_read_only") == [("on",)])
    try:
        with pytest.raises(StoreUnavailableError):
            while True:  # its connection may not have heard of it yet
                hasty.store.renew()
        hasty.until(lambda: "read-only for now" in hasty.refused_at_once(lambda: hasty.store.write(NEXT)))
    finally:
        with hasty.server.connection() as stranger:
            stranger.execute("SET default_transaction_read_only = off")
            stranger.execute("ALTER SYSTEM RESET default_transaction_read_only")
            stranger.execute("SELECT pg_reload_conf()")
    hasty.until_back()
    hasty.store.write(NEXT)
    assert hasty.batches() == 2


# -- owners and outages --------------------------------------------------------------------------------------------


def test_an_owner_that_was_overtaken_during_an_outage_writes_nothing(hasty: Rig) -> None:
    hasty.store.write(BATCH)
    hasty.proxy.refuse()
    with pytest.raises(StoreUnavailableError):
        hasty.store.write(NEXT)
    successor = hasty.direct()
    successor.claim("default", take_over=True)
    hasty.proxy.listen_again()
    hasty.until_back()
    for use in (lambda: hasty.store.write(NEXT), hasty.store.renew, hasty.store.load):
        with pytest.raises(OwnershipLostError):
            use()
    assert hasty.look().slices == BATCH.slices
    successor.write(NEXT)  # the former owner's return has not touched its claim
    successor.release()


def test_a_claim_that_ran_out_during_an_outage_goes_on_if_nobody_followed(hasty: Rig) -> None:
    hasty.proxy.refuse()
    with pytest.raises(StoreUnavailableError):
        hasty.store.renew()
    hasty.query("UPDATE dispatch.claims SET expires_at = 1")
    hasty.proxy.listen_again()
    hasty.until_back()
    hasty.store.write(BATCH)
    hasty.store.renew()
    assert hasty.direct().peek("default")[1] is not None


def test_an_owner_whose_database_was_set_back_to_an_earlier_moment_writes_nothing(rig: Rig) -> None:
    """As by a restored backup: what the owner has told since is not there, and what it writes would not fit."""
    rig.store.write(BATCH)
    rig.query("UPDATE dispatch.claims SET written = 0")
    with pytest.raises(OwnershipLostError):
        rig.store.write(NEXT)
    assert rig.look().slices == BATCH.slices


def test_a_way_back_that_hangs_holds_nobody_up(server: PostgresServer) -> None:
    """As the look-up of a name may, for minutes, with no way to end it."""
    hanging, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    class Closing(psycopg.Connection[Any]):
        def close(self) -> None:
            super().close()
            if go_on.is_set():
                closed.set()

    def connect_or_hang(conninfo: str) -> psycopg.Connection[Any]:
        if lost:
            hanging.set()
            assert go_on.wait(LIMIT_S)
        return Closing.connect(conninfo, autocommit=True)

    lost: list[bool] = []
    database = Databases(server.url()).new()
    store = PostgresStore(database, sleep=never_waits, patience_s=HASTY_S, connect=connect_or_hang)
    store.claim("default")
    lost.append(True)
    server.execute(f"SELECT pg_terminate_backend({_backend(store)})")
    with pytest.raises(StoreUnavailableError):
        store.write(BATCH)
    assert hanging.wait(LIMIT_S)
    for use in (store.renew, lambda: store.write(BATCH), store.release):
        with pytest.raises(StoreUnavailableError):
            use()
    go_on.set()
    assert closed.wait(LIMIT_S), "what came back after all was left open"


def _backend(store: PostgresStore) -> int:
    assert store._wire is not None
    (result,) = store._wire.run([Statement("SELECT pg_backend_pid()")], LIMIT_S)
    return int(result.get_value(0, 0) or b"0")


def test_a_claim_whose_answer_was_lost_is_no_hindrance_to_who_made_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PostgresStore(rig.store.url, sleep=never_waits)

    def lose_the_answer(point: str) -> None:
        if point == "postgres.before-claim-commit":
            rig.proxy.last.set(down=Flow.SWALLOW)

    monkeypatch.setattr("dispatch.store.postgres.killpoint", lose_the_answer)
    claiming = _in_thread(lambda: other.claim("another"))
    rig.until(lambda: rig.query("SELECT name FROM dispatch.claims JOIN dispatch.graphs ON graph = key")[1:] != [])
    rig.proxy.last.reset()
    with pytest.raises(StoreUnavailableError):
        claiming()
    monkeypatch.undo()
    assert other.claim("another").epoch == 2
    other.release()


def test_of_two_that_claim_what_was_given_up_at_once_one_waits_for_the_other_and_is_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.store.release()
    rival, ends = rig.direct(), []

    def let_the_rival_in(point: str) -> None:
        if point == "postgres.before-claim-commit" and not ends:
            ends.append(_in_thread(lambda: rival.claim("default")))
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            rig.until(lambda: rig.query(waiting) != [])

    monkeypatch.setattr("dispatch.store.postgres.killpoint", let_the_rival_in)
    rig.store.claim("default")
    with pytest.raises(OwnedElsewhereError):
        ends[0]()
    rig.store.write(BATCH)


def test_giving_up_during_an_outage_closes_everything_and_leaves_the_claim_to_run_out(hasty: Rig) -> None:
    hasty.proxy.refuse()
    with pytest.raises(StoreUnavailableError):
        hasty.store.renew()
    with pytest.raises(StoreUnavailableError):
        hasty.store.release()
    assert hasty.direct().peek("default")[1] is not None
    with pytest.raises(OwnershipLostError):
        hasty.store.renew()
    hasty.proxy.listen_again()
    assert hasty.store.claim("default").epoch == 2
    hasty.store.release()


def _in_thread(call: Callable[[], object]) -> Callable[[], object]:
    """Begins `call`; what is returned waits for its end, and raises what it raised."""
    outcome: list[object] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end() -> object:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "the call hangs"
        if errors:
            raise errors[0]
        return outcome[0]

    return end
