"""The suite that defines the log's port. Every adapter that keeps one passes it, on the same inputs."""

from __future__ import annotations

import attrs
import pytest

from dispatch.errors import StoreError
from dispatch.store import Changes, Contents, GraphRow, Store
from dispatch.store.port import History, KeyframeRow, Logged, LogRow, history_of
from dispatch.store.process import Presence
from tests.conformance.store_rig import Opener, World, attempt_row, slice_row


@pytest.fixture
def store(store: Store) -> Store:
    store.write(Changes(GraphRow("g")))
    return store


@pytest.fixture
def history(store: Store, handle: Opener) -> History:
    """That of another handle, as another process has it."""
    found = history_of(handle())
    assert found is not None
    return found


def entry(seq: int, **fields: object) -> LogRow:
    row = LogRow(seq, 1, 1000.5 + seq, 3, False, "pass", "{}", f'{{"room":["{seq}"]}}')
    return attrs.evolve(row, **fields)


def entries(*seqs: int) -> tuple[LogRow, ...]:
    return tuple(map(entry, seqs))


def frame(seq: int, **fields: object) -> KeyframeRow:
    return attrs.evolve(KeyframeRow(seq, 1000.5 + seq, bytes(range(256)) * 3 + b"\0\\"), **fields)


def seqs(history: History, graph: str = "default") -> list[int]:
    with history.reading(graph) as reading:
        return [row.seq for row in reading.entries(0, 1000)]


def frames(history: History, graph: str = "default") -> list[int]:
    with history.reading(graph) as reading:
        return [seq for seq, _ in reading.contents.logged.keyframes]


# -- what is written is read back ----------------------------------------------------------------------------------

FULL = LogRow(
    seq=2**53 + 1,
    epoch=2**62,
    at=1_700_000_000.123456,
    cap=2**31,
    suspended=True,
    kind="report",
    input='{"detail":"größer 😀, \\u0000, {1,\\"2\\"}"}\n\t',
    decisions="{}",
)


@pytest.mark.parametrize("row", [entry(1), FULL, entry(1, at=5e-324), entry(1, cap=0)])
def test_every_field_of_an_entry_comes_back_as_it_was(store: Store, history: History, row: LogRow) -> None:
    store.write(Changes(log=(row,)))
    with history.reading("default") as reading:
        assert reading.entries(0, 10) == [row]


@pytest.mark.parametrize("row", [frame(0), frame(7), frame(2**53 + 1, content=b""), frame(1, content=b"x" * 10**6)])
def test_every_field_of_a_keyframe_comes_back_as_it_was(store: Store, history: History, row: KeyframeRow) -> None:
    store.write(Changes(keyframe=row))
    with history.reading("default") as reading:
        assert reading.keyframe(row.seq) == row
        assert reading.contents.logged == Logged(row.seq, ((row.seq, row.at),))


def test_a_reading_has_the_graph_with_its_claim_and_how_far_the_log_goes(store: Store, history: History) -> None:
    store.write(Changes(slices=(slice_row("a"),), attempts=(attempt_row("a", checkpoint="so far"),), log=entries(1, 2)))
    history.keep("default", frame(2))
    history.keep("default", frame(0))
    logged = Logged(2, ((0, 1000.5), (2, 1002.5)))
    with history.reading("default") as reading:
        assert reading.contents == store.load()
        assert reading.contents.logged == logged
        assert reading.contents.attempts[0].checkpoint == "so far"
        assert reading.claim is not None
        assert reading.claim.epoch == 1
    store.release()
    with history.reading("default") as reading:
        assert reading.claim is None


def test_the_claim_of_a_process_that_is_gone_is_none(world: World, store: Store, history: History) -> None:
    world.presence = Presence.GONE
    with history.reading("default") as reading:
        assert reading.claim is None


def test_a_graph_that_was_never_written_has_no_log(history: History) -> None:
    with history.reading("absent") as reading:
        assert reading.contents == Contents()
        assert reading.entries(0, 10) == []


def test_entries_come_in_order_from_where_one_asks_as_many_as_one_asks_of_the_kind(
    store: Store, history: History
) -> None:
    store.write(Changes(log=(*entries(5, 3, 1), entry(2, kind="revise"), entry(4, kind="revise"))))
    with history.reading("default") as reading:
        assert [row.seq for row in reading.entries(0, 10)] == [1, 2, 3, 4, 5]
        assert [row.seq for row in reading.entries(2, 2)] == [3, 4]
        assert [row.seq for row in reading.entries(0, 10, "revise")] == [2, 4]
        assert [row.seq for row in reading.entries(2, 10, "revise")] == [4]
        assert reading.entries(5, 10) == []


def test_graphs_have_logs_of_their_own(store: Store, history: History, handle: Opener) -> None:
    store.write(Changes(log=entries(1, 2)))
    other = handle()
    other.claim("other")
    other.write(Changes(GraphRow("o"), log=entries(1), keyframe=frame(0)))
    assert (seqs(history), seqs(history, "other")) == ([1, 2], [1])
    assert (frames(history), frames(history, "other")) == ([], [0])
    history.keep("other", frame(1))
    assert history.prune("other", 1, 10) == 1
    assert (seqs(history), seqs(history, "other")) == ([1, 2], [])


@pytest.mark.parametrize("name", ["\0", "\ud800"])
def test_a_graph_name_that_not_every_database_keeps_is_refused(history: History, name: str) -> None:
    with pytest.raises(StoreError), history.reading(name):
        pass


