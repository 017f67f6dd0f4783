"""Random commands to every authority at once and to a plain model of one, which must all agree after each.

The item's fields are compared with the model, and everything that an adapter answers or stores with the others, word
for word. Leases are kept when they are stale, and used late.
"""

from __future__ import annotations

import collections
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from harness.fleet import commands as kinds
from harness.fleet.ports import Authority, Query
from harness.fleet.work_item import TRANSITIONS, Lease, Submission, WorkItem, WorkItemState
from tests.conformance.work_items_rig import ADAPTERS, Opener
from tests.effort import examples
from tests.stateful.work_item_model import ENDED, HELD, IN_A_LEASE, Answer, Command, Model
from tests.stateful.work_item_model import Lease as PlainLease

TENANT = "t"
NAMES = tuple("abcdefg")
SESSIONS = ("s1", "s2", "s3")
OWNERS = ("w1", "w2")
TTL_S = 60.0
TEXTS = st.text(max_size=8)
STEPS = st.sampled_from([0.0, 0.5, 1.0, 5.0, TTL_S, TTL_S + 0.25, 400.0])

_names = st.sampled_from(NAMES)
_abouts = st.fixed_dictionaries(
    {
        "session_id": st.sampled_from(SESSIONS),
        "priority": st.integers(0, 3),
        "deadline": st.sampled_from([None, None, 1_000_005.0, 1_000_500.0]),
        "depends_on": st.lists(_names, max_size=3, unique=True).map(tuple),
        "max_attempts": st.integers(1, 3),
        "not_before": st.sampled_from([0.0, 0.0, 1_000_002.0]),
    }
)
_claims = st.tuples(st.just("claim"), _names, st.sampled_from(OWNERS), st.just(TTL_S), st.booleans())
_submissions = st.tuples(st.just("submit"), _names, _abouts).filter(
    lambda asked: asked[1] not in asked[2]["depends_on"]
)
_outside = st.one_of(
    _submissions,
    _claims,
    st.tuples(st.just("cancel"), _names, st.just("not wanted")),
    st.tuples(st.sampled_from(["recover", "requeue", "deliver", "withdraw"]), _names),
)


def in_a_lease(name: str, lease: PlainLease, text: str) -> Command:
    rest: dict[str, tuple[Any, ...]] = {"renew": (TTL_S,), "defer": (2.0,), "start": ()}
    return (name, lease, *rest.get(name, (text,)))


