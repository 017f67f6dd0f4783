"""A queue in PostgreSQL: strangers' writes, waiting without asking, locks in the way, and a server that goes away."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from harness.database.postgres_schema import limits
from harness.database.postgres_wire import Statement
from harness.fleet.envelope import opaque
from harness.fleet.errors import FleetBrokenError, FleetUnavailableError, StaleReceiptError
from harness.fleet.ports import Transport
from harness.fleet.transport import postgres, postgres_link
from harness.fleet.transport.memory import MemoryTransport
from harness.fleet.transport.postgres import PostgresTransport
from tests.conformance.transport_rig import START, Clock, names, receipts, turn
from tests.postgres_server import Databases, PostgresServer
from tests.tcp_proxy import Flow, TcpProxy

LIMIT_S = 30.0
PLENTY = 10**6
QUEUE = "agent_dispatch.agent_dispatch_queue"


@contextmanager
def opened(*args: object, **kwargs: object) -> Iterator[PostgresTransport]:
    with contextlib.closing(PostgresTransport(*args, **kwargs)) as transport:  # type: ignore[arg-type]
        yield transport


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(postgres_database: str, clock: Clock) -> Iterator[PostgresTransport]:
    with opened(postgres_database, clock=clock) as transport:
        assert transport.depth() == 0
        yield transport


@pytest.fixture
def stranger(postgres_database: str) -> Iterator[Callable[[str], list[tuple[object, ...]]]]:
    """Executes a statement and commits it."""
    with contextlib.closing(psycopg.connect(postgres_database, autocommit=True)) as connection:

        def execute(sql: str) -> list[tuple[object, ...]]:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

        yield execute


Execute = Callable[[str], list[tuple[object, ...]]]


# -- strangers ---------------------------------------------------------------------------------------------------------


def test_what_strangers_insert_is_delivered_in_its_order(queue: PostgresTransport, stranger: Execute) -> None:
    queue.put_many([turn("ours", tenant="x", enqueued_at=START)], PLENTY)
    stranger(
        f"INSERT INTO {QUEUE} (job_id, session_id, kind, payload_ref, tenant, priority, enqueued_at)"
        f" SELECT 'theirs ' || n, 's' || n, 'k', '', 'y', 2 - n % 2, {START} + n FROM generate_series(1, 3) AS n"
    )
    assert queue.depth() == 4
    assert names(queue.receive(9, 0.0)) == ["theirs 1", "theirs 3", "ours", "theirs 2"]


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("job_id", "'j'"),
        ("job_id", "''"),
        ("job_id", "repeat('x', 600)"),
        ("job_id", "E'two\\nlines'"),
        ("job_id, session_id, kind, payload_ref, tenant, priority", "'j', 's', 'k', '', 't', 4"),
        ("job_id, session_id, kind, payload_ref, tenant, priority", "'j', 's', 'k', '', 't', NULL"),
        ("job_id, session_id, kind, payload_ref, tenant, deadline", "'j', 's', 'k', '', 't', 'NaN'"),
        ("job_id, session_id, kind, payload_ref, tenant, deadline", "'j', 's', 'k', '', 't', '-Infinity'"),
        ("job_id, session_id, kind, payload_ref, tenant, enqueued_at", "'j', 's', 'k', '', 't', 'Infinity'"),
        ("job_id, session_id, kind, payload_ref, tenant, attempt", "'j', 's', 'k', '', 't', -1"),
    ],
)
def test_a_row_that_is_no_envelope_is_told_and_blocks_nothing(
    queue: PostgresTransport, stranger: Execute, columns: str, values: str
) -> None:
    stranger(f"INSERT INTO {QUEUE} ({columns}) VALUES ({values})")
    queue.put_many([turn("good")], PLENTY)
    came = queue.receive(5, 0.0)
    assert sorted(names(came)) == ["?", "good"]
    (bad,) = [one for one in came if one.envelope is None]
    assert bad.raw.startswith(b"{") and bad.problem
    assert queue.acknowledge(receipts(came)) == (None, None)
    assert queue.depth() == 0


def test_what_strangers_delete_or_rewrite_is_followed(queue: PostgresTransport, stranger: Execute) -> None:
    queue.put_many([turn(name, enqueued_at=START + place) for place, name in enumerate("abcd")], PLENTY)
    (first,) = queue.receive(1, 0.0)
    stranger(f"DELETE FROM {QUEUE} WHERE job_id IN ('a', 'b')")
    stranger(f"UPDATE {QUEUE} SET priority = 0 WHERE job_id = 'd'")
    assert queue.depth() == 2
    assert isinstance(queue.acknowledge([first.receipt])[0], StaleReceiptError)
    assert names(queue.receive(5, 0.0)) == ["d", "c"]
    stranger(f"TRUNCATE {QUEUE}")
    assert queue.depth() == 0
    assert queue.receive(5, 0.0) == ()
    queue.put_many([turn("e")], 1)
    assert names(queue.receive(5, 0.0)) == ["e"]


def test_beside_the_queue_only_opaque_references_are_kept_and_go_with_the_work(
    queue: PostgresTransport, stranger: Execute
) -> None:
    queue.put_many([turn("j", "secret session", tenant="secret tenant")], PLENTY)
    came = queue.receive(1, 0.0)
    (group,) = stranger("SELECT tenant::text, grp::text, served FROM agent_dispatch.queue_group")
    expected = opaque("secret tenant"), opaque("secret tenant", "secret session"), 1
    assert (str(group[0]).replace("-", ""), str(group[1]).replace("-", ""), group[2]) == expected
    queue.acknowledge(receipts(came))
    assert queue.receive(1, 0.0) == ()
    for table in ("queue_tenant", "queue_group", "queue_lane", "queue_entry", "queue_note"):
        assert stranger(f"SELECT * FROM agent_dispatch.{table}") == [], table


def test_depth_is_the_number_of_rows_whatever_happens(queue: PostgresTransport, stranger: Execute) -> None:
    for round_ in range(12):
        queue.put_many([turn(f"{round_}-{number}") for number in range(15)], 60)
        came = queue.receive(10, 0.0)
        queue.acknowledge(receipts(came)[: 3 * (round_ % 3)])
        assert [(queue.depth(),)] == stranger(f"SELECT count(*) FROM {QUEUE}")
    assert queue.depth() == 60


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_an_idle_receiver_asks_nothing_and_wakes_at_once(postgres_database: str) -> None:
    activity = (
        "SELECT pid, state_change FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> %s ORDER BY pid"
    )
    with (
        opened(postgres_database) as receiver,
        opened(postgres_database) as producer,
        psycopg.connect(postgres_database, autocommit=True) as watching,
        ThreadPoolExecutor(1) as pool,
    ):

        def statements() -> list[object]:
            """When each other connection was last given something to do, or done with it."""
            return list(watching.execute(activity.encode(), (watching.info.backend_pid,)).fetchall())

        waiting = pool.submit(receiver.receive, 1, LIMIT_S)
        _until_it_waits(watching)
        for _ in range(6):  # it looks once more after it has begun to wait, and every two seconds
            before = statements()
            with pytest.raises(TimeoutError):
                waiting.result(1.0)
            if statements() == before:
                break
        else:
            raise AssertionError("a receiver that waits asks the server all the time")
        producer.put_many([turn("first")], PLENTY)
        receiver.acknowledge(receipts(waiting.result(LIMIT_S)))
        delays = []
        for number in range(20):
            waiting = pool.submit(receiver.receive, 1, LIMIT_S)
            _until_it_waits(watching)
            put_at = time.monotonic()
            producer.put_many([turn(f"{number}")], PLENTY)
            came = waiting.result(LIMIT_S)
            delays.append(time.monotonic() - put_at)
            receiver.acknowledge(receipts(came))
        assert sorted(delays)[10] < 0.5, "far below the two seconds after which it would look by itself"


def _until_it_waits(watching: psycopg.Connection[tuple[object, ...]]) -> None:
    """Until the receiver's lock says that it does, and it has looked once more."""
    deadline = time.monotonic() + LIMIT_S
    held = (
        "SELECT 1 FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)"
        " WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.granted AND a.datname = current_database()"
    )
    while watching.execute(held.encode()).fetchone() is None:
        assert time.monotonic() < deadline, "nobody waits"


