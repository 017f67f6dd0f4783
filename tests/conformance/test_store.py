"""The suite that defines the store port. Every adapter passes it, on the same inputs."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from dispatch.errors import DispatchError, OwnedElsewhereError, OwnershipLostError, StoreError
from dispatch.intent import Intent, Urgency
from dispatch.slice import Slice, SliceState, TouchSet
from dispatch.store import AttemptRow, Changes, Contents, GraphRow, IntentRow, SliceRow, Store
from dispatch.store.ownership import CLAIM_S, RENEW_S
from dispatch.store.port import history_of
from dispatch.store.process import Presence
from harness import Recipe
from tests.conformance.store_rig import ADAPTERS, START, Opener, World, attempt_row, intent_row, memory, slice_row
from tests.conformance.store_strategies import ANY_BATCH, GOOD_BATCH
from tests.effort import examples

FULL_RECIPE = Recipe(
    command=("agent", "--model", "größer"),
    prompt="Build it.\n\tThen test it. \x1b[0m 😀\u2028",
    kind="feature",
    verify=("make", "test"),
    max_attempts=0,
    grace_s=0.1 + 0.2,
    quiet_limit_s=0.0,
    env=(("A", "1"), ("B", ""), ("A", "2")),
)
FULL_SLICE = Slice(
    id="front-end",
    title="Vorderseite – 前端",
    recipe=FULL_RECIPE,
    depends_on=("a", "b"),
    required_by=("z",),
    contends=("y", "x"),
    touch=TouchSet(("src/**/*.py", "docs/[!a-z]?"), ("schema",)),
    provenance="a plan",
    hold="wait for the design",
)
FULL_ROW = SliceRow(
    slice=FULL_SLICE,
    seq=2**53 + 1,
    state=SliceState.IN_REVIEW,
    attempt=3,
    closes=2,
    turns=17,
    branch="dispatch/front-end-3",
    pull_request_url="https://example.org/pull/1",
    error="it said \\u0000, literally",
    checkpoint="line\n" * 2000,
    hold="held",
    canceling=True,
    stopping=True,
    ran_s=0.1,
    enqueued_at=1_700_000_000.123456,
    started_at=5e-324,
    ended_at=1.7976931348623157e308,
)
FULL_INTENT = Intent(
    id="ship it",
    statement="Bis morgen",
    scope="front-end",
    urgency=Urgency.URGENT,
    deadline=dt.datetime(2031, 2, 3, 4, 5, 6, 789012, dt.timezone(dt.timedelta(hours=5, minutes=45))),
    supersedes="older",
    terms=("schema", ""),
)


# -- what is written is read back ----------------------------------------------------------------------------------


def test_a_graph_never_written_is_empty(store: Store) -> None:
    assert store.load() == Contents()


@pytest.mark.parametrize(
    "changes",
    [
        Changes(graph=GraphRow("7f3a", "for the night")),
        Changes(slices=(slice_row("plain"),)),
        Changes(slices=(FULL_ROW,)),
        *(Changes(slices=(slice_row("a", state=state),)) for state in SliceState),
        Changes(slices=(slice_row("a"),), attempts=(AttemptRow("a", 1, "branch", 1.5, 2.5, "closed", "konflikt ≠"),)),
        Changes(intents=(IntentRow(FULL_INTENT, 4, ("a", "b")),)),
        *(Changes(intents=(intent_row("i", intent=Intent("i", "", urgency=urgency)),)) for urgency in Urgency),
        Changes(intents=(intent_row("i", attached=tuple(f"slice-{n}" for n in range(1000))),)),
    ],
)
def test_every_field_comes_back_as_it_was(store: Store, changes: Changes) -> None:
    store.write(changes)
    assert store.load() == Contents(changes.graph, changes.slices, changes.attempts, changes.intents)


@pytest.mark.parametrize(
    "zone", [dt.UTC, dt.timezone(-dt.timedelta(hours=9, minutes=30)), ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Tokyo")]
)
def test_a_deadline_is_the_same_instant_to_the_microsecond(store: Store, zone: dt.tzinfo) -> None:
    deadline = dt.datetime(2030, 6, 1, 12, 0, 0, 1, zone)
    store.write(Changes(intents=(intent_row("i", intent=Intent("i", "", deadline=deadline)),)))
    (row,) = store.load().intents
    assert row.intent.deadline is not None
    assert row.intent.deadline - deadline == dt.timedelta(0)


def test_rows_come_in_order(store: Store) -> None:
    ids = ["m", "b", "z", "a"]
    slices = tuple(slice_row(slice_id, seq) for seq, slice_id in enumerate(ids, 9))
    attempts = tuple(attempt_row(slice_id, attempt) for slice_id in ids for attempt in (10, 9))
    intents = tuple(intent_row(intent_id, seq) for intent_id, seq in [("p", 11), ("q", 9), ("o", 10)])
    store.write(Changes(slices=slices[::-1], attempts=attempts, intents=intents))
    contents = store.load()
    assert [row.slice.id for row in contents.slices] == ids
    assert [(row.slice_id, row.attempt) for row in contents.attempts] == [(i, n) for i in sorted(ids) for n in (9, 10)]
    assert [row.intent.id for row in contents.intents] == ["q", "o", "p"]


# -- what a batch does ---------------------------------------------------------------------------------------------


def test_a_row_replaces_the_one_with_its_key(store: Store) -> None:
    first = Changes(GraphRow("g"), (slice_row("a"),), (attempt_row("a"),), (intent_row("i"),))
    second = Changes(
        GraphRow("g", "paused"),
        (slice_row("a", state=SliceState.RUNNING, attempt=1, branch="b"), slice_row("b", 2)),
        (attempt_row("a", outcome="closed"), attempt_row("a", 2)),
        (intent_row("i", 2, intent=Intent("i", "anew"), attached=("a",)),),
    )
    store.write(first)
    store.write(second)
    assert store.load() == Contents(second.graph, second.slices, second.attempts, second.intents)


def test_a_batch_leaves_alone_what_it_does_not_name(store: Store) -> None:
    store.write(Changes(GraphRow("g"), (slice_row("a"),), (attempt_row("a"),), (intent_row("i"),)))
    before = store.load()
    store.write(Changes(slices=(slice_row("b", 2),)))
    assert store.load() == attrs.evolve(before, slices=(*before.slices, slice_row("b", 2)))
    store.write(Changes())
    assert len(store.load().slices) == 2


@pytest.mark.parametrize("attempts", [(0, 0), (1, 1), (0, 1), (1, 0)])
def test_of_rows_with_one_key_the_last_counts(store: Store, attempts: tuple[int, int]) -> None:
    rows = tuple(slice_row("a", attempt=n, turns=turns) for turns, n in enumerate(attempts))
    store.write(Changes(slices=rows))
    assert store.load().slices == rows[1:]
    store.write(Changes(slices=rows[::-1], intents=(intent_row("i", 1), intent_row("i", 2))))
    assert store.load().slices == rows[:1]
    assert store.load().intents == (intent_row("i", 2),)


@pytest.mark.parametrize("attempt", [0, 1])
def test_what_a_slice_was_declared_as_stays(store: Store, attempt: int) -> None:
    store.write(Changes(slices=(slice_row("a"), slice_row("b", 2))))
    renamed = slice_row("a", slice=Slice("a", title="renamed"), attempt=attempt, turns=3)
    store.write(Changes(slices=(renamed,)))
    assert store.load().slices[0] == slice_row("a", attempt=attempt, turns=3)


@pytest.mark.parametrize("attempt", [0, 1])
def test_what_a_slice_was_declared_as_is_that_of_its_first_row(store: Store, attempt: int) -> None:
    renamed = slice_row("a", slice=Slice("a", title="renamed"), attempt=attempt)
    store.write(Changes(slices=(slice_row("a"), renamed)))
    assert store.load().slices == (slice_row("a", attempt=attempt),)


@pytest.mark.parametrize("attempt", [0, 1])
def test_what_a_slice_was_declared_as_is_replaced_when_it_is_revised(store: Store, attempt: int) -> None:
    store.write(Changes(slices=(slice_row("a"), slice_row("b", 2))))
    renamed = [slice_row(i, n, slice=Slice(i, title="renamed"), attempt=attempt) for n, i in enumerate("ab", 1)]
    store.write(Changes(slices=tuple(renamed), revised=("a",)))
    assert store.load().slices == (renamed[0], slice_row("b", 2, attempt=attempt))


@pytest.mark.parametrize("attempt", [0, 1])
def test_new_and_known_slices_mix_in_a_batch(store: Store, attempt: int) -> None:
    store.write(Changes(slices=(slice_row("known"),)))
    rows = tuple(slice_row(i, n, attempt=attempt, turns=n) for n, i in enumerate(["known", "new", "newer"], 1))
    store.write(Changes(slices=rows))
    assert store.load().slices == rows


def test_forgetting_comes_before_writing(store: Store) -> None:
    store.write(Changes(intents=(intent_row("i"), intent_row("j", 2))))
    store.write(Changes(intents=(intent_row("i", 3),), forgotten=("i", "j", "never-known")))
    assert store.load().intents == (intent_row("i", 3),)


def test_a_batch_may_be_written_again(store: Store) -> None:
    changes = Changes(GraphRow("g"), (FULL_ROW,), (attempt_row("front-end"),), (intent_row("i"),), ("j",))
    store.write(changes)
    before = store.load()
    store.write(changes)
    assert store.load() == before


NO_DATABASE_KEEPS = [
    Changes(graph=GraphRow("g\0")),
    Changes(graph=GraphRow("g", paused="\ud800")),
    Changes(slices=(slice_row("a\0"),)),
    *(
        Changes(slices=(slice_row("a", slice=Slice("a", **{field: value})),))
        for bad in ("\0", "x\udfff")
        for field, value in [("title", bad), ("provenance", bad), ("hold", bad), ("depends_on", ("b", bad))]
    ),
    *(Changes(slices=(slice_row("a", slice=Slice("a", **{field: ("\0",)})),)) for field in ("required_by", "contends")),
    *(
        Changes(slices=(slice_row("a", slice=Slice("a", touch=touch)),))
        for touch in (TouchSet(("\0",)), TouchSet((), ("\ud800",)))
    ),
    *(
        Changes(slices=(slice_row("a", slice=Slice("a", recipe=recipe)),))
        for recipe in [
            Recipe(command=("\0",)),
            Recipe(prompt="\ud800"),
            Recipe(kind="\0"),
            Recipe(verify=("\0",)),
            Recipe(env=(("\0", ""),)),
            Recipe(env=(("A", "\ud800"),)),
            Recipe(max_attempts=2**63),
            Recipe(grace_s=float("inf")),
            Recipe(quiet_limit_s=float("nan")),
        ]
    ),
    *(
        Changes(slices=(slice_row("a", **{field: "caf\0é"}),))
        for field in ("branch", "pull_request_url", "error", "checkpoint", "hold")
    ),
    *(Changes(slices=(slice_row("a", **{field: float("nan")}),)) for field in ("ran_s", "enqueued_at", "started_at")),
    *(Changes(slices=(slice_row("a", **{field: 2**63}),)) for field in ("seq", "attempt", "closes", "turns")),
    Changes(slices=(slice_row("a", ended_at=float("-inf")),)),
    *(
        Changes(slices=(slice_row("a"),), attempts=(attempt_row("a", **{field: value}),))
        for field, value in [
            ("branch", "\0"),
            ("outcome", "\ud800"),
            ("detail", "\0"),
            ("attempt", -(2**63) - 1),
            ("started_at", float("inf")),
            ("ended_at", float("nan")),
        ]
    ),
    *(
        Changes(intents=(intent_row("i", intent=attrs.evolve(FULL_INTENT, **{field: value})),))
        for field, value in [
            ("statement", "\0"),
            ("scope", "\ud800"),
            ("supersedes", "\0"),
            ("terms", ("\0",)),
            ("deadline", dt.datetime(2030, 1, 1)),
            ("deadline", dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
        ]
    ),
    Changes(intents=(intent_row("i", attached=("\0",)),)),
    Changes(intents=(intent_row("i\ud800"),)),
    Changes(intents=(intent_row("i", seq=2**63),)),
    Changes(forgotten=("\0",)),
]


@pytest.mark.parametrize("changes", NO_DATABASE_KEEPS)
def test_what_not_every_database_keeps_is_refused_whole(store: Store, changes: Changes) -> None:
    store.write(Changes(GraphRow("g"), (slice_row("a"),), (attempt_row("a"),), (intent_row("i"),)))
    before = store.load()
    good = Changes(GraphRow("h"), (slice_row("b", 2), *changes.slices), changes.attempts, changes.intents)
    with pytest.raises(StoreError):
        store.write(attrs.evolve(good, graph=changes.graph or good.graph, forgotten=("i", *changes.forgotten)))
    assert store.load() == before
    store.write(Changes(slices=(slice_row("b", 2),)))
    assert len(store.load().slices) == 2


def test_an_attempt_needs_its_slice_and_a_refused_batch_writes_nothing(store: Store) -> None:
    store.write(Changes(slices=(slice_row("a"),), intents=(intent_row("i"),)))
    before = store.load()
    with pytest.raises(StoreError, match="attempt"):
        store.write(Changes(GraphRow("g"), (slice_row("b", 2),), (attempt_row("c"),), (intent_row("j"),), ("i",)))
    assert store.load() == before
    store.write(Changes(slices=(slice_row("c", 3),), attempts=(attempt_row("c"),)))
    assert store.load().attempts == (attempt_row("c"),)


@pytest.mark.parametrize("name", ["\0", "\ud800", "x" * 513])
def test_a_graph_name_that_not_every_database_keeps_is_refused(handle: Opener, name: str) -> None:
    store = handle()
    with pytest.raises(StoreError):
        store.claim(name)
    store.claim("default")
    with pytest.raises(StoreError):
        store.peek(name)


def test_the_longest_graph_name_is_kept(handle: Opener) -> None:
    name = "".join(map(chr, range(0x1F300, 0x1F300 + 512)))  # 4 bytes each, which no compression makes less
    store = handle()
    store.claim(name)
    store.write(Changes(GraphRow("g")))
    assert handle().peek(name)[0].graph == GraphRow("g")


# -- who owns a graph ----------------------------------------------------------------------------------------------


USES: Sequence[Callable[[Store], object]] = [
    lambda store: store.load(),
    lambda store: store.renew(),
    lambda store: store.write(Changes(GraphRow("old"), (slice_row("late"),), (), (), ("i",))),
]


def test_a_first_claim_has_epoch_1_and_the_stores_time(handle: Opener) -> None:
    claim = handle().claim("default")
    assert (claim.graph, claim.epoch) == ("default", 1)
    assert claim.since == dt.datetime.fromtimestamp(START, dt.UTC)


@pytest.mark.parametrize("use", USES)
def test_nothing_is_done_without_a_claim(handle: Opener, use: Callable[[Store], object]) -> None:
    store = handle()
    with pytest.raises(OwnershipLostError):
        use(store)
    store.claim("default")
    store.release()
    with pytest.raises(OwnershipLostError):
        use(store)


def test_a_living_owner_keeps_others_out_at_once(world: World, store: Store, handle: Opener) -> None:
    with pytest.raises(OwnedElsewhereError, match="--take-over") as refused:
        handle().claim("default")
    assert refused.value.graph == "default"
    assert refused.value.since == "1970-01-12 13:46:40 UTC"
    assert refused.value.owner.startswith("pid ")
    assert world.slept == []
    store.write(Changes(GraphRow("g")))


def test_two_owners_do_not_share_an_object(store: Store) -> None:
    with pytest.raises(OwnedElsewhereError):
        store.claim("default")
    with pytest.raises(StoreError, match="a store of its own"):
        store.claim("other")
    store.write(Changes(GraphRow("g")))
    store.release()
    assert store.claim("other").epoch == 1


def test_a_dead_owners_graph_is_taken_at_once(world: World, store: Store, handle: Opener) -> None:
    store.write(Changes(GraphRow("g")))
    world.presence = Presence.GONE
    successor = handle()
    assert successor.claim("default").epoch == 2
    assert world.slept == []
    assert successor.load().graph == GraphRow("g")


def test_an_unknown_owners_graph_is_taken_once_its_claim_ran_out(world: World, store: Store, handle: Opener) -> None:
    world.presence, world.now = Presence.UNKNOWN, START + 4
    assert handle().claim("default").epoch == 2
    assert sum(world.slept) == CLAIM_S - 4
    assert max(world.slept) <= RENEW_S


def test_a_claim_by_a_clock_that_ran_ahead_is_outlasted(world: World, store: Store, handle: Opener) -> None:
    world.presence, world.now = Presence.UNKNOWN, START - 1e6
    assert handle().claim("default").epoch == 2
    assert sum(world.slept) == CLAIM_S


def test_a_renewal_at_the_last_moment_counts(world: World, store: Store, handle: Opener) -> None:
    world.presence, world.now = Presence.UNKNOWN, START - 1e6
    world.while_asleep = lambda: store.renew() if sum(world.slept) >= CLAIM_S else None
    with pytest.raises(OwnedElsewhereError):
        handle().claim("default")
    store.write(Changes(GraphRow("g")))


def test_an_unknown_owner_that_renews_is_alive(world: World, store: Store, handle: Opener) -> None:
    world.presence, world.while_asleep = Presence.UNKNOWN, store.renew
    with pytest.raises(OwnedElsewhereError):
        handle().claim("default")
    assert world.slept == [RENEW_S]
    store.write(Changes(GraphRow("g")))


def test_a_successor_that_comes_while_one_waits_is_alive(world: World, store: Store, handle: Opener) -> None:
    faster = handle()
    world.presence = Presence.UNKNOWN
    world.while_asleep = lambda: (
        None if faster_claimed else faster_claimed.append(faster.claim("default", take_over=True))
    )
    faster_claimed: list[object] = []
    with pytest.raises(OwnedElsewhereError):
        handle().claim("default")
    faster.write(Changes(GraphRow("g")))


def test_renewing_pushes_the_expiry_out(world: World, store: Store, handle: Opener) -> None:
    world.now = START + CLAIM_S - 1
    store.renew()
    world.now += CLAIM_S - 0.001
    with pytest.raises(OwnedElsewhereError):
        handle().claim("default")
    world.now += 0.002
    assert handle().claim("default").epoch == 2


def test_an_expired_claim_that_nobody_took_still_writes(world: World, store: Store, handle: Opener) -> None:
    world.now = START + 1000 * CLAIM_S
    store.write(Changes(GraphRow("g")))
    store.renew()
    with pytest.raises(OwnedElsewhereError):
        handle().claim("default")
    assert store.load().graph == GraphRow("g")


@pytest.mark.parametrize("presence", Presence)
def test_a_take_over_does_not_wait(world: World, store: Store, handle: Opener, presence: Presence) -> None:
    world.presence = presence
    assert handle().claim("default", take_over=True).epoch == 2
    assert world.slept == []


@pytest.mark.parametrize("use", USES)
def test_a_former_owner_changes_nothing(
    world: World, store: Store, handle: Opener, use: Callable[[Store], object]
) -> None:
    store.write(Changes(GraphRow("g"), intents=(intent_row("i"),)))
    successor = handle()
    successor.claim("default", take_over=True)
    successor.write(Changes(slices=(slice_row("b"),)))
    before = successor.load()
    world.now += CLAIM_S / 2
    for _ in range(2):
        with pytest.raises(OwnershipLostError):
            use(store)
    assert successor.load() == before
    world.now += CLAIM_S / 2 + 0.001  # a renewal by the former owner would have kept the claim alive
    assert handle().claim("default").epoch == 3


def test_a_former_owner_gives_up_nothing(world: World, store: Store, handle: Opener) -> None:
    successor = handle()
    successor.claim("default", take_over=True)
    store.release()
    with pytest.raises(OwnedElsewhereError):
        handle().claim("default")
    successor.write(Changes(GraphRow("g")))


def test_a_former_owner_can_claim_again(store: Store, handle: Opener) -> None:
    successor = handle()
    successor.claim("default", take_over=True)
    with pytest.raises(OwnershipLostError):
        store.renew()
    with pytest.raises(OwnedElsewhereError):
        store.claim("default")
    successor.release()
    assert store.claim("default").epoch == 3
    store.write(Changes(GraphRow("g")))


def test_what_is_given_up_is_free_at_once(world: World, store: Store, handle: Opener) -> None:
    store.write(Changes(GraphRow("g")))
    store.release()
    store.release()
    successor = handle()
    assert successor.claim("default").epoch == 2
    assert successor.load().graph == GraphRow("g")
    successor.release()
    assert store.claim("default").epoch == 3
    assert store.load().graph == GraphRow("g")
    assert world.slept == []


def test_releasing_what_was_never_claimed_is_no_error(handle: Opener) -> None:
    store = handle()
    store.release()
    assert store.claim("default").epoch == 1


def test_graphs_are_apart(store: Store, handle: Opener) -> None:
    other = handle()
    assert other.claim("other").epoch == 1
    store.write(Changes(GraphRow("g"), (slice_row("a"),), (attempt_row("a"),), (intent_row("i"),)))
    other.write(Changes(GraphRow("h"), (slice_row("a", turns=1),), (), (intent_row("i", 2),), ("j",)))
    assert store.load() == Contents(GraphRow("g"), (slice_row("a"),), (attempt_row("a"),), (intent_row("i"),))
    assert other.load() == Contents(GraphRow("h"), (slice_row("a", turns=1),), (), (intent_row("i", 2),))
    other.write(Changes(forgotten=("i",)))
    assert store.load().intents == (intent_row("i"),)
    other.release()
    store.write(Changes(GraphRow("g", "still mine")))


# -- reading without owning ----------------------------------------------------------------------------------------


def test_a_peek_reads_all_of_a_graph_and_disturbs_nobody(store: Store, handle: Opener) -> None:
    store.write(Changes(GraphRow("g"), (FULL_ROW,), (attempt_row("front-end"),), (intent_row("i"),)))
    contents, claim = handle().peek("default")
    assert contents == store.load()
    assert claim is not None
    assert (claim.epoch, claim.since) == (1, dt.datetime.fromtimestamp(START, dt.UTC))
    store.write(Changes(GraphRow("g", "paused")))
    assert store.peek("default")[0].graph == GraphRow("g", "paused")


def test_a_peek_at_an_unknown_graph_finds_nothing(store: Store, handle: Opener) -> None:
    assert handle().peek("other") == (Contents(), None)
    assert handle().claim("other").epoch == 1


@pytest.mark.parametrize("end", ["released", "run out", "gone"])
def test_a_claim_that_is_over_is_not_shown(world: World, store: Store, handle: Opener, end: str) -> None:
    store.write(Changes(GraphRow("g")))
    match end:
        case "released":
            store.release()
        case "run out":
            world.now += CLAIM_S
        case "gone":
            world.presence = Presence.GONE
    assert handle().peek("default") == (Contents(GraphRow("g")), None)


def test_an_unknown_owners_claim_is_shown(world: World, store: Store, handle: Opener) -> None:
    world.presence = Presence.UNKNOWN
    assert handle().peek("default")[1] is not None


# -- any input at all ----------------------------------------------------------------------------------------------


@attrs.define
class Side:
    """One adapter in the comparison, and what it did with a batch."""

    store: Store

    def answer(self, changes: Changes) -> tuple[type[DispatchError] | None, Contents]:
        try:
            self.store.write(changes)
        except DispatchError as error:
            return type(error), self.store.load()
        return None, self.store.load()


@pytest.fixture(scope="module")
def openers() -> Iterator[dict[str, Opener]]:
    with tempfile.TemporaryDirectory() as folder:
        yield {name: make(World(), Path(folder)) for name, make in ADAPTERS.items()}


GRAPHS = iter(range(10**9))


@pytest.mark.parametrize("adapter", [name for name, make in ADAPTERS.items() if make is not memory])
@given(batches=st.lists(ANY_BATCH | GOOD_BATCH, min_size=1, max_size=4))
@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_adapter_accepts_and_refuses_the_same(
    openers: dict[str, Opener], adapter: str, batches: list[Changes]
) -> None:
    graph = f"graph-{next(GRAPHS)}"
    ours, theirs = Side(openers["memory"]()), Side(openers[adapter]())
    for side in (ours, theirs):
        side.store.claim(graph)
    for changes in batches:
        expected = ours.answer(changes)
        event("refused" if expected[0] else "accepted")
        assert theirs.answer(changes) == expected
    ours.store.release()
    theirs.store.release()


@pytest.mark.parametrize("adapter", ADAPTERS)
@given(changes=GOOD_BATCH)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_can_be_kept_comes_back_as_it_was(openers: dict[str, Opener], adapter: str, changes: Changes) -> None:
    ids = {row.slice.id for row in changes.slices}
    kept = attrs.evolve(
        changes,
        slices=tuple({row.slice.id: row for row in changes.slices}.values()),
        attempts=tuple({(row.slice_id, row.attempt): row for row in changes.attempts if row.slice_id in ids}.values()),
        intents=tuple({row.intent.id: row for row in changes.intents}.values()),
        log=tuple({row.seq: row for row in changes.log}.values()),
    )
    store = openers[adapter]()
    graph = f"graph-{next(GRAPHS)}"
    store.claim(graph)
    store.write(kept)
    contents = store.load()
    history = history_of(store)
    assert history is not None
    with history.reading(graph) as reading:
        assert sorted(kept.log, key=lambda row: row.seq) == reading.entries(-(2**63), 10)
        assert kept.keyframe is None or reading.keyframe(kept.keyframe.seq) == kept.keyframe
    store.release()
    assert contents.graph == kept.graph
    assert {row.slice.id: row for row in contents.slices} == {row.slice.id: row for row in kept.slices}
    assert set(contents.attempts) == set(kept.attempts)
    assert {row.intent.id: row for row in contents.intents} == {row.intent.id: row for row in kept.intents}
