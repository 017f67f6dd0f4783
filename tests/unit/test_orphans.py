"""Whose process is whose, from recorded tables; nothing is signalled here that isn't this test's own child."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence

import attrs
import pytest

from harness.local.orphans import (
    KILL_LIMIT_S,
    Ending,
    OrphanError,
    ProcessMark,
    is_alive,
    mark_of,
    members_of,
    this_boot,
)
from harness.procfs import ProcessStat, ProcessTable, Snapshot, stat_of

LEADER = 4_000_100  # beyond any pid there is
OTHER_BOOT = "another boot"


def process(pid: int, group: int = LEADER, session: int = LEADER, start: int = 500, state: str = "S") -> ProcessStat:
    return ProcessStat(pid, state, 1, group, session, 1, start, 0, 0)


def mark(pid: int = LEADER, start: int = 500, boot: str | None = None) -> ProcessMark:
    return ProcessMark(pid, start, this_boot() if boot is None else boot)


@attrs.frozen
class Case:
    name: str
    stats: Sequence[ProcessStat]
    leader: ProcessMark
    known: frozenset[ProcessMark]
    members: set[int]


NONE: frozenset[ProcessMark] = frozenset()
CHILD, GRANDCHILD, STRANGER = LEADER + 1, LEADER + 2, LEADER + 50
CASES = [
    Case("leader and group", [process(LEADER), process(CHILD)], mark(), NONE, {LEADER, CHILD}),
    Case("a leader that is a zombie", [process(LEADER, state="Z"), process(CHILD)], mark(), NONE, {CHILD}),
    Case(
        "another group in its session",
        [process(LEADER), process(CHILD, group=CHILD)],
        mark(),
        NONE,
        {LEADER, CHILD},
    ),
    Case("a stranger", [process(LEADER), process(STRANGER, STRANGER, STRANGER)], mark(), NONE, {LEADER}),
    Case("a zombie in the group", [process(LEADER), process(CHILD, state="Z")], mark(), NONE, {LEADER}),
    Case("the pid was used again", [process(LEADER, start=501), process(CHILD)], mark(), NONE, set()),
    Case("of another boot", [process(LEADER), process(CHILD)], mark(boot=OTHER_BOOT), NONE, set()),
    Case("the leader is gone, and nothing proves the group", [process(CHILD)], mark(), NONE, set()),
    Case(
        "the leader is gone, a member is known",
        [process(CHILD), process(GRANDCHILD)],
        mark(),
        frozenset({mark(CHILD)}),
        {CHILD, GRANDCHILD},
    ),
    Case(
        "a known one has left the group",
        [process(CHILD, CHILD, CHILD), process(GRANDCHILD)],
        mark(),
        frozenset({mark(CHILD)}),
        {CHILD},
    ),
    Case("a known pid was used again", [process(CHILD, start=900)], mark(), frozenset({mark(CHILD)}), set()),
    Case("no leader at all", [process(2, 0, 0), process(CHILD, 0, 0)], mark(0, 0, ""), NONE, set()),
    Case("init is no leader of ours", [process(1, 1, 1), process(CHILD, 1, 1)], mark(1), NONE, set()),
    Case("init by its own mark", [process(1, 1, 1)], mark(1), NONE, set()),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_members_of_a_session(case: Case) -> None:
    found = members_of(case.stats, case.leader, "", case.known)
    assert {stat.pid for stat in found} == case.members


@pytest.fixture
def carrier() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this test's that carries a token."""
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, "DISPATCH_SESSION": "unit-token"}) as child:
        yield child
        child.kill()


def own_stat(pid: int, group: int) -> ProcessStat:
    stat = stat_of(pid)
    assert stat is not None
    return attrs.evolve(stat, group=group, session=group)


@pytest.mark.parametrize(
    ("token", "group", "members"),
    [
        ("unit-token", LEADER, {"carrier", CHILD}),  # one that carries the token proves the group
        ("unit-token", STRANGER, {"carrier"}),
        ("unit-toke", LEADER, set()),
        ("unit-token-2", LEADER, set()),
        ("", LEADER, set()),
    ],
)
def test_the_token_tells_members_whose_leader_is_gone(
    carrier: subprocess.Popen[bytes], token: str, group: int, members: set[object]
) -> None:
    found = members_of([own_stat(carrier.pid, group), process(CHILD)], mark(), token)
    assert {"carrier" if stat.pid == carrier.pid else stat.pid for stat in found} == members