class Machine(RuleBasedStateMachine):
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.model = Model()
        self.openers: dict[str, Opener] = {
            name: adapter(Path(self.folder.name), lambda: self.model.now) for name, adapter in ADAPTERS.items()
        }
        self.open: dict[str, Authority] = {name: opener() for name, opener in self.openers.items()}
        self.ends: collections.Counter[tuple[str, int]] = collections.Counter()  # a ledger of our own, by id and life
        self.accepted: dict[str, int] = {}  # ids that were accepted, and how often they were requeued or made anew
        self.tokens: dict[str, dict[int, int]] = {name: {0: 0} for name in ADAPTERS}  # each one's own, to memory's
        self.epochs: dict[str, list[int]] = collections.defaultdict(list)
        self.last_token = 0
        self.seen: dict[str, str] = {}
        self.states: dict[str, str] = {}

    def teardown(self) -> None:
        for authority in self.open.values():
            authority.close()
        self.folder.cleanup()

    # -- rules ---------------------------------------------------------------------------------------------------------

    @initialize(sessions=st.lists(st.sampled_from(SESSIONS), min_size=3, max_size=3), attempts=st.integers(1, 3))
    def begin_with_some(self, sessions: Sequence[str], attempts: int) -> None:
        about = {"priority": 2, "deadline": None, "max_attempts": attempts, "not_before": 0.0}
        chain = {"a": (), "b": (), "c": ("a", "b")}
        self.play(
            *(
                ("submit", name, {**about, "session_id": session, "depends_on": depends_on})
                for (name, depends_on), session in zip(chain.items(), sessions, strict=True)
            )
        )

    @rule(command=_outside, target=leases)
    def from_outside(self, command: Command) -> Any:
        return multiple(*self.play(command))

    @rule(command=_claims, target=leases)
    def claim(self, command: Command) -> Any:
        return multiple(*self.play(command))

    @rule(lease=leases, name=st.sampled_from(IN_A_LEASE), text=TEXTS)
    def in_its_name(self, lease: PlainLease, name: str, text: str) -> None:
        self.play(in_a_lease(name, lease, text))

    @rule(lease=consumes(leases), text=TEXTS)
    def run_to_the_end(self, lease: PlainLease, text: str) -> None:
        self.play(in_a_lease("start", lease, ""))
        self.play(in_a_lease("succeed", lease, text))

    @rule(
        outside=st.lists(_outside, max_size=4),
        held=st.lists(st.tuples(st.sampled_from(IN_A_LEASE), leases, TEXTS), max_size=4),
        order=st.randoms(use_true_random=False),
        target=leases,
    )
    def a_batch(self, outside: list[Command], held: list[tuple[str, PlainLease, str]], order: Any) -> Any:
        batch = [*outside, *(in_a_lease(*each) for each in held)]
        order.shuffle(batch)
        return multiple(*self.play(*batch))

    @rule(seconds=STEPS)
    def time_passes(self, seconds: float) -> None:
        self.model.now += seconds

    @rule()
    def recover(self) -> None:
        found = {name: {item.id for item in authority.overtaken(100)} for name, authority in self.open.items()}
        assert found == dict.fromkeys(found, self.model.overtaken())
        self.play(*(("recover", name) for name in sorted(self.model.overtaken())))
        assert self.model.overtaken() == set()

    @rule()
    def who_is_next(self) -> None:
        found = [[item.id for item in each.claimable(100)] for each in self.open.values()]
        assert found == [found[0]] * len(found)
        assert sorted(found[0]) == sorted(self.model.claimable())

    @rule(silent_s=st.sampled_from([0.0, 30.0]))
    def pump(self, silent_s: float) -> None:
        expected = self.model.undelivered(silent_s)
        found = [
            [self.told(name, item) for item in each.undelivered(100, silent_s)] for name, each in self.open.items()
        ]
        assert found == [found[0]] * len(found)
        assert {getattr(item, "id", "") for item in found[0]} == expected
        for name in expected:
            self.model.items[name]["handed_at"] = self.model.now

    @rule(which=st.sampled_from([name for name in ADAPTERS if name != "memory"]))
    def another_client(self, which: str) -> None:
        self.open[which].close()
        self.open[which] = self.openers[which]()

    # -- a transaction, in every way -----------------------------------------------------------------------------------

    def play(self, *commands: Command) -> list[PlainLease]:
        """The leases that were granted."""
        answers: dict[str, list[Any]] = {}
        for name, authority in self.open.items():
            own = {memorys: token for token, memorys in self.tokens[name].items()}
            answers[name] = list(authority.perform([_command(command, own) for command in commands]))
            self.note_tokens(name, answers[name], answers["memory"])
            assert [self.told(name, each) for each in answers[name]] == [
                self.told("memory", each) for each in answers["memory"]
            ]
        tokens, granted = [], []
        for command, answer in zip(commands, answers["memory"], strict=True):
            if command[0] == "claim":
                tokens.append(answer.token if isinstance(answer, WorkItem) else 0)
                if isinstance(answer, WorkItem):
                    granted.append(self.note_claim(answer))
        self.states = {name: item["state"] for name, item in self.model.items.items()}
        expected = self.model.perform(commands, tokens)
        for command, answer, foretold in zip(commands, answers["memory"], expected, strict=True):
            assert _plain(answer, foretold) == foretold, command
        self.note_after()
        return granted

    def note_tokens(self, name: str, answers: Sequence[Any], memorys: Sequence[Any]) -> None:
        """Each authority has tokens of its own, which rise as memory's do."""
        known = self.tokens[name]
        for answer, memorys_answer in zip(answers, memorys, strict=True):
            if isinstance(answer, WorkItem) and isinstance(memorys_answer, WorkItem) and answer.token not in known:
                assert answer.token > max(known), "fencing tokens rise"
                known[answer.token] = memorys_answer.token

    def told(self, name: str, answer: Any) -> object:
        """What an authority answered, in memory's tokens."""
        if isinstance(answer, Exception):
            return type(answer), str(answer)
        return answer if answer is None else attrs.evolve(answer, token=self.tokens[name][answer.token])

    def note_claim(self, item: WorkItem) -> PlainLease:
        assert item.token > self.last_token, "fencing tokens rise"
        self.last_token = item.token
        self.epochs[item.id].append(item.epoch)
        return (item.id, item.owner, item.epoch, item.token)

    def note_after(self) -> None:
        """Lives that ended, and lives that began: an id that was withdrawn or requeued begins another one."""
        for name, item in self.model.items.items():
            before = self.states.get(name)
            if before is None or (before == "dead_letter" and item["state"] != "dead_letter"):
                self.accepted[name] = self.accepted.get(name, -1) + 1
            if item["state"] in ENDED and before not in ENDED:
                self.ends[name, self.accepted[name]] += 1
        for name in self.states.keys() - self.model.items.keys():
            self.epochs.pop(name, None)

    # -- invariants ----------------------------------------------------------------------------------------------------

    @invariant()
    def all_hold_the_same(self) -> None:
        items = self.open["memory"].search(Query(limit=100))
        assert {item.id: _plain(item, self.model.items[item.id]) for item in items} == self.model.items
        for name, authority in self.open.items():
            found = authority.search(Query(limit=100))
            assert [self.told(name, item) for item in found] == list(items), name
        for item in items:
            lines = self.open["memory"].outcomes(item.id)
            assert [line.ended.value for line in lines] == self.model.provenance[item.id]
            for name, authority in self.open.items():
                assert [self.told(name, line) for line in authority.outcomes(item.id)] == list(lines), name

    @invariant()
    def moves_are_those_of_the_table(self) -> None:
        """More than one may lie between two looks."""
        for name, item in self.model.items.items():
            before = self.seen.get(name)
            if before is not None and name in self.seen and before != item["state"]:
                assert WorkItemState(item["state"]) in _reachable(WorkItemState(before)), (name, before, item["state"])
        self.seen = {name: item["state"] for name, item in self.model.items.items()}

    @invariant()
    def one_of_a_session_is_held(self) -> None:
        held = [item["session_id"] for item in self.model.items.values() if item["state"] in HELD]
        assert len(held) == len(set(held))

    @invariant()
    def epochs_rise_with_each_claim(self) -> None:
        for name, epochs in self.epochs.items():
            assert epochs == list(range(1, len(epochs) + 1)), name
            assert self.model.items[name]["epoch"] == len(epochs)

    @invariant()
    def a_life_ends_once(self) -> None:
        assert all(count == 1 for count in self.ends.values()), self.ends

    @invariant()
    def what_was_accepted_lives_or_has_ended(self) -> None:
        tallies = [authority.tally().items for authority in self.open.values()]
        counted = collections.Counter(item["state"] for item in self.model.items.values())
        for tally in tallies:
            assert {state.value: count for state, count in tally.items()} == dict(counted)


