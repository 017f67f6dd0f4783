"""The suite that defines an authority's first side: commands, and what can be asked of items.

The same tests run on every adapter, by a clock that is moved by hand.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from harness.fleet.commands import (
    Cancel,
    Checkpoint,
    Claim,
    Command,
    Defer,
    Deliver,
    Fail,
    Hand,
    Recover,
    Release,
    Renew,
    Requeue,
    Retry,
    Start,
    Stop,
    Submit,
    Succeed,
    Withdraw,
)
from harness.fleet.errors import (
    FleetError,
    HeldElsewhereError,
    ItemExistsError,
    LeaseLostError,
    NotDueError,
    UnknownItemError,
    WrongStateError,
)
from harness.fleet.lifecycle import step
from harness.fleet.ports import Query
from harness.fleet.work_item import Lease, WorkItem, WorkItemState
from tests.conformance.work_items_rig import ADAPTERS, START, TTL_S, Rig, submission

State = WorkItemState


@pytest.fixture(params=ADAPTERS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(functools.partial(ADAPTERS[request.param], tmp_path))
    yield rig
    rig.close()


# -- every command in every state --------------------------------------------------------------------------------------


def waiting(rig: Rig) -> None:
    rig.submit("first")
    rig.submit(depends_on=("first",))


def ready(rig: Rig) -> None:
    rig.submit()


def delivered(rig: Rig) -> None:
    rig.submit()
    rig.do(Deliver("a", "t"))


def not_due(rig: Rig) -> None:
    rig.submit(not_before=START + 5)


def lapsed(rig: Rig) -> None:
    rig.submit(deadline=START + 5)
    rig.now += 6


def leased(rig: Rig) -> None:
    rig.submit()
    rig.claim()


def leased_too_long(rig: Rig) -> None:
    leased(rig)
    rig.now += TTL_S + 1


def running(rig: Rig) -> None:
    rig.submit(deadline=START + 5)
    rig.start()


def running_after_a_failure(rig: Rig) -> None:
    rig.submit(max_attempts=2)
    rig.do(Retry(rig.start(), "once"))
    rig.now += 10
    rig.start()


def lost(rig: Rig) -> None:
    rig.submit()
    rig.start()
    rig.now += TTL_S + 1


def lost_for_good(rig: Rig) -> None:
    running_after_a_failure(rig)
    rig.now += TTL_S + 1


def lost_and_lapsed(rig: Rig) -> None:
    running(rig)
    rig.now += TTL_S + 1


def to_be_stopped(rig: Rig) -> None:
    running(rig)
    rig.do(Cancel("a", "t", "not wanted"))


def to_be_stopped_and_lost(rig: Rig) -> None:
    to_be_stopped(rig)
    rig.now += TTL_S + 1


def deferred(rig: Rig) -> None:
    rig.submit()
    rig.do(Defer(rig.start(), "busy"))


def succeeded(rig: Rig) -> None:
    rig.submit()
    rig.do(Succeed(rig.start(), "done"))


def failed(rig: Rig) -> None:
    rig.submit()
    rig.do(Fail(rig.start(), "broken"))


def cancelled(rig: Rig) -> None:
    rig.submit()
    rig.do(Cancel("a", "t", "not wanted"))


def dead(rig: Rig) -> None:
    rig.submit(max_attempts=1)
    rig.do(Retry(rig.start(), "broken"))


SCENES: tuple[Callable[[Rig], None], ...] = (
    waiting, ready, delivered, not_due, lapsed, leased, leased_too_long, running, running_after_a_failure, lost,
    lost_for_good, lost_and_lapsed, to_be_stopped, to_be_stopped_and_lost, deferred, succeeded, failed, cancelled, dead,
)  # fmt: skip

IN_A_LEASE: dict[str, Callable[[Lease], Command]] = {
    "start": Start,
    "renew": lambda lease: Renew(lease, 100.0),
    "renew for less": lambda lease: Renew(lease, 1.0),
    "checkpoint": lambda lease: Checkpoint(lease, "half-way"),
    "succeed": lambda lease: Succeed(lease, "result"),
    "fail": lambda lease: Fail(lease, "cause"),
    "retry": lambda lease: Retry(lease, "cause", 0.5),
    "defer": lambda lease: Defer(lease, "cause", 3.0),
    "stop": lambda lease: Stop(lease, "cause", "half-way"),
}
FROM_OUTSIDE: dict[str, Command] = {
    "submit": Submit(submission()),
    "submit another": Submit(submission(payload_ref="another")),
    "withdraw": Withdraw("a", "t"),
    "deliver": Deliver("a", "t"),
    "hand": Hand("a", "t"),
    "claim": Claim("a", "t", "w9", TTL_S),
    "claim and start": Claim("a", "t", "w9", TTL_S, starts=True),
    "cancel": Cancel("a", "t", "cause"),
    "recover": Recover("a", "t", 0.5),
    "requeue": Requeue("a", "t"),
    "release": Release("a", "t"),
}


def lease_of(item: WorkItem) -> Lease:
    """The one that holds it, or one that never did."""
    return item.lease if item.owner else Lease(item.id, item.tenant, "w1", item.epoch, item.token, 0.0)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
@pytest.mark.parametrize("name", [*FROM_OUTSIDE, *IN_A_LEASE])
def test_what_a_command_does_is_what_the_lifecycle_says(rig: Rig, scene: Callable[[Rig], None], name: str) -> None:
    scene(rig)
    rig.now += 0.25
    before, provenance = rig.look(), rig.authority.outcomes("a")
    command = FROM_OUTSIDE[name] if name in FROM_OUTSIDE else IN_A_LEASE[name](lease_of(before))
    told = attrs.evolve(command, token=_next_token(rig)) if isinstance(command, Claim) else command
    try:
        expected = step(before, told, rig.now)
    except FleetError as refused:
        (result,) = rig.do(command)
        assert (type(result), str(result)) == (type(refused), str(refused))
        assert (rig.look(), rig.authority.outcomes("a")) == (before, provenance)
        return
    (result,) = rig.do(command)
    if expected.refused is not None:
        assert (type(result), str(result)) == (type(expected.refused), str(expected.refused))
    else:
        assert result == expected.item
    assert rig.onlooker.find(["a"]) == ({} if expected.item is None else {"a": expected.item})
    assert rig.authority.outcomes("a") == (() if expected.item is None else (*provenance, *expected.outcomes))


def _next_token(rig: Rig) -> int:
    """What the next claim gets: one more than a claim that was just made on the side."""
    rig.submit("aside")
    return rig.claim("aside").token + 1


STALE: dict[str, Callable[[Lease], Lease]] = {
    "another owner": lambda lease: attrs.evolve(lease, owner="w2"),
    "an earlier epoch": lambda lease: attrs.evolve(lease, epoch=lease.epoch - 1),
    "a later epoch": lambda lease: attrs.evolve(lease, epoch=lease.epoch + 1),
    "another token": lambda lease: attrs.evolve(lease, token=lease.token - 1),
}


@pytest.mark.parametrize("stale", STALE)
@pytest.mark.parametrize("name", IN_A_LEASE)
def test_nothing_is_done_in_the_name_of_a_lease_that_is_not_the_items(rig: Rig, stale: str, name: str) -> None:
    running(rig)
    before = rig.look()
    with pytest.raises(LeaseLostError) as refused:
        rig.item(IN_A_LEASE[name](STALE[stale](before.lease)))
    assert (refused.value.item_id, refused.value.epoch) == ("a", STALE[stale](before.lease).epoch)
    assert rig.look() == before
    assert rig.authority.outcomes("a") == ()


@pytest.mark.parametrize("name", IN_A_LEASE)
def test_a_holder_that_was_overtaken_changes_nothing_any_more(rig: Rig, name: str) -> None:
    rig.submit()
    stale = rig.start(owner="w1")
    rig.now += TTL_S + 1
    fresh = rig.start(owner="w1")  # by the same name: the epoch and the token tell them apart
    assert (fresh.epoch, fresh.token > stale.token) == (stale.epoch + 1, True)
    before, provenance = rig.look(), rig.authority.outcomes("a")
    with pytest.raises(LeaseLostError):
        rig.item(IN_A_LEASE[name](stale))
    assert (rig.look(), rig.authority.outcomes("a")) == (before, provenance)


@pytest.mark.parametrize("name", [*FROM_OUTSIDE, *IN_A_LEASE])
def test_another_tenants_item_is_as_if_it_were_not_there(rig: Rig, name: str) -> None:
    running(rig)
    before = rig.look()
    foreign = attrs.evolve(before.lease, tenant="u")
    if name.startswith("submit"):
        command: Command = Submit(submission(tenant="u"))
    elif name in FROM_OUTSIDE:
        command = attrs.evolve(FROM_OUTSIDE[name], tenant="u")  # type: ignore[misc]
    else:
        command = IN_A_LEASE[name](foreign)
    (result,) = rig.do(command)
    assert isinstance(result, ItemExistsError if name.startswith("submit") else UnknownItemError)
    assert rig.look() == before


@pytest.mark.parametrize("name", [*FROM_OUTSIDE, *IN_A_LEASE])
def test_what_is_not_there_is_unknown(rig: Rig, name: str) -> None:
    for item_id in ("nowhere", "no\0where", "no\ud800where", ""):
        if name.startswith("submit"):
            continue
        nobody = Lease(item_id, "t", "w", 1, 1, 0.0)
        asked = FROM_OUTSIDE.get(name)
        command = IN_A_LEASE[name](nobody) if asked is None else attrs.evolve(asked, item_id=item_id)  # type: ignore[misc]
        with pytest.raises(UnknownItemError):
            rig.item(command)
    assert rig.authority.search(Query()) == ()


# -- batches -----------------------------------------------------------------------------------------------------------


def test_of_a_batch_each_has_a_result_of_its_own_and_what_is_refused_leaves_the_others_alone(rig: Rig) -> None:
    lease = rig.submit() and rig.start()
    results = rig.do(
        Submit(submission("b")),
        Submit(submission("a", kind="other")),
        Claim("b", "t", "w2", TTL_S),
        Claim("b", "t", "w3", TTL_S),
        Claim("nowhere", "t", "w2", TTL_S),
        Succeed(attrs.evolve(lease, token=99), "stale"),
        Succeed(lease, "done"),
        Succeed(lease, "twice"),
    )
    assert [type(result) for result in results] == [
        WorkItem, ItemExistsError, WorkItem, HeldElsewhereError, UnknownItemError, LeaseLostError, WorkItem,
        LeaseLostError,
    ]  # fmt: skip
    assert (rig.look("a").state, rig.look("a").result) == (State.SUCCEEDED, "done")
    assert (rig.look("b").state, rig.look("b").owner) == (State.LEASED, "w2")


def test_a_batch_sees_what_it_did_before(rig: Rig) -> None:
    results = rig.do(
        Submit(submission("a")), Submit(submission("b", depends_on=("a",))), Submit(submission("c", depends_on=("b",))),
        Claim("a", "t", "w", TTL_S, starts=True), Cancel("b", "t", "no"),
    )  # fmt: skip
    assert [item.state.value for item in results if isinstance(item, WorkItem)] == [
        "ready", "submitted", "submitted", "running", "cancelled",
    ]  # fmt: skip
    assert [rig.look(name).state for name in "abc"] == [State.RUNNING, State.CANCELLED, State.CANCELLED]


def test_nothing_asked_is_nothing_done(rig: Rig) -> None:
    assert rig.do() == ()


def test_many_at_once(rig: Rig) -> None:
    names = [f"i{number:04}" for number in range(1000)]
    assert len(rig.do(*(Submit(submission(name)) for name in names))) == 1000
    claimed = rig.do(*(Claim(name, "t", "w", TTL_S, starts=True) for name in reversed(names)))
    leases = [item.lease for item in claimed if isinstance(item, WorkItem)]
    assert len({lease.token for lease in leases}) == 1000
    ended = rig.do(*(Succeed(lease) for lease in leases))
    assert {item.state for item in ended if isinstance(item, WorkItem)} == {State.SUCCEEDED}


# -- submission --------------------------------------------------------------------------------------------------------


def test_a_submission_again_is_the_item_as_it_stands(rig: Rig) -> None:
    rig.submit()
    rig.start()
    rig.now += 1
    assert rig.submit().state is State.RUNNING
    assert rig.submit(not_before=START + 9).state is State.RUNNING


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "u"}, {"session_id": "s2"}, {"kind": "other"}, {"payload_ref": "other"}, {"priority": 1},
        {"deadline": START}, {"max_attempts": 4}, {"depends_on": ("b",)},
    ],
)  # fmt: skip
def test_the_same_id_with_other_contents_is_refused(rig: Rig, other: dict[str, object]) -> None:
    rig.submit("b")
    before = rig.submit()
    with pytest.raises(ItemExistsError) as refused:
        rig.submit(**other)
    assert (refused.value.item_id, refused.value.field) == ("a", next(iter(other)))
    assert rig.look() == before


def test_of_many_clients_that_submit_the_same_one_makes_it(rig: Rig) -> None:
    clients = [rig.another() for _ in range(4)]
    found: list[object] = []
    together(lambda number: found.extend(clients[number].perform([Submit(submission())])), 4)
    assert found == [rig.look()] * 4


def test_everything_of_a_submission_is_kept(rig: Rig) -> None:
    rig.submit("first")
    asked = submission(
        "ein Stück \N{SNOWMAN} '\"\\{},", tenant="t", session_id="s\\\",}", kind="kind", payload_ref="", priority=0,
        deadline=START + 0.1, depends_on=("first",), max_attempts=7, not_before=START + 0.7,
    )  # fmt: skip
    rig.do(Submit(asked))
    item = rig.look(asked.id)
    fields = [field.name for field in attrs.fields(type(asked))]
    assert [getattr(item, name) for name in fields] == [getattr(asked, name) for name in fields]
    assert (item.submitted_at, item.changed_at, item.handed_at) == (START, START, 0.0)


def test_what_can_never_be_satisfied_is_refused(rig: Rig) -> None:
    rig.submit("failed")
    rig.do(Fail(rig.start("failed"), "x"))
    rig.submit("foreign", tenant="u")
    for name, error in (("failed", WrongStateError), ("foreign", UnknownItemError), ("nowhere", UnknownItemError)):
        with pytest.raises(error):
            rig.submit(depends_on=(name,))
    assert rig.authority.find(["a"]) == {}


def test_what_is_withdrawn_has_never_been(rig: Rig) -> None:
    rig.submit()
    assert rig.do(Withdraw("a", "t")) == (None,)
    assert rig.onlooker.find(["a"]) == {}
    assert rig.submit(kind="other").kind == "other"


def test_what_others_wait_for_is_not_withdrawn_from_under_them(rig: Rig) -> None:
    rig.submit()
    rig.submit("b", depends_on=("a",))
    rig.submit("c", depends_on=("b",))
    assert rig.item(Withdraw("a", "t")).state is State.CANCELLED
    assert [rig.look(name).state for name in "abc"] == [State.CANCELLED] * 3


# -- those that wait ---------------------------------------------------------------------------------------------------


def test_the_last_of_several_releases(rig: Rig) -> None:
    for name in "abc":
        rig.submit(name)
    rig.submit("d", depends_on=("a", "b", "c", "a"))
    for name in "ab":
        rig.do(Succeed(rig.start(name)))
        assert rig.look("d").state is State.SUBMITTED
    rig.now += 1
    rig.do(Succeed(rig.start("c")))
    assert (rig.look("d").state, rig.look("d").changed_at) == (State.READY, rig.now)
    assert rig.authority.undelivered(9, 0.0)[-1].id == "d"


def test_all_that_end_in_one_batch_release(rig: Rig) -> None:
    for name in "abc":
        rig.submit(name)
    rig.submit("d", depends_on=("a", "b", "c"))
    rig.do(*(Succeed(rig.start(name)) for name in "abc"))
    assert rig.look("d").state is State.READY


def test_a_dependency_that_had_succeeded_is_not_waited_for(rig: Rig) -> None:
    rig.submit()
    rig.do(Succeed(rig.start()))
    assert rig.submit("b", depends_on=("a",)).state is State.READY


@pytest.mark.parametrize("end", ["fail", "cancel", "stop", "lapse"])
def test_what_waits_for_what_is_hopeless_is_cancelled_and_so_are_those_behind(rig: Rig, end: str) -> None:
    rig.submit(deadline=START + 9)
    for before, name in itertools.pairwise("abcde"):
        rig.submit(name, depends_on=(before,))
    if end in ("fail", "stop"):
        rig.do(IN_A_LEASE[end](rig.start()))
    elif end == "cancel":
        rig.do(Cancel("a", "t", "no"))
    else:
        rig.now += 10
        rig.do(Recover("a", "t"))
    ended = rig.look("a").state.value
    assert [rig.look(name).state for name in "bcde"] == [State.CANCELLED] * 4
    assert rig.look("b").cause == f"a was {ended}, and this depends on it"
    assert rig.look("e").cause == "d was cancelled, and this depends on it"
    assert [outcome.text for outcome in rig.authority.outcomes("b")] == [rig.look("b").cause]


def test_what_waits_for_a_dead_letter_waits_on(rig: Rig) -> None:
    dead(rig)
    rig.submit("b", depends_on=("a",))
    assert rig.look("b").state is State.SUBMITTED
    rig.do(Requeue("a", "t"))
    rig.do(Succeed(rig.start()))
    assert rig.look("b").state is State.READY


@pytest.mark.parametrize("round_", range(5))
def test_two_that_end_at_once_release_exactly_once(rig: Rig, round_: int) -> None:
    clients = [rig.another() for _ in range(2)]
    rig.submit("a")
    rig.submit("b")
    rig.submit("c", depends_on=("a", "b"))
    leases = [rig.start("a"), rig.start("b")]
    together(lambda number: clients[number].perform([Succeed(leases[number]), Deliver("c", "t")]), 2)
    assert rig.look("c").state is State.READY


@pytest.mark.parametrize("round_", range(5))
def test_who_is_submitted_while_its_dependency_ends_does_not_wait_for_ever(rig: Rig, round_: int) -> None:
    clients = [rig.another() for _ in range(2)]
    rig.submit("a")
    lease = rig.start("a")
    commands: list[list[Command]] = [
        [Succeed(lease)],
        [Submit(submission("a")), Submit(submission("c", depends_on=("a",)))],
    ]
    together(lambda number: clients[number].perform(commands[number]), 2)
    assert rig.look("c").state is State.READY


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_of_a_session_one_is_held_at_a_time(rig: Rig) -> None:
    rig.submit("a", session_id="s")
    rig.submit("b", session_id="s")
    rig.submit("c", session_id="s", tenant="u")
    lease = rig.claim("a")
    rig.now += 20
    with pytest.raises(HeldElsewhereError) as refused:
        rig.claim("b")
    assert (refused.value.holder_id, refused.value.wait_s) == ("a", TTL_S - 20)
    assert isinstance(rig.do(Claim("c", "u", "w", TTL_S))[0], WorkItem), "another tenant's session is another one"
    rig.do(Defer(lease, "later"))
    assert rig.claim("b").owner == "w1"


def test_a_batch_claims_one_of_a_session(rig: Rig) -> None:
    for name in "abc":
        rig.submit(name, session_id="s")
    results = rig.do(*(Claim(name, "t", "w", TTL_S) for name in "bac"))
    assert [type(result) for result in results] == [WorkItem, HeldElsewhereError, HeldElsewhereError]


def test_a_batch_may_end_one_of_a_session_and_claim_the_next(rig: Rig) -> None:
    rig.submit("a", session_id="s")
    rig.submit("b", session_id="s")
    ended, claimed = rig.do(Succeed(rig.start("a")), Claim("b", "t", "w", TTL_S, starts=True))
    assert isinstance(ended, WorkItem)
    assert isinstance(claimed, WorkItem)
    assert (ended.state, claimed.state) == (State.SUCCEEDED, State.RUNNING)
    rig.do(Succeed(claimed.lease))
    rig.submit("c", session_id="s")
    assert rig.claim("c").epoch == 1


def test_a_session_whose_holder_is_gone_is_free(rig: Rig) -> None:
    rig.submit("a", session_id="s")
    rig.submit("b", session_id="s")
    rig.start("a")
    rig.now += TTL_S + 1
    assert rig.claim("b").owner == "w1"
    gone = rig.look("a")
    assert (gone.state, gone.failures, gone.not_before) == (State.READY, 1, rig.now + 1.0)
    assert [(each.ended, each.expired) for each in rig.authority.outcomes("a")] == [(State.READY, True)]


def test_many_clients_at_one_session_never_hold_two(rig: Rig) -> None:
    names = [f"i{number}" for number in range(12)]
    rig.do(*(Submit(submission(name, session_id="s")) for name in names))
    clients = [rig.another() for _ in range(4)]
    done: list[str] = []
    running_now: list[str] = []
    most: list[int] = []
    mutex = threading.Lock()

    def work(number: int) -> None:
        while len(done) < len(names):
            for name in names:
                (claimed,) = clients[number].perform([Claim(name, "t", f"w{number}", TTL_S, starts=True)])
                if isinstance(claimed, WorkItem):
                    with mutex:
                        running_now.append(name)
                        most.append(len(running_now))
                    with mutex:
                        running_now.remove(name)
                    clients[number].perform([Succeed(claimed.lease)])
                    with mutex:
                        done.append(name)

    together(work, 4)
    assert (sorted(done), max(most)) == (sorted(names), 1)


# -- tokens, leases, time ----------------------------------------------------------------------------------------------


def test_tokens_rise_over_all_items_and_clients(rig: Rig) -> None:
    clients = [rig.another() for _ in range(3)]
    tokens = []
    for number in range(9):
        rig.submit(f"i{number}")
        (claimed,) = clients[number % 3].perform([Claim(f"i{number}", "t", "w", TTL_S)])
        assert isinstance(claimed, WorkItem)
        tokens.append(claimed.token)
    assert tokens == sorted(set(tokens))


def test_a_token_that_was_refused_is_not_seen_again(rig: Rig) -> None:
    rig.submit()
    first = rig.claim()
    for _ in range(3):
        rig.do(Claim("a", "t", "w2", TTL_S))
    rig.submit("b")
    assert rig.claim("b").token > first.token


def test_a_lease_that_ran_out_still_counts_until_somebody_else_claims(rig: Rig) -> None:
    rig.submit()
    lease = rig.start()
    rig.now += 10 * TTL_S
    assert rig.item(Renew(lease, TTL_S)).expires_at == rig.now + TTL_S
    assert rig.item(Succeed(lease)).state is State.SUCCEEDED


def test_recovery_is_by_the_lease_and_not_by_how_long_a_turn_takes(rig: Rig) -> None:
    rig.submit()
    lease = rig.start()
    for _ in range(20):
        rig.now += TTL_S - 1
        assert rig.authority.overtaken(9) == ()
        assert isinstance(rig.do(Claim("a", "t", "w2", TTL_S))[0], HeldElsewhereError)
        lease = rig.item(Renew(lease, TTL_S)).lease
    rig.now += TTL_S
    assert rig.authority.overtaken(9) == (), "the lease lasts to its very end"
    rig.now += 0.01
    assert [item.id for item in rig.authority.overtaken(9)] == ["a"]


def test_what_is_overtaken_is_found_until_it_is_put_in_order(rig: Rig) -> None:
    rig.submit("leased")
    rig.submit("running")
    rig.submit("lapsed", deadline=START + 5)
    rig.submit("waiting", depends_on=("running",), deadline=START + 6)
    rig.submit("fine", deadline=START + 5000)
    rig.claim("leased")
    rig.start("running")
    rig.now += TTL_S + 1
    for _ in range(2):
        found = {item.id for item in rig.authority.overtaken(9)}
        assert found == {"leased", "running", "lapsed", "waiting"}
    assert len(rig.authority.overtaken(3)) == 3
    rig.do(*(Recover(name, "t", 0.5) for name in sorted(found)))
    assert rig.authority.overtaken(9) == ()
    assert {name: rig.look(name).state for name in sorted(found)} == {
        "lapsed": State.CANCELLED, "leased": State.READY, "running": State.READY, "waiting": State.CANCELLED,
    }  # fmt: skip
    assert (rig.look("leased").failures, rig.look("running").failures) == (0, 1)


def test_a_retry_is_due_after_its_pause_and_its_last_failure_is_a_dead_letter(rig: Rig) -> None:
    rig.submit(max_attempts=2)
    item = rig.item(Retry(rig.start(), "first", 0.0))
    assert (item.state, item.failures, item.not_before) == (State.READY, 1, START + 1.0)
    with pytest.raises(NotDueError) as refused:
        rig.claim()
    assert refused.value.wait_s == 1.0
    rig.now += 1.0
    item = rig.item(Retry(rig.start(), "second"))
    assert (item.state, item.attempt, item.cause) == (State.DEAD_LETTER, 2, "second")
    assert rig.item(Requeue("a", "t")).failures == 0
    assert rig.claim().epoch == 3
    assert [outcome.text for outcome in rig.authority.outcomes("a")] == ["first", "second"]


def test_the_database_knows_the_time_itself(rig: Rig) -> None:
    rig.by_hand = False
    rig.submit("lapsed", deadline=START)
    rig.submit()
    lease, now = rig.claim(), time.time()
    assert now + TTL_S - 30 < lease.expires_at < now + TTL_S + 30
    assert [item.id for item in rig.authority.overtaken(9)] == ["lapsed"]


# -- what can be asked -------------------------------------------------------------------------------------------------


def test_undelivered_items_are_handed_to_one_pump_at_a_time_and_found_again_later(rig: Rig) -> None:
    for name, due in (("late", START - 1), ("early", START - 2), ("not yet", START + 50)):
        rig.submit(name, not_before=due)
    rig.submit("delivered")
    rig.submit("claimed")
    rig.do(Deliver("delivered", "t"))
    rig.claim("claimed")
    assert rig.authority.undelivered(9, 30.0) == (), "who submits them sees to it for so long"
    rig.now += 30
    taken = rig.authority.undelivered(9, 30.0)
    assert [item.id for item in taken] == ["early", "late"]
    assert all(item.handed_at == rig.now for item in taken)
    assert rig.look("late").handed_at == rig.now
    assert rig.another().undelivered(9, 30.0) == ()
    rig.now += 30
    assert [item.id for item in rig.authority.undelivered(1, 30.0)] == ["early"]
    rig.do(Deliver("early", "t"), Deliver("late", "t"))
    assert [item.id for item in rig.authority.undelivered(9, 30.0)] == ["not yet"]


def test_a_retry_needs_a_delivery_of_its_own(rig: Rig) -> None:
    rig.submit()
    rig.do(Deliver("a", "t"))
    rig.do(Retry(rig.start(), "x", 0.0))
    assert rig.authority.undelivered(9, 30.0) == ()
    rig.now += 1
    assert [item.id for item in rig.authority.undelivered(9, 30.0)] == ["a"]


def test_a_search_pages_in_the_order_of_submission(rig: Rig) -> None:
    names = [f"{number:03}" for number in (5, 3, 9, 1, 7)]
    for name in names:
        rig.submit(name)
    pages, after = [], ""
    while page := rig.authority.search(Query(after=after, limit=2)):
        pages.append([item.id for item in page])
        after = page[-1].id
    assert pages == [names[:2], names[2:4], names[4:]]
    assert rig.authority.search(Query(limit=0)) == ()


def test_a_search_is_for_all_that_is_given(rig: Rig) -> None:
    rig.submit("a", session_id="s1", kind="k1")
    rig.submit("b", session_id="s1", kind="k2")
    rig.submit("c", session_id="s2", kind="k1", tenant="u")
    rig.start("b")

    def found(**given: object) -> str:
        return "".join(item.id for item in rig.authority.search(Query(**given)))  # type: ignore[arg-type]

    assert found() == found(tenant=None) == "abc"
    assert (found(tenant="t"), found(tenant="x"), found(session_id="s1"), found(kind="k1")) == ("ab", "", "ab", "ac")
    assert found(states=frozenset({State.RUNNING})) == "b"
    assert found(states=frozenset({State.RUNNING, State.READY}), tenant="t", kind="k1") == "a"
    assert found(after="nowhere") == "abc"
    assert found(tenant="t\0") == found(session_id="\ud800") == found(kind="\0") == ""


def test_what_is_not_there_is_not_found(rig: Rig) -> None:
    rig.submit()
    assert set(rig.authority.find(["a", "b", "a", "a\0", "\ud800"])) == {"a"}
    assert rig.authority.find([]) == {}
    assert rig.authority.outcomes("b") == rig.authority.outcomes("\0") == ()


@pytest.mark.parametrize("text", ["nul\0here", "lone\ud800surrogate", "x" * 100_000, "'\"\\{},NULL", "NULL", ""])
def test_texts_that_databases_cannot_hold_never_keep_an_item_from_its_end(rig: Rig, text: str) -> None:
    rig.submit("ok")
    rig.submit("bad", max_attempts=1)
    rig.submit("stopped")
    rig.submit("cancelled")
    done = rig.do(
        Checkpoint(rig.start("ok"), text), Succeed(rig.look("ok").lease, text), Retry(rig.start("bad"), text),
        Stop(rig.start("stopped"), text, text), Cancel("cancelled", "t", text),
    )  # fmt: skip
    assert all(isinstance(item, WorkItem) for item in done)
    ends = [State.SUCCEEDED, State.DEAD_LETTER, State.CANCELLED, State.CANCELLED]
    stored = [rig.look(name) for name in ("ok", "bad", "stopped", "cancelled")]
    assert [item.state for item in stored] == ends
    kept = text.replace("\0", "\ufffd").replace("\ud800", "\ufffd")[:65_536]
    assert (stored[0].result, stored[0].checkpoint, stored[1].cause, stored[2].checkpoint) == (kept,) * 4
    assert rig.authority.outcomes("bad")[0].text == kept


def test_what_was_acknowledged_is_there_for_the_next_client(rig: Rig) -> None:
    rig.submit()
    lease = rig.start()
    rig.authority.close()
    later = rig.another()
    assert later.find(["a"])["a"].lease == lease
    (ended,) = later.perform([Succeed(lease, "done")])
    assert isinstance(ended, WorkItem)


def together(work: Callable[[int], object], count: int) -> None:
    """Each in a thread of its own, begun at once. Raises what any of them raised."""
    barrier, problems = threading.Barrier(count), list[BaseException]()

    def run(number: int) -> None:
        try:
            barrier.wait(30)
            work(number)
        except BaseException as problem:  # noqa: BLE001 it is raised below
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for problem in problems:
        raise problem
