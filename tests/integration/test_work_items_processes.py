"""An authority and the death, the company and the lost connections of its clients. Real processes, real servers."""

from __future__ import annotations

import ast
import functools
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from psycopg.conninfo import conninfo_to_dict

import harness.fleet.authority
from harness.database.postgres_schema import COMMIT
from harness.database.postgres_wire import Result, Statement
from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.authority.postgres import PostgresWorkItems
from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.commands import (
    Cancel,
    Claim,
    Command,
    Defer,
    Fail,
    Recover,
    Renew,
    Requeue,
    Retry,
    Start,
    Stop,
    Submit,
    Succeed,
    Withdraw,
)
from harness.fleet.errors import FleetUnavailableError
from harness.fleet.ports import Authority, Query
from harness.fleet.ports import Result as Answer
from harness.fleet.work_item import Submission, WorkItem, WorkItemState
from tests.integration import work_items_child
from tests.integration.store_child import LIMIT_S, Where, child
from tests.integration.work_items_child import ITEMS, STAGES, TTL_S, next_stage, stage_of
from tests.postgres_server import Databases, PostgresServer
from tests.tcp_proxy import Flow, TcpProxy

PLACES = ("sqlite", "postgres")


@pytest.fixture(params=PLACES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    if request.param == "sqlite":
        return tmp_path / "state.db"
    return str(request.getfixturevalue("postgres_database"))


def late(where: Where) -> Authority:
    """A client for which every lease has run out."""
    clock: Callable[[], float] = lambda: time.time() + 10 * TTL_S  # noqa: E731
    return SqliteWorkItems(where, clock=clock) if isinstance(where, Path) else PostgresWorkItems(where, clock=clock)


# -- killed ------------------------------------------------------------------------------------------------------------


def killed_at(where: Where, name: str, passage: int) -> bool:
    """Whether it was. What was acknowledged is there, and a stage by half is not; then others go on to the end."""
    acknowledged = 0
    with child(work_items_child.life, where, name, passage) as victim:
        try:
            while True:
                acknowledged = int(str(victim.hear()))
        except EOFError:
            status = victim.wait()
    assert status in (0, -signal.SIGKILL)
    with closing(work_items_child.authority_at(where)) as authority:
        assert acknowledged <= stage_of(authority) <= acknowledged + 1
    with closing(late(where)) as authority:
        go_on(authority)
    return status != 0


def go_on(authority: Authority) -> None:
    """Recover what was left, and bring all to their ends: nothing is stuck, and nothing succeeds twice."""
    while (stage := stage_of(authority)) < STAGES - 1:
        if stage == 2:
            overtaken = authority.overtaken(10)
            assert {item.id for item in overtaken} == {"a", "b"}
            authority.perform([Recover(item.id, "t") for item in overtaken])
            break
        next_stage(authority)
        if stage == 1:
            break
    found = authority.find(ITEMS)
    assert {item.state.value for item in found.values()} <= {"ready", "running", "submitted", "succeeded"}


@pytest.mark.parametrize("passage", range(1, STAGES))
@pytest.mark.parametrize("point", ["before", "after"])
def test_a_kill_around_a_commit_leaves_all_of_it_or_nothing(where: Where, point: str, passage: int) -> None:
    kind = "sqlite" if isinstance(where, Path) else "postgres"
    assert killed_at(where, f"{kind}.{point}-perform-commit", passage)


def test_a_kill_in_any_exchange_with_the_server_leaves_all_or_nothing() -> None:
    from tests.postgres_server import databases

    passage = 1
    while killed_at(databases().new(), "postgres.after-send", passage):
        passage += 1
    assert passage > 10


def test_every_killpoint_of_the_authority_is_tried() -> None:
    found = set()
    for file in Path(str(harness.fleet.authority.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "killpoint":
                found.add(ast.literal_eval(node.args[0]))
    assert found == {f"{kind}.{point}-perform-commit" for kind in PLACES for point in ("before", "after")}


# -- in company --------------------------------------------------------------------------------------------------------


def test_sixteen_at_one_session_never_hold_two_items_of_it(where: Where, tmp_path: Path) -> None:
    names, notes = [f"i{number:03}" for number in range(300)], tmp_path / "notes"
    with closing(work_items_child.authority_at(where)) as authority:
        authority.perform([Submit(Submission(name, "t", "one", "k")) for name in names])
        with ExitStack() as stack:
            crowds = [
                stack.enter_context(child(work_items_child.crowd, where, names, notes, seed)) for seed in range(4)
            ]
            for each in crowds:
                assert each.pipe.poll(100), "a crowd does not come to an end"
                assert each.hear() == "done"
        assert authority.tally().items == {WorkItemState.SUCCEEDED: 300}
        outcomes = [outcome for name in names for outcome in authority.outcomes(name)]
    lines = [line.split() for line in notes.read_text().splitlines()]
    assert [sign for sign, *_ in lines] == ["+", "-"] * 300, "two of a session were held at once"
    assert Counter(name for _, name, _ in lines) == dict.fromkeys(names, 2)
    tokens = [int(token) for sign, _, token in lines if sign == "+"]
    assert tokens == sorted(set(tokens)), "a resource that has seen a token must be able to refuse every earlier one"
    assert len(outcomes) == 300


def test_eight_that_renew_and_end_the_same_items_in_any_order_get_along(where: Where) -> None:
    with closing(work_items_child.authority_at(where)) as authority:
        names = [f"i{number:02}" for number in range(40)]
        authority.perform([Submit(Submission(name, "t", name, "k")) for name in names])
        claimed = authority.perform([Claim(name, "t", "w", TTL_S, starts=True) for name in names])
        leases = [item.lease for item in claimed if isinstance(item, WorkItem)]
        clients = [work_items_child.authority_at(where) for _ in range(8)]
        ended: list[Answer] = []
        problems: list[BaseException] = []

        def work(number: int) -> None:
            mine = leases[::-1] if number % 2 else leases
            try:
                for _ in range(3):
                    clients[number].perform([Renew(lease, TTL_S) for lease in mine])
                ended.extend(clients[number].perform([Succeed(lease) for lease in mine]))
            except BaseException as problem:  # noqa: BLE001 it is looked at below
                problems.append(problem)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        for client in clients:
            client.close()
        assert problems == []
        assert sum(isinstance(item, WorkItem) for item in ended) == 40
        assert authority.tally().outcomes == {WorkItemState.SUCCEEDED: 40}


# -- locks on sessions -------------------------------------------------------------------------------------------------


def test_a_lock_ends_with_its_process_and_can_be_taken_from_one_that_stands_still(where: Where) -> None:
    sessions = [("t", "s1"), ("t", "s2")]
    with closing(work_items_child.authority_at(where)) as authority:
        with child(work_items_child.holder, where, sessions) as holder:
            assert holder.hear() == (True, True)
            assert authority.lock_sessions([*sessions, ("t", "s3")]) == (False, False, True)
            holder.signal(signal.SIGSTOP)
            assert authority.seize_sessions(sessions[:1]) == (True,)
            assert authority.lock_sessions(sessions[:1]) == (False,), "it is ours by now"
            holder.signal(signal.SIGKILL)
            holder.wait()
            deadline = time.monotonic() + LIMIT_S
            while authority.lock_sessions(sessions[1:]) != (True,):
                assert time.monotonic() < deadline, "the lock outlives its process"
        authority.unlock_sessions([*sessions, ("t", "s3"), ("t", "never locked")])
        assert authority.lock_sessions(sessions) == (True, True)


# -- lost answers ------------------------------------------------------------------------------------------------------


@attrs.define
class Rig:
    """An authority behind a proxy, and a way past it. `trouble` comes over the next commit, once."""

    server: PostgresServer
    proxy: TcpProxy
    authority: PostgresWorkItems
    direct: PostgresWorkItems
    now: float = 1000.0
    trouble: Callable[[], None] | None = None


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@contextmanager
def rigged(server: PostgresServer) -> Iterator[Rig]:
    def dial() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(server.socket))
        except OSError:
            connection.close()
            raise
        return connection

    proxy = TcpProxy(dial)
    database = conninfo_to_dict(Databases(server.url()).new())["dbname"]
    assert isinstance(database, str)
    url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{database}"
    clock: Callable[[], float] = lambda: rig.now  # noqa: E731
    rig = Rig(
        server,
        proxy,
        PostgresWorkItems(url, clock=clock, patience_s=LIMIT_S),
        PostgresWorkItems(server.url(database), clock=clock),
    )
    _interpose(rig)
    yield rig
    rig.authority.close()
    rig.direct.close()
    proxy.close()


@pytest.fixture
def rig(server: PostgresServer) -> Iterator[Rig]:
    with rigged(server) as rig:
        yield rig


def _interpose(rig: Rig) -> None:
    """Let the trouble come just before a commit is sent: only the client knows when that is."""
    client = rig.authority._client
    send = client.run

    def run(statements: Sequence[Statement], rows: int = 0) -> list[Result]:
        items = list(statements)
        if COMMIT in items and rig.trouble is not None:
            trouble, rig.trouble = rig.trouble, None
            trouble()
        return send(items, rows)

    client.run = run  # type: ignore[method-assign,assignment]


def lose_the_answer(rig: Rig) -> None:
    """The server commits, and nobody hears of it."""
    link = rig.proxy.last
    seen = link.seen("down")
    link.set(down=Flow.SWALLOW)

    def cut() -> None:
        link.wait_for("down", seen)
        link.reset()

    threading.Thread(target=cut, daemon=True).start()


def lose_the_request(rig: Rig) -> None:
    """The server never hears of it."""
    link = rig.proxy.last
    seen = link.seen("up")
    link.set(up=Flow.SWALLOW)

    def cut() -> None:
        link.wait_for("up", seen)
        link.reset()

    threading.Thread(target=cut, daemon=True).start()


def delay_the_request(rig: Rig) -> None:
    """The server hears of it when the client has long given up."""
    link = rig.proxy.last
    seen = link.seen("up")
    link.set(up=Flow.HOLD)

    def cut() -> None:
        link.wait_for("up", seen)
        link.hang_up_on_client()

    threading.Thread(target=cut, daemon=True).start()


def ready(authority: Authority) -> None:
    authority.perform([Submit(Submission(name, "t", f"session of {name}", "k", max_attempts=2)) for name in "ab"])


def running(authority: Authority) -> None:
    ready(authority)
    authority.perform([Claim(name, "t", "w", 60.0, starts=True) for name in "ab"])


def leased(authority: Authority) -> None:
    ready(authority)
    authority.perform([Claim(name, "t", "w", 60.0) for name in "ab"])


def dead(authority: Authority) -> None:
    authority.perform([Submit(Submission("a", "t", "s", "k", max_attempts=1))])
    authority.perform([Claim("a", "t", "w", 60.0, starts=True)])
    authority.perform([Retry(authority.find("a")["a"].lease, "broken")])


def in_the_lease(kind: Callable[..., Command], *rest: object) -> Callable[[Authority], list[Command]]:
    return lambda authority: [kind(authority.find("a")["a"].lease, *rest)]


LOST: dict[str, tuple[Callable[[Authority], None], Callable[[Authority], list[Command]]]] = {
    "submit": (ready, lambda _: [Submit(Submission("c", "t", "s", "k", depends_on=("a",)))]),
    "withdraw": (ready, lambda _: [Withdraw("a", "t")]),
    "claim": (ready, lambda _: [Claim("a", "t", "w", 60.0)]),
    "claim and start": (ready, lambda _: [Claim("a", "t", "w", 60.0, starts=True)]),
    "start": (leased, in_the_lease(Start)),
    "renew": (running, in_the_lease(Renew, 90.0)),
    "succeed": (running, in_the_lease(Succeed, "done")),
    "fail": (running, in_the_lease(Fail, "broken")),
    "retry": (running, in_the_lease(Retry, "broken", 0.5)),
    "defer": (running, in_the_lease(Defer, "busy", 3.0)),
    "stop": (running, in_the_lease(Stop, "enough", "half")),
    "cancel": (running, lambda _: [Cancel("a", "t", "no"), Cancel("b", "t", "no")]),
    "requeue": (dead, lambda _: [Requeue("a", "t")]),
    "several": (
        running,
        lambda authority: [
            Submit(Submission("c", "t", "session of a", "k")),
            Succeed(authority.find("a")["a"].lease, "done"),
            Claim("c", "t", "w", 60.0),
            Withdraw("b", "t"),
        ],
    ),
}
TROUBLES = (lose_the_answer, lose_the_request, delay_the_request)


def picture(authority: Authority) -> tuple[object, ...]:
    """All that is stored, but for the numbers of tokens."""
    items = authority.search(Query())
    lines = [authority.outcomes(item.id) for item in items]
    return (
        [attrs.evolve(item, token=0) for item in items],
        [[attrs.evolve(line, token=0) for line in some] for some in lines],
    )


def untouched(scene: Callable[[Authority], None], asked: Callable[[Authority], list[Command]]) -> tuple[object, Any]:
    """What comes of it when nothing comes between."""
    memory = MemoryWorkItems(lambda: 1000.0)
    scene(memory)
    results = memory.perform(asked(memory))
    return picture(memory), [_told(each) for each in results]


def _told(result: Answer) -> object:
    return str(result) if isinstance(result, Exception) else result and attrs.evolve(result, token=0)


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
@pytest.mark.parametrize("name", LOST)
def test_what_became_of_a_commit_is_found_out(rig: Rig, name: str, trouble: Callable[[Rig], None]) -> None:
    scene, asked = LOST[name]
    scene(rig.authority)
    commands = asked(rig.authority)
    stored, told = untouched(scene, asked)
    rig.trouble = functools.partial(trouble, rig)
    results = rig.authority.perform(commands)
    assert rig.trouble is None, "nothing was committed"
    assert [_told(each) for each in results] == told
    assert picture(rig.direct) == stored
    rig.proxy.links[-2].set(up=Flow.PASS)  # now what was held back arrives
    rig.proxy.links[-2].wait_closed()
    assert picture(rig.direct) == stored


@pytest.mark.parametrize("trouble", TROUBLES[:2], ids=lambda trouble: trouble.__name__)
@pytest.mark.parametrize("name", ["claim", "succeed", "retry", "requeue", "withdraw", "several"])
def test_if_it_cannot_be_found_out_for_now_the_same_asked_again_tells(
    rig: Rig, name: str, trouble: Callable[[Rig], None]
) -> None:
    scene, asked = LOST[name]
    scene(rig.authority)
    commands = asked(rig.authority)
    stored, told = untouched(scene, asked)

    def and_refuse_to_come_back() -> None:
        rig.proxy._listener.shutdown(socket.SHUT_RDWR)
        rig.proxy._listener.close()
        trouble(rig)

    rig.trouble = and_refuse_to_come_back
    for _ in range(2):
        with pytest.raises(FleetUnavailableError):
            rig.authority.perform(commands)
    rig.proxy.listen_again()
    assert [_told(each) for each in rig.authority.perform(commands)] == told
    assert picture(rig.direct) == stored


def test_a_client_that_stands_still_in_the_middle_holds_nobody_up(rig: Rig) -> None:
    """Between its look and its commit; then it finds that the world has moved on."""
    running(rig.authority)
    lease = rig.authority.find("a")["a"].lease

    def meanwhile() -> None:
        rig.now += 100
        (claimed,) = rig.direct.perform([Claim("a", "t", "another", 60.0, starts=True)])
        assert isinstance(claimed, WorkItem)

    rig.trouble = meanwhile
    (result,) = rig.authority.perform([Succeed(lease, "late")])
    assert type(result).__name__ == "LeaseLostError"
    assert rig.direct.find("a")["a"].owner == "another"


@pytest.mark.parametrize("fate", ["restart", "terminate"])
def test_a_connection_that_broke_is_replaced(rig: Rig, fate: str) -> None:
    ready(rig.authority)
    if fate == "restart":
        rig.server.crash()
        with pytest.raises(FleetUnavailableError):
            rig.authority.perform([Claim("a", "t", "w", 60.0)])
        rig.server.start()
    else:
        rig.server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    (claimed,) = rig.authority.perform([Claim("a", "t", "w", 60.0)])
    assert isinstance(claimed, WorkItem)


def test_tokens_are_not_used_again_after_a_crash_of_the_server(rig: Rig) -> None:
    ready(rig.authority)
    tokens = []
    for _ in range(3):
        (claimed,) = rig.authority.perform([Claim("a", "t", "w", 60.0)])
        assert isinstance(claimed, WorkItem)
        tokens.append(claimed.token)
        rig.authority.perform([Defer(claimed.lease, "again")])
        rig.server.crash()
        rig.server.start()
    assert tokens == sorted(set(tokens))