def test_a_listener_that_was_cut_off_listens_again(postgres_database: str) -> None:
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE locktype = 'advisory' AND mode = 'ShareLock' AND datname = current_database()"
    )
    with (
        opened(postgres_database) as receiver,
        opened(postgres_database) as producer,
        psycopg.connect(postgres_database, autocommit=True) as watching,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(receiver.receive, 1, LIMIT_S)
        _until_it_waits(watching)
        watching.execute(cut.encode())
        _until_it_waits(watching)
        producer.put_many([turn("a")], PLENTY)
        assert names(waiting.result(5.0)) == ["a"]


def test_without_a_way_to_listen_a_receiver_looks_for_itself_now_and_then(postgres_database: str) -> None:
    made = list[str]()

    def only_one(conninfo: str) -> psycopg.Connection[object]:
        made.append(conninfo)
        if len(made) > 1:
            raise psycopg.OperationalError("connection failed: no more of them")
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)

    with (
        opened(postgres_database, connect=only_one) as receiver,
        opened(postgres_database) as producer,
        ThreadPoolExecutor(1) as pool,
    ):
        began = time.process_time()
        waiting = pool.submit(receiver.receive, 1, LIMIT_S)
        assert receiver.depth() == 0
        producer.put_many([turn("a")], PLENTY)
        assert names(waiting.result(LIMIT_S)) == ["a"]
        assert time.process_time() - began < 5.0
        assert len(made) < 20, "it does not spin"


