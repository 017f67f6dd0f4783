"""The suite that defines what an authority has beside its items: contents, messages, graves, locks on sessions, and
look-outs. The same tests run on every adapter, by a clock that is moved by hand.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.authority.url import open_work_items
from harness.fleet.commands import Cancel, Claim, Deliver, Fail, Recover, Requeue, Retry, Submit, Succeed
from harness.fleet.errors import FleetBrokenError, InvalidSettingError, InvalidTurnError
from harness.fleet.ports import Buried, Query, Watch
from harness.fleet.work_item import Submission, WorkItemState
from tests.conformance.work_items_rig import ADAPTERS, START, TTL_S, Rig

LIMIT_S = 30.0
TEXTS = ["", "Ünï \N{SNOWMAN}", "'\"\\{},", "two\nlines", "x" * 20_000]


@pytest.fixture(params=ADAPTERS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(functools.partial(ADAPTERS[request.param], tmp_path))
    yield rig
    rig.close()


# -- contents ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contents", [b"", b"\0\xff\\x", bytes(range(256)) * 400])
def test_what_is_kept_is_found_by_its_reference(rig: Rig, contents: bytes) -> None:
    reference = rig.authority.keep(contents)
    assert rig.onlooker.contents(reference) == contents
    assert rig.onlooker.keep(contents) == reference
    assert rig.authority.keep(contents + b"!") != reference


@pytest.mark.parametrize("contents", ["text", None, 7, ["a"]])
def test_what_is_no_bytes_is_not_kept(rig: Rig, contents: Any) -> None:
    with pytest.raises(InvalidTurnError, match="contents: must be bytes, not "):
        rig.authority.keep(contents)


@pytest.mark.parametrize("reference", ["", "sha256:0", "no\0where", "\ud800"])
def test_a_reference_to_nothing_finds_nothing(rig: Rig, reference: str) -> None:
    assert rig.authority.contents(reference) is None


# -- messages ----------------------------------------------------------------------------------------------------------


def test_messages_are_numbered_and_stay(rig: Rig) -> None:
    assert [rig.authority.say("a", text) for text in TEXTS] == [1, 2, 3, 4, 5]
    assert rig.authority.say("b", "other") == 1
    assert rig.onlooker.said("a", 0) == tuple(enumerate(TEXTS, start=1))
    assert rig.onlooker.said("a", 4) == ((5, TEXTS[4]),)
    assert rig.onlooker.said("a", 5) == rig.onlooker.said("nowhere", 0) == ()


def test_the_same_may_be_said_again(rig: Rig) -> None:
    assert [rig.authority.say("a", "go on") for _ in range(3)] == [1, 2, 3]


def test_a_message_that_no_store_can_hold_is_made_fit(rig: Rig) -> None:
    rig.authority.say("a", "nul\0, lone\ud800")
    assert rig.authority.said("a", 0) == ((1, "nul\ufffd, lone\ufffd"),)


def test_many_who_speak_at_once_are_all_heard(rig: Rig) -> None:
    clients = [rig.another() for _ in range(4)]
    numbers: list[int] = []

    def speak(number: int) -> None:
        numbers.extend(clients[number].say("a", f"{number}-{count}") for count in range(5))

    threads = [threading.Thread(target=speak, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert sorted(numbers) == list(range(1, 21))
    assert {text for _, text in rig.authority.said("a", 0)} == {f"{n}-{count}" for n in range(4) for count in range(5)}


# -- graves ------------------------------------------------------------------------------------------------------------


def test_graves_count_what_comes_again_and_the_last_to_come_is_first(rig: Rig) -> None:
    rig.authority.bury([Buried("d1", "no\0t JSON"), Buried("d2", "unknown", "job", "t")])
    rig.now += 5
    rig.authority.bury([Buried("d1", "another cause"), Buried("d1", "and again"), Buried("d3", "new")])
    assert rig.onlooker.graves(9) == (
        Buried("d3", "new", "", "", 1, START + 5, START + 5),
        Buried("d1", "no\ufffdt JSON", "", "", 3, START, START + 5),
        Buried("d2", "unknown", "job", "t", 1, START, START),
    )
    assert [each.digest for each in rig.onlooker.graves(1)] == ["d3"]
    rig.authority.bury([])


# -- forgetting --------------------------------------------------------------------------------------------------------


def test_what_ended_long_ago_is_forgotten_with_all_that_is_its_own(rig: Rig) -> None:
    kept, shared = rig.authority.keep(b"of the old"), rig.authority.keep(b"of both")
    for number in range(250):
        rig.submit(f"old{number}", payload_ref=kept if number else shared)
    rig.do(*(Cancel(f"old{number}", "t", "no") for number in range(250)))
    rig.authority.say("old0", "hello")
    rig.now += 100
    rig.submit("young", payload_ref=shared)
    rig.do(Succeed(rig.start("young")))
    fresh = rig.authority.keep(b"for what is still to come")
    before = rig.authority.tally().outcomes
    assert rig.authority.prune(START + 50) == 250
    assert [item.id for item in rig.onlooker.search(Query())] == ["young"]
    assert rig.onlooker.outcomes("old0") == rig.onlooker.said("old0", 0) == ()
    assert len(rig.onlooker.outcomes("young")) == 1
    found = [rig.onlooker.contents(reference) for reference in (kept, shared, fresh)]
    assert found == [None, b"of both", b"for what is still to come"]
    assert rig.onlooker.tally().outcomes == before, "they still count"
    assert rig.authority.prune(START + 50) == 0
    rig.submit("old0")
    assert rig.onlooker.outcomes("old0") == (), "it is another one"


def test_what_lives_or_is_waited_for_or_is_a_dead_letter_stays(rig: Rig) -> None:
    for name in ("ready", "leased", "running", "done", "open"):
        rig.submit(name)
    rig.submit("waiting", depends_on=("done", "open"))
    rig.submit("dead", max_attempts=1)
    rig.submit("failed")
    rig.claim("leased")
    rig.start("running")
    rig.do(Succeed(rig.start("done")), Retry(rig.start("dead"), "x"), Fail(rig.start("failed"), "x"))
    rig.now += 10 * TTL_S
    assert rig.authority.prune(rig.now) == 1
    assert rig.onlooker.find(["failed"]) == {}
    rig.do(Succeed(rig.start("open")))
    assert rig.look("waiting").state is WorkItemState.READY
    rig.do(Requeue("dead", "t"))
    assert rig.authority.prune(rig.now + 1) == 2
    assert {item.id for item in rig.onlooker.search(Query())} == {"ready", "leased", "running", "waiting", "dead"}


# -- locks on sessions -------------------------------------------------------------------------------------------------


def test_a_session_is_locked_once(rig: Rig) -> None:
    one, two, foreign = ("t", "s1"), ("t", "s2"), ("u", "s1")
    assert rig.authority.lock_sessions([one, two, one]) == (True, True, False)
    assert rig.authority.lock_sessions([foreign, one]) == (True, False)
    rig.authority.unlock_sessions([one, ("t", "never")])
    assert rig.authority.lock_sessions([one, two]) == (True, False)
    assert rig.authority.seize_sessions([one]) == (False,), "nobody else has it"
    rig.authority.unlock_sessions([one, two, foreign])
    assert rig.authority.seize_sessions([one]) == (True,)
    assert rig.authority.lock_sessions([]) == ()


def test_a_client_that_ends_lets_go_of_its_locks(rig: Rig) -> None:
    other = rig.another()
    if other is rig.another():
        return  # in memory there is only one
    assert other.lock_sessions([("t", "s")]) == (True,)
    assert rig.authority.lock_sessions([("t", "s")]) == (False,)
    other.close()
    assert rig.authority.lock_sessions([("t", "s")]) == (True,)


def test_a_locked_session_hinders_no_claim(rig: Rig) -> None:
    rig.submit("a", session_id="s")
    rig.another().lock_sessions([("t", "s")])
    assert rig.claim("a").epoch == 1


# -- look-outs ---------------------------------------------------------------------------------------------------------


def waits(watch: Watch, told: list[bool]) -> threading.Thread:
    thread = threading.Thread(target=lambda: told.append(watch.wait(LIMIT_S)))
    thread.start()
    return thread


def test_a_look_out_hears_of_an_end(rig: Rig) -> None:
    rig.submit()
    lease = rig.start()
    watch, told = rig.authority.watch(), list[bool]()
    try:
        thread = waits(watch, told)
        rig.onlooker.perform([Succeed(lease)])
        thread.join(LIMIT_S)
        assert told == [True]
    finally:
        watch.close()


def test_what_was_before_is_no_news(rig: Rig) -> None:
    rig.submit()
    rig.do(Cancel("a", "t", "no"))
    watch = rig.onlooker.watch()
    try:
        assert not watch.wait(0.0)
        assert not watch.wait(0.02)
    finally:
        watch.close()


def test_a_look_out_that_is_closed_waits_no_longer(rig: Rig) -> None:
    watch, told = rig.authority.watch(), list[bool]()
    thread = waits(watch, told)
    watch.close()
    thread.join(LIMIT_S)
    assert told == [False]
    assert not watch.wait(LIMIT_S)
    watch.close()


def test_several_look_outs_all_hear(rig: Rig) -> None:
    rig.submit()
    watches, told = [rig.authority.watch() for _ in range(3)], list[bool]()
    threads = [waits(watch, told) for watch in watches]
    rig.onlooker.perform([Cancel("a", "t", "no")])
    for thread in threads:
        thread.join(LIMIT_S)
    for watch in watches:
        watch.close()
    assert told == [True] * 3


# -- by URI ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("sqlite:///state.db", "/state.db')"),
        ("sqlite:////var/x%20y.db", "SqliteWorkItems('/var/x%20y.db')"),
        ("postgresql://me:secret@host/db", "PostgresWorkItems('postgresql://me@host/db')"),
        ("postgres://host/db", "PostgresWorkItems('postgresql://host/db')"),
    ],
)
def test_an_authority_is_opened_by_its_uri_and_shows_no_password(uri: str, shown: str) -> None:
    assert repr(open_work_items(uri)).endswith(shown)


@pytest.mark.parametrize("uri", ["", "state.db", "sqlite:///", "sqlite:state.db", "mysql://host/db", "sqlite:///a\0b"])
def test_what_names_no_authority_is_refused(uri: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        open_work_items(uri)
    assert refused.value.name == "STATE_DB_URI"


def test_nothing_that_is_over_is_recovered(rig: Rig) -> None:
    rig.submit(deadline=START + 1)
    rig.do(Deliver("a", "t"), Claim("a", "t", "w", TTL_S))
    rig.now += TTL_S + 1
    rig.do(Recover("a", "t"))
    assert rig.look().state is WorkItemState.CANCELLED
    assert rig.authority.overtaken(9) == ()


def test_a_file_that_was_replaced_is_no_outage_to_wait_for(tmp_path: Path) -> None:
    """What is decided in one that is gone counts for nobody else."""
    path = tmp_path / "state.db"
    with closing(SqliteWorkItems(path)) as authority:
        submission = Submit(Submission("a", "t", "s", "k"))
        authority.perform([submission])
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(FleetBrokenError, match="was removed or replaced while in use; put it back, or start again"):
            authority.find(["a"])
        assert authority.find(["a"]) == {}  # it is opened anew, and made
