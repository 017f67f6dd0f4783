"""The suite that defines how a graph is followed from elsewhere. Every store that can be followed passes it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from dispatch.errors import StoreError, StoreUnavailableError
from dispatch.store import Changes, GraphRow, Store, following
from dispatch.store.following import CanBeFollowed, Follower, Look
from dispatch.store.port import LogRow
from dispatch.store.process import Presence
from dispatch.store.sqlite import SqliteStore
from tests.conformance.store_rig import Opener, World, slice_row

LIMIT_S = 20.0


@pytest.fixture
def follower(handle: Opener, store: Store) -> Iterator[Follower]:
    """Follows "default", and has read it."""
    elsewhere = handle()
    assert isinstance(elsewhere, CanBeFollowed)
    with elsewhere.follow("default") as follower:
        follower.read()
        yield follower


def batch(number: int) -> Changes:
    entry = LogRow(number, 1, 5.0, 1, False, "enqueue", "{}", "{}")
    return Changes(GraphRow("id", ""), (slice_row(f"s{number}", number),), log=(entry,))


def test_what_was_never_read_is_to_be_read_at_once(handle: Opener, store: Store) -> None:
    store.write(batch(1))
    elsewhere = handle()
    assert isinstance(elsewhere, CanBeFollowed)
    with elsewhere.follow("default") as follower:
        assert follower.wait(0)
        contents, claim = follower.read()
        assert [row.slice.id for row in contents.slices] == ["s1"]
        assert (claim is not None and claim.epoch) == 1
        assert not follower.wait(0)


def test_a_change_is_seen_once(store: Store, follower: Follower) -> None:
    assert not follower.wait(0)
    store.write(batch(1))
    assert follower.wait(LIMIT_S)
    assert follower.wait(0), "it has not been read yet"
    assert [row.slice.id for row in follower.read()[0].slices] == ["s1"]
    assert not follower.wait(0)


class Watched:
    """A look that says when it begins to pause."""

    def __init__(self, look: Look, pausing: threading.Event) -> None:
        self.position, self.read, self.close = look.position, look.read, look.close
        self._pause, self._pausing = look.pause, pausing

    def pause(self, seconds: float) -> None:
        self._pausing.set()
        self._pause(seconds)


def test_who_waits_is_woken(handle: Opener, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a hint: it would not look by itself for a long time. What it was woken for is there to be read."""
    monkeypatch.setattr(following, "ASK_S", 1e6)
    elsewhere = handle()
    assert isinstance(elsewhere, CanBeFollowed)
    pausing, seen = threading.Event(), list[int]()

    def wait() -> None:
        with elsewhere.follow("default") as follower:
            follower.read()
            assert follower._look is not None
            follower._look = Watched(follower._look, pausing)
            if follower.wait(LIMIT_S):
                seen.append(len(follower.read()[0].slices))

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert pausing.wait(LIMIT_S)
    store.write(batch(1))
    waiting.join(LIMIT_S)
    assert seen == [1]


def test_what_is_read_is_of_one_moment_and_disturbs_nobody(store: Store, follower: Follower) -> None:
    for number in range(1, 20):
        store.write(batch(number))
        contents, _ = follower.read()
        assert len(contents.slices) == contents.logged.last == number


def test_renewing_a_claim_is_no_change(store: Store, follower: Follower) -> None:
    store.renew()
    assert not follower.wait(0)


def test_another_graph_is_another_matter(handle: Opener, store: Store, follower: Follower) -> None:
    other = handle()
    other.claim("other")
    other.write(batch(1))
    assert not follower.wait(0)


def give_up(world: World, store: Store) -> None:
    store.release()


def die(world: World, store: Store) -> None:
    world.presence = Presence.GONE


def fall_silent(world: World, store: Store) -> None:
    world.presence = Presence.UNKNOWN
    world.now += 11


@pytest.mark.parametrize("end", [give_up, die, fall_silent])
def test_the_end_of_an_owner_is_a_change_and_so_is_the_next_one(
    end: Callable[[World, Store], None], world: World, store: Store, handle: Opener, follower: Follower
) -> None:
    end(world, store)
    assert follower.wait(LIMIT_S)
    assert follower.read()[1] is None
    assert not follower.wait(0)
    successor = handle()
    successor.claim("default")
    world.presence = Presence.ALIVE
    assert follower.wait(LIMIT_S)
    claim = follower.read()[1]
    assert (claim is not None and claim.epoch) == 2


def test_a_graph_that_is_not_there_yet_may_come(handle: Opener, store: Store) -> None:
    elsewhere = handle()
    assert isinstance(elsewhere, CanBeFollowed)
    with elsewhere.follow("later") as follower:
        assert follower.read()[0].graph is None
        assert not follower.wait(0)
        other = handle()
        other.claim("later")
        other.write(batch(1))
        assert follower.wait(LIMIT_S)
        assert follower.read()[0].graph == GraphRow("id", "")


def test_a_name_that_no_store_keeps_is_refused_at_once(store: Store) -> None:
    assert isinstance(store, CanBeFollowed)
    with pytest.raises(StoreError):
        store.follow("a\0b")


def test_closing_is_no_end(store: Store, follower: Follower) -> None:
    """It is opened anew when it is asked again."""
    follower.close()
    follower.close()
    store.write(batch(1))
    assert follower.wait(LIMIT_S)
    assert len(follower.read()[0].slices) == 1


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_taken_away_is_not_followed_any_further(tmp_path: Path, replaced: bool) -> None:
    """Whoever has it open still would, and nothing would ever change in it."""
    path, fresh = tmp_path / "graphs.db", tmp_path / "fresh.db"
    with contextlib.ExitStack() as ending:
        stores = [SqliteStore(each) for each in (path, fresh)]
        for store, number in zip(stores, (1, 2), strict=True):
            ending.callback(store.release)
            store.claim("default")
            store.write(batch(1) if number == 1 else attrs.evolve(batch(1), slices=(slice_row("other"),)))
        with stores[0].follow("default") as follower:
            follower.read()
            for store in stores:
                store.release()
            path.unlink()
            if replaced:
                fresh.rename(path)
            with pytest.raises(StoreUnavailableError, match="removed or replaced"):
                follower.wait(LIMIT_S)
            if not replaced:
                with pytest.raises(StoreError, match="there is no store"):
                    follower.read()
            else:
                assert follower.wait(LIMIT_S)
                assert [row.slice.id for row in follower.read()[0].slices] == ["other"]