# -- locks -------------------------------------------------------------------------------------------------------------


@contextmanager
def held(conninfo: str, *statements: str) -> Iterator[None]:
    """Within, a transaction has executed them and is open."""
    with psycopg.connect(conninfo) as connection:
        for each in statements:
            connection.execute(each.encode())
        yield


def test_a_refusal_waits_for_no_lock(postgres_database: str, queue: PostgresTransport) -> None:
    queue.put_many([turn("a")], 1)
    with held(postgres_database, "SELECT pg_advisory_xact_lock(agent_dispatch.queue_lock(1))"):
        assert queue.put_many([turn("b")], 1) == (False,)
        assert queue.put_many([turn("a")], 1) == (True,), "nor does one that is there"


def test_a_receiver_waits_neither_for_who_puts_nor_for_who_acknowledges(
    postgres_database: str, queue: PostgresTransport
) -> None:
    queue.put_many([turn("a"), turn("b"), turn("c")], PLENTY)
    queue.receive(1, 0.0)
    with held(
        postgres_database,
        "SELECT pg_advisory_xact_lock(agent_dispatch.queue_lock(1))",
        f"INSERT INTO {QUEUE} (job_id) VALUES ('under way')",
        "SELECT 1 FROM agent_dispatch.queue_entry WHERE job_id = 'a' FOR UPDATE",
        f"DELETE FROM {QUEUE} WHERE job_id = 'a'",
    ):
        assert names(queue.receive(1, 0.0)) == ["b"]
    assert sorted(names(queue.receive(5, 0.0))) == ["?", "c"]


def test_one_whose_acknowledgement_is_under_way_is_passed_over(
    postgres_database: str, queue: PostgresTransport, clock: Clock
) -> None:
    queue.put_many([turn("a"), turn("b")], PLENTY)
    queue.receive(2, 0.0)
    with held(postgres_database, "SELECT 1 FROM agent_dispatch.queue_entry WHERE job_id = 'a' FOR UPDATE"):
        clock.now += 3600
        assert names(queue.receive(5, 0.0)) == ["b"]
    assert names(queue.receive(5, 0.0)) == ["a"]


def test_many_at_once_on_the_same_deliveries_never_deadlock(postgres_database: str) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(opened(postgres_database)) for _ in range(6)]
        clients[0].put_many([turn(f"{number}") for number in range(60)], PLENTY)
        out = receipts(clients[0].receive(60, 0.0))
        go = threading.Barrier(len(clients))

        def work(place: int) -> None:
            mine = out[place:] + out[:place] if place % 2 else list(reversed(out))
            go.wait(LIMIT_S)
            for _ in range(15):
                assert clients[place].extend(mine) == (None,) * 60
                clients[place].put_many([turn(f"{number}") for number in range(place, 60 + place)], PLENTY)

        with ThreadPoolExecutor(len(clients)) as pool:
            list(pool.map(work, range(len(clients))))
        assert clients[0].acknowledge(out) == (None,) * 60