def _command(command: Command, own: dict[int, int]) -> kinds.Command:
    """`own`: by memory's tokens, those of the authority that it is for."""
    name, about, *rest = command
    if name == "submit":
        (fields,) = rest
        return kinds.Submit(Submission(about, TENANT, kind="k", **fields))
    kind = getattr(kinds, name.capitalize())
    if name in IN_A_LEASE:
        item_id, owner, epoch, token = about
        lease = Lease(item_id, TENANT, owner, epoch, own[token], 0.0)
        return kind(lease, "", *rest) if name == "stop" else kind(lease, *(("c",) if name == "defer" else ()), *rest)
    return kind(about, TENANT, *rest)


def _plain(answer: WorkItem | Exception | None, like: Answer) -> Answer:
    """With the fields that the model has. Texts as any store can hold them."""
    if not isinstance(answer, WorkItem):
        return type(answer).__name__ if isinstance(answer, Exception) else None
    fields = attrs.asdict(answer, recurse=False) | {"state": answer.state.value}
    if not isinstance(like, dict):
        return fields
    for name in ("result", "checkpoint"):
        like[name] = like[name].replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return {name: fields[name] for name in like}


def _reachable(state: WorkItemState) -> set[WorkItemState]:
    found, left = set(), [state]
    while left:
        for after in TRANSITIONS[left.pop()]:
            if after not in found:
                found.add(after)
                left.append(after)
    return found


TestWorkItems = Machine.TestCase
TestWorkItems.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
