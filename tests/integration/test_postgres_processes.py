"""A PostgreSQL store and the death, the pause and the company of its owners. Real processes, real signals."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from contextlib import ExitStack

import pytest

from dispatch.errors import OwnedElsewhereError
from tests.integration import postgres_child, store_child
from tests.integration.store_child import FATES, batch, child, last_whole_batch, never_waits, store_at
from tests.postgres_server import databases

KILLS = int(os.environ.get("STORE_KILLS", "15"))  #: more for a campaign
POINTS = [point for point in FATES if point[0].startswith("postgres.")]


def test_every_acknowledged_batch_survives_kill_9_and_none_is_there_by_half(postgres_database: str) -> None:
    instants, in_the_midst = random.Random(4), 0
    for _ in range(KILLS):
        with child(store_child.writer, postgres_database) as writer:
            first = acknowledged = int(str(writer.hear()))
            deadline = time.monotonic() + instants.uniform(0, 0.05)
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
        store = store_at(postgres_database, never_waits)
        store.claim("default")
        assert last_whole_batch(store.load()) in (acknowledged, acknowledged + 1)
        store.release()
    assert in_the_midst > KILLS // 3, "the kills came too early to prove anything"


@pytest.mark.parametrize(("name", "passage"), POINTS)
def test_a_restart_after_a_kill_at_any_point_finds_all_or_nothing(
    postgres_database: str, name: str, passage: int
) -> None:
    fate = FATES[name, passage]
    with child(store_child.life, postgres_database, name, passage) as victim:
        assert victim.wait() == -signal.SIGKILL, "the point was never passed"
    store = store_at(postgres_database, never_waits)
    assert store.claim("default").epoch == fate.epoch
    assert last_whole_batch(store.load()) == fate.batches
    store.write(batch(fate.batches + 1))
    assert last_whole_batch(store.load()) == fate.batches + 1
    store.release()


def test_a_kill_between_any_message_and_its_answer_loses_nothing_acknowledged() -> None:
    """Nobody can say whether the server still carried out what was sent: all of it, or nothing."""
    for passage in itertools.count(1):
        database, told = databases().new(), [0]
        with child(postgres_child.life_up_to, database, passage) as victim:
            while True:
                try:
                    told.append(victim.hear())  # type: ignore[arg-type]
                except EOFError:
                    break
        if "lived on" in told:
            break
        store = store_at(database, never_waits)
        assert store.claim("default").epoch in (1, 2)
        found = last_whole_batch(store.load())
        assert found in (told[-1], told[-1] + 1)
        store.write(batch(found + 1))
        assert last_whole_batch(store.load()) == found + 1
        store.release()
    assert passage > 10, "too few exchanges to be all of them"


def test_a_second_process_is_refused_at_once_and_succeeds_at_once_after_a_kill(postgres_database: str) -> None:
    second = store_at(postgres_database, never_waits)
    with child(store_child.obedient, postgres_database) as first:
        first.ask("claim", "default")
        first.ask("write", batch(1))
        with pytest.raises(OwnedElsewhereError, match=r"since .* UTC; .*--take-over") as refused:
            second.claim("default")
        assert refused.value.owner == f"pid {first.process.pid}"
        contents, claim = second.peek("default")
        assert claim is not None
        first.signal(signal.SIGKILL)
        first.wait()
        assert second.peek("default") == (contents, None)
        assert second.claim("default").epoch == 2
        assert second.load() == contents
    second.release()


def test_an_owner_that_was_suspended_and_overtaken_writes_nothing(postgres_database: str) -> None:
    successor = store_at(postgres_database, never_waits)
    with child(store_child.obedient, postgres_database) as former:
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
            store_at(postgres_database, never_waits).claim("default")
    successor.release()


def test_of_many_that_claim_in_a_new_database_at_once_one_succeeds(postgres_database: str) -> None:
    """They also make the tables at once: one does, and the others find them."""
    with ExitStack() as stack:
        rivals = [stack.enter_context(child(store_child.claimant, postgres_database)) for _ in range(6)]
        for rival in rivals:
            rival.pipe.send("go")
        answers = sorted(str(rival.hear()) for rival in rivals)
        assert answers == ["1", *["OwnedElsewhereError"] * 5]


def test_a_forked_child_is_refused_and_harms_nothing(postgres_database: str) -> None:
    with child(postgres_child.forking, postgres_database) as parent:
        assert [parent.hear() for _ in range(4)] == ["StoreError"] * 4
        assert parent.hear() == 1
        assert parent.hear() == 5
        assert parent.wait() == 0


def test_a_peek_sees_one_moment_while_another_process_writes(postgres_database: str) -> None:
    seen = [0]
    with child(store_child.writer, postgres_database) as writer:
        writer.hear()
        for _ in range(40):
            contents, claim = store_at(postgres_database).peek("default")
            assert claim is not None
            seen.append(last_whole_batch(contents))
    assert seen == sorted(seen)
    assert len(set(seen)) > 10, "too little was written meanwhile to prove anything"