def test_a_lock_that_somebody_keeps_is_waited_for_a_while_and_leaves_nothing_behind(
    postgres_database: str, queue: PostgresTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_link, "_LIMITS", limits(0.2, LIMIT_S))
    with opened(postgres_database) as hasty:
        hasty.depth()
        with held(postgres_database, "SELECT pg_advisory_xact_lock(agent_dispatch.queue_lock(1))"):
            with pytest.raises(FleetUnavailableError, match="locked"):
                hasty.put_many([turn("a")], PLENTY)
            assert hasty.depth() == 0
        assert hasty.put_many([turn("a")], PLENTY) == (True,)
        assert hasty.depth() == 1


def test_what_was_put_is_put_even_if_nobody_can_be_told(
    queue: PostgresTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_WAKE", Statement("SELECT 1 / 0"))
    assert queue.put_many([turn("a")], PLENTY) == (True,)
    assert queue.depth() == 1


# -- dead rows ---------------------------------------------------------------------------------------------------------

MOVE_ON = """
    DO $$
    DECLARE
        state agent_dispatch.queue_order;
    BEGIN
        SELECT * INTO state FROM agent_dispatch.queue_order ORDER BY version DESC LIMIT 1;
        state.moves := 1000000;
        PERFORM agent_dispatch.queue_keep(state, agent_dispatch.queue_move_on(state));
    END
    $$
"""


def test_the_living_move_on_and_nothing_else_changes(queue: PostgresTransport, stranger: Execute, clock: Clock) -> None:
    reference = MemoryTransport(clock=clock)
    turns = [
        turn(f"{number}", f"s{number % 7}", tenant=f"t{number % 3}", priority=number % 2, deadline=START + 8 * number)
        for number in range(30)
    ]

    def play(transport: Transport, between: Callable[[], object]) -> list[object]:
        seen: list[object] = [transport.put_many(turns, PLENTY)]
        out = transport.receive(5, 0.0)
        seen.append(names(out))
        between()
        transport.acknowledge(receipts(out)[:1])
        seen.append(transport.extend(receipts(out)[1:2]))
        transport.give_back(receipts(out)[2:3], 7.0)
        between()
        for _ in range(20):
            clock.now += 5.0
            came = transport.receive(2, 0.0)
            seen.append(names(came))
            between()
            transport.acknowledge(receipts(came))
        return [*seen, transport.depth()]

    expected = play(reference, lambda: None)
    clock.now = START
    assert play(queue, lambda: stranger(MOVE_ON)) == expected


def test_beside_a_snapshot_that_stays_open_the_living_move_on_by_themselves(
    postgres_database: str, queue: PostgresTransport, stranger: Execute
) -> None:
    generation = "SELECT gen FROM agent_dispatch.queue_order"
    with held(postgres_database, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT 1"):
        for round_ in range(12):
            queue.put_many([turn(f"{round_}-{number}") for number in range(200)], PLENTY)
            came = queue.receive(200, 0.0)
            assert len(came) == 200
            queue.acknowledge(receipts(came))
        assert stranger(generation) > [(1,)]


# -- the server --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.mark.parametrize("crash", [False, True], ids=["in order", "crashed"])
def test_after_a_restart_everything_is_there(server: PostgresServer, crash: bool) -> None:
    conninfo = Databases(server.url()).new()
    clock = Clock()
    with opened(conninfo, clock=clock) as queue, opened(conninfo, clock=clock) as fresh:
        queue.put_many([turn(name, priority=place) for place, name in enumerate("abcd")], PLENTY)
        out = queue.receive(2, 0.0)
        server.crash() if crash else server.stop()
        server.start()
        with pytest.raises(FleetUnavailableError):
            queue.depth()
        assert queue.depth() == 4
        assert queue.put_many([turn("e")], 4) == (False,)
        if crash:  # claims are not logged: what was out is delivered again
            assert names(fresh.receive(9, 0.0)) == ["a", "b", "c", "d"]
            assert isinstance(queue.acknowledge([out[0].receipt])[0], StaleReceiptError)
        else:
            assert names(fresh.receive(9, 0.0)) == ["c", "d"]
            assert queue.acknowledge(receipts(out)) == (None, None)


def test_after_a_crash_all_at_once_find_the_order_made_anew_once(server: PostgresServer) -> None:
    conninfo = Databases(server.url()).new()
    with opened(conninfo) as before:
        before.put_many([turn(f"old {number}") for number in range(50)], PLENTY)
    server.crash()
    server.start()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(opened(conninfo)) for _ in range(6)]
        go = threading.Barrier(len(clients))

        def use(place: int) -> list[str]:
            go.wait(LIMIT_S)
            clients[place].put_many([turn(f"new {place} {number}") for number in range(5)], PLENTY)
            came = clients[place].receive(5, 0.0)
            clients[place].acknowledge(receipts(came))
            return names(came)

        with ThreadPoolExecutor(len(clients)) as pool:
            received = [name for came in pool.map(use, range(len(clients))) for name in came]
        rest = names(clients[0].receive(PLENTY, 0.0))
        assert clients[0].depth() == 80 - len(received) == len(rest)
    assert len({*received, *rest}) == 80


@pytest.fixture
def proxied(server: PostgresServer) -> Iterator[tuple[TcpProxy, PostgresTransport]]:
    database = Databases(server.url()).new()

    def dial() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(server.socket))
        return connection

    proxy = TcpProxy(dial)
    through = {**conninfo_to_dict(database), "host": "127.0.0.1", "port": proxy.port}
    with opened(make_conninfo("", **through)) as transport:
        transport.depth()
        yield proxy, transport
    proxy.close()


