"""A SQLite store and the death, the pause and the company of its owners. Real processes, real signals."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from dispatch.errors import OwnedElsewhereError
from dispatch.store import SqliteStore
from tests.integration import store_child
from tests.integration.store_child import FATES, batch, child, last_whole_batch, never_waits

KILLS = int(os.environ.get("STORE_KILLS", "30"))  #: more for a campaign


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


def test_every_acknowledged_batch_survives_kill_9_and_none_is_there_by_half(tmp_path: Path) -> None:
    path, instants, acknowledged, in_the_midst = tmp_path / "graphs.db", random.Random(4), 0, 0
    for _ in range(KILLS):
        with child(store_child.writer, path) as writer:
            first = acknowledged = int(str(writer.hear()))
            deadline = time.monotonic() + instants.uniform(0, 0.03)
            while writer.pipe.poll(max(0.0, deadline - time.monotonic())):
                acknowledged = int(str(writer.hear()))
            writer.signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL
            while writer.pipe.poll():
                try:
                    acknowledged = int(str(writer.hear()))
                except EOFError:
                    break
            in_the_midst += acknowledged > first
        store = SqliteStore(path, sleep=never_waits)
        store.claim("default")
        assert last_whole_batch(store.load()) in (acknowledged, acknowledged + 1)
        store.release()
        assert integrity(path) == "ok"
    assert in_the_midst > KILLS // 3, "the kills came too early to prove anything"


@pytest.mark.parametrize(("name", "passage"), [point for point in FATES if point[0].startswith("sqlite.")])
def test_a_restart_after_a_kill_at_any_point_finds_all_or_nothing(tmp_path: Path, name: str, passage: int) -> None:
    path, fate = tmp_path / "graphs.db", FATES[name, passage]
    with child(store_child.life, path, name, passage) as victim:
        assert victim.wait() == -signal.SIGKILL, "the point was never passed"
    store = SqliteStore(path, sleep=never_waits)
    assert store.claim("default").epoch == fate.epoch
    assert last_whole_batch(store.load()) == fate.batches
    store.write(batch(fate.batches + 1))
    assert last_whole_batch(store.load()) == fate.batches + 1
    store.release()
    assert integrity(path) == "ok"


def test_a_second_process_is_refused_at_once_and_succeeds_at_once_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "graphs.db"
    second = SqliteStore(path, sleep=never_waits)
    with child(store_child.obedient, path) as first:
        first.ask("claim", "default")
        first.ask("write", batch(1))
        with pytest.raises(OwnedElsewhereError) as refused:
            second.claim("default")
        assert refused.value.owner == f"pid {first.process.pid}"
        contents, claim = second.peek("default")
        assert claim is not None
        assert len(contents.slices) == len(batch(1).slices)
        first.signal(signal.SIGKILL)
        first.wait()
        assert second.peek("default") == (contents, None)
        assert second.claim("default").epoch == 2
        assert second.load() == contents
    second.release()


def test_a_killed_owner_that_nobody_has_reaped_counts_as_gone(tmp_path: Path) -> None:
    path = tmp_path / "graphs.db"
    store = SqliteStore(path, sleep=never_waits)
    with child(store_child.obedient, path) as first:
        first.ask("claim", "default")
        first.signal(signal.SIGKILL)
        with pytest.raises(EOFError):  # its end of the pipe closes as it dies
            first.pipe.recv()
        deadline = time.monotonic() + store_child.LIMIT_S
        while store.peek("default")[1] is not None:  # it closed its pipe a moment before it was dead
            assert time.monotonic() < deadline
        assert store.claim("default").epoch == 2
    store.release()


def test_an_owner_that_was_suspended_and_overtaken_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "graphs.db"
    successor = SqliteStore(path, sleep=never_waits)
    with child(store_child.obedient, path) as former:
        former.ask("claim", "default")
        former.ask("write", batch(1))
        former.signal(signal.SIGSTOP)
        assert successor.claim("default", take_over=True).epoch == 2
        successor.write(batch(2))
        before = successor.load()
        former.signal(signal.SIGCONT)
        assert former.ask("write", batch(3)) == "OwnershipLostError"
        assert former.ask("renew") == "OwnershipLostError"
        assert former.ask("load") == "OwnershipLostError"
        assert former.ask("release") is None
        assert successor.load() == before
        successor.renew()
        with pytest.raises(OwnedElsewhereError):
            SqliteStore(path, sleep=never_waits).claim("default")
    successor.release()


def test_of_many_that_claim_a_new_file_at_once_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "graphs.db"
    with ExitStack() as stack:
        rivals = [stack.enter_context(child(store_child.claimant, path)) for _ in range(6)]
        for rival in rivals:
            rival.pipe.send("go")
        answers = sorted(str(rival.hear()) for rival in rivals)
        assert answers == ["1", *["OwnedElsewhereError"] * 5]


def test_owners_of_different_graphs_write_one_file_without_errors(tmp_path: Path) -> None:
    path, writes = tmp_path / "graphs.db", 40
    with ExitStack() as stack:
        owners = [stack.enter_context(child(store_child.busy, path, f"graph-{n}", writes)) for n in range(4)]
        assert [owner.hear() for owner in owners] == [writes] * 4
        assert [owner.wait() for owner in owners] == [0] * 4
    assert integrity(path) == "ok"


def test_a_forked_child_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    with child(store_child.forking, tmp_path / "graphs.db") as parent:
        assert [parent.hear() for _ in range(6)] == ["StoreError"] * 6
        assert parent.hear() == 1
        assert parent.hear() == 11
        assert parent.hear() == "ok"
        assert parent.wait() == 0


def test_what_was_acknowledged_before_the_disk_was_full_is_there_and_writing_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "graphs.db"
    with child(store_child.cramped, path, 300_000) as owner:
        acknowledged, message = owner.hear()
        assert acknowledged > 1
        assert str(path) in message
        assert owner.hear() == acknowledged
        assert owner.hear() == acknowledged + 1
    assert integrity(path) == "ok"


def test_a_peek_sees_one_moment_while_another_process_writes(tmp_path: Path) -> None:
    path, seen = tmp_path / "graphs.db", [0]
    with child(store_child.writer, path) as writer:
        writer.hear()
        for _ in range(150):
            contents, claim = SqliteStore(path).peek("default")
            assert claim is not None
            seen.append(last_whole_batch(contents))
    assert seen == sorted(seen)
    assert len(set(seen)) > 10, "too little was written meanwhile to prove anything"