def test_the_caller_is_never_a_member() -> None:
    own = own_stat(os.getpid(), LEADER)
    assert members_of([process(LEADER), own], mark(), "") == [process(LEADER)]


def test_a_mark_is_of_one_process_for_good() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        mark = mark_of(child.pid)
        assert is_alive(mark)
        assert not is_alive(attrs.evolve(mark, start_ticks=mark.start_ticks + 1))
        assert not is_alive(attrs.evolve(mark, boot_id=OTHER_BOOT))
        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(mark)  # a zombie
        assert mark_of(child.pid) == mark  # which still holds the pid
    assert not is_alive(mark)
    with pytest.raises(ProcessLookupError):
        mark_of(child.pid)


class Immortal(ProcessTable):
    """A table in which one process never ends, as one that is stuck in the kernel."""

    def since(self, start_ticks: int) -> Snapshot:
        return Snapshot([process(LEADER)])


def test_ending_asks_then_kills_then_gives_up() -> None:
    ending = Ending(mark(), "", kill_at=110.0, table=Immortal())
    assert ending.round(100.0) == [mark()]
    assert (ending.wait_until, ending.killed) == (110.0, False)
    assert ending.round(110.0) == [mark()]
    assert ending.killed
    assert 110.0 < ending.wait_until < 110.0 + KILL_LIMIT_S
    assert ending.round(109.9 + KILL_LIMIT_S) == [mark()]
    assert ending.wait_until == 110.0 + KILL_LIMIT_S
    with pytest.raises(OrphanError, match=f"kill -9 {LEADER}") as caught:
        ending.round(110.0 + KILL_LIMIT_S)
    assert caught.value.pids == (LEADER,)


def test_the_time_to_kill_may_be_moved_forward() -> None:
    ending = Ending(mark(), "", kill_at=110.0, table=Immortal())
    ending.round(100.0)
    ending.kill_at = 101.0
    ending.round(101.0)
    assert ending.killed


class Reel(ProcessTable):
    """A table that shows one snapshot after the other, the last one for ever."""

    def show(self, *snapshots: Snapshot) -> Reel:
        self._snapshots = list(snapshots)
        return self

    def since(self, start_ticks: int) -> Snapshot:
        return self._snapshots.pop(0) if len(self._snapshots) > 1 else self._snapshots[0]


EMPTY = Snapshot([process(LEADER, state="Z")])
LATE = Snapshot([process(LEADER, state="Z"), process(GRANDCHILD)])
FORKERS = [
    ("it has vanished", Snapshot([process(LEADER, state="Z")], [CHILD])),
    ("it is a zombie", Snapshot([process(LEADER, state="Z"), process(CHILD, STRANGER, STRANGER, state="Z")])),
    ("it is on its way to another program", Snapshot([process(LEADER, state="Z"), process(CHILD, STRANGER, STRANGER)])),
]


@pytest.mark.parametrize("forker", [forker[1] for forker in FORKERS], ids=[forker[0] for forker in FORKERS])
def test_one_that_could_hide_another_is_reason_to_look_again(forker: Snapshot) -> None:
    ending = Ending(mark(), "", kill_at=110.0, table=Reel().show(forker, LATE))
    assert ending.round(100.0) == [mark(GRANDCHILD)]


@pytest.mark.parametrize("snapshot", [EMPTY, *(forker[1] for forker in FORKERS)])
def test_looking_again_comes_to_an_end(snapshot: Snapshot) -> None:
    ending = Ending(mark(), "", kill_at=110.0, table=Reel().show(snapshot))
    assert ending.round(100.0) == []


def test_one_look_is_enough_when_nothing_moves() -> None:
    ending = Ending(mark(), "", kill_at=110.0, table=Reel().show(EMPTY, LATE))
    assert ending.round(100.0) == []


def test_a_zombie_that_stays_hides_nothing() -> None:
    zombie = Snapshot([process(LEADER, state="Z"), process(CHILD, STRANGER, STRANGER, state="Z")])
    ending = Ending(mark(), "", kill_at=110.0, table=Reel().show(zombie, zombie, LATE))
    assert ending.round(100.0) == []