# -- what a batch does ---------------------------------------------------------------------------------------------


def test_a_batch_that_is_written_again_doubles_nothing_and_changes_nothing(store: Store, history: History) -> None:
    store.write(Changes(log=entries(1, 2), keyframe=frame(0)))
    otherwise = entry(2, kind="resume")
    store.write(Changes(log=(otherwise, entry(3)), keyframe=frame(0, content=b"other")))
    with history.reading("default") as reading:
        assert reading.entries(0, 10) == list(entries(1, 2, 3))
        assert reading.keyframe(0) == frame(0)


def test_a_batch_of_which_something_is_refused_logs_nothing(store: Store, history: History) -> None:
    with pytest.raises(StoreError):
        store.write(Changes(log=entries(1), keyframe=frame(0), attempts=(attempt_row("absent"),)))
    assert (seqs(history), frames(history)) == ([], [])


@pytest.mark.parametrize(
    "row",
    [
        *(entry(1, **{field: "x\0"}) for field in ("kind", "input", "decisions")),
        *(entry(1, **{field: "é\ud800"}) for field in ("kind", "input", "decisions")),
        *(attrs.evolve(entry(1), **{field: 2**63}) for field in ("seq", "epoch", "cap")),
        *(attrs.evolve(entry(1), **{field: -(2**63) - 1}) for field in ("seq", "epoch", "cap")),
        *(entry(1, at=number) for number in (float("nan"), float("inf"))),
    ],
)
def test_an_entry_that_not_every_database_keeps_is_refused(store: Store, history: History, row: LogRow) -> None:
    with pytest.raises(StoreError, match="of the log"):
        store.write(Changes(GraphRow("g", "paused"), log=(entry(2), row)))
    assert seqs(history) == []
    assert store.load().graph == GraphRow("g")


@pytest.mark.parametrize("row", [frame(2**63), frame(1, at=float("nan"))])
def test_a_keyframe_that_not_every_database_keeps_is_refused(store: Store, history: History, row: KeyframeRow) -> None:
    with pytest.raises(StoreError, match="keyframe"):
        store.write(Changes(keyframe=row))
    assert frames(history) == []


def test_a_long_log_is_written_and_read_bit_by_bit(store: Store, history: History) -> None:
    store.write(Changes(log=tuple(entry(seq, input=f'{{"n":{seq}}}') for seq in range(1, 2501))))
    with history.reading("default") as reading:
        first, second = reading.entries(0, 2000), reading.entries(2000, 2000)
    assert [row.seq for row in (*first, *second)] == list(range(1, 2501))
    assert second[-1].input == '{"n":2500}'


# -- a reading is one moment ---------------------------------------------------------------------------------------


def test_what_is_written_and_pruned_meanwhile_changes_no_reading(store: Store, history: History) -> None:
    store.write(Changes(log=entries(1, 2, 3), keyframe=frame(0)))
    with history.reading("default") as reading:
        before = reading.contents
        store.write(Changes(GraphRow("g", "later"), (slice_row("a"),), log=entries(4)))
        history.keep("default", frame(2))
        assert history.prune("default", 2, 10) == 2
        everything = reading.entries(0, 10)
        assert (everything, reading.keyframe(0)) == (list(entries(1, 2, 3)), frame(0))
        assert reading.contents == before
    assert (seqs(history), frames(history)) == ([3, 4], [2])


def test_an_owner_writes_while_somebody_reads(store: Store, history: History) -> None:
    with history.reading("default") as reading:
        assert reading.entries(0, 100) == []
        for seq in range(1, 20):
            store.write(Changes(log=entries(seq)))
        assert reading.entries(0, 100) == []
    assert seqs(history) == list(range(1, 20))


# -- pruning -------------------------------------------------------------------------------------------------------


def test_pruning_takes_the_oldest_first_and_in_the_end_the_older_keyframes(store: Store, history: History) -> None:
    store.write(Changes(log=entries(*range(1, 8)), keyframe=frame(0)))
    history.keep("default", frame(3))
    history.keep("default", frame(5))
    assert history.prune("default", 5, 2) == 2
    assert (seqs(history), frames(history)) == ([3, 4, 5, 6, 7], [0, 3, 5])
    assert history.prune("default", 5, 2) == 2
    assert frames(history) == [0, 3, 5]
    assert history.prune("default", 5, 2) == 1
    assert (seqs(history), frames(history)) == ([6, 7], [5])
    assert history.prune("default", 5, 2) == 0
    assert (seqs(history), frames(history)) == ([6, 7], [5])


def test_without_that_keyframe_nothing_is_pruned(store: Store, history: History) -> None:
    store.write(Changes(log=entries(1, 2, 3), keyframe=frame(0)))
    assert history.prune("default", 2, 10) == 0
    assert (seqs(history), frames(history)) == ([1, 2, 3], [0])


def test_the_count_goes_on_from_a_keyframe_after_which_there_is_nothing(store: Store, history: History) -> None:
    store.write(Changes(log=entries(1, 2, 3)))
    history.keep("default", frame(3))
    history.prune("default", 3, 10)
    assert store.load().logged == Logged(3, ((3, 1003.5),))


def test_a_keyframe_that_is_kept_twice_stays_as_it_was(store: Store, history: History) -> None:
    history.keep("default", frame(3))
    history.keep("default", frame(3, content=b"other", at=1.0))
    with history.reading("default") as reading:
        assert reading.keyframe(3) == frame(3)