def test_a_put_whose_answer_was_lost_is_put_once_when_repeated(
    proxied: tuple[TcpProxy, PostgresTransport],
) -> None:
    proxy, queue = proxied
    for number in range(10):
        _lose_the_answer(proxy, lambda number=number: queue.put_many([turn(f"{number}")], PLENTY))  # type: ignore[misc]
        assert queue.put_many([turn(f"{number}")], PLENTY) == (True,)
        assert queue.depth() == number + 1


def test_an_acknowledgement_whose_answer_was_lost_is_answered_when_repeated(
    proxied: tuple[TcpProxy, PostgresTransport],
) -> None:
    proxy, queue = proxied
    queue.put_many([turn(f"{number}") for number in range(10)], PLENTY)
    for number in range(10):
        came = queue.receive(1, 0.0)
        _lose_the_answer(proxy, lambda came=came: queue.acknowledge(receipts(came)))  # type: ignore[misc]
        assert queue.acknowledge(receipts(came)) == (None,)
        assert queue.depth() == 9 - number


def _lose_the_answer(proxy: TcpProxy, call: Callable[[], object]) -> None:
    """The call reaches the server, and has its effect; what comes back is swallowed, and the connection reset."""
    link = proxy.last
    link.set(down=Flow.SWALLOW)
    before = link.seen("down")
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(call)
        link.wait_for("down", before)
        link.reset()
        with pytest.raises(FleetUnavailableError):
            calling.result(LIMIT_S)


def test_a_claim_whose_answer_was_lost_is_delivered_again_in_time(server: PostgresServer) -> None:
    conninfo, clock = Databases(server.url()).new(), Clock()
    with opened(conninfo, clock=clock) as lost, opened(conninfo, clock=clock) as queue:
        queue.put_many([turn("a")], PLENTY)
        lost.receive(1, 0.0)  # nobody ever sees this answer
        assert queue.receive(1, 0.0) == ()
        clock.now += 60.0
        assert names(queue.receive(1, 0.0)) == ["a"]


def test_a_server_process_that_knows_nothing_of_the_client_will_do(queue: PostgresTransport) -> None:
    """As behind a pooler, which hands each transaction to another one."""
    for number in range(3):
        wire = queue._link._wire
        assert wire is not None
        wire.run([Statement("DEALLOCATE ALL")], LIMIT_S)
        queue.put_many([turn(f"{number}")], PLENTY)
        wire.run([Statement("DEALLOCATE ALL")], LIMIT_S)
        came = queue.receive(1, 0.0)
        assert names(came) == [f"{number}"]
        assert queue.acknowledge(receipts(came)) == (None,)


@pytest.mark.parametrize("conninfo", ["postgresql://u:secr@et@h/d", "postgresql://u:se:cr@h/d", "secret"])
def test_what_is_no_connection_string_is_refused_without_repeating_it(conninfo: str) -> None:
    with pytest.raises(FleetBrokenError) as refused:
        PostgresTransport(conninfo)
    assert "secr" not in str(refused.value)


def test_two_that_come_first_make_the_tables_once(postgres_database: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda _: _depth(postgres_database), range(6))) == [0] * 6


def _depth(conninfo: str) -> int:
    with opened(conninfo) as transport:
        return transport.depth()
