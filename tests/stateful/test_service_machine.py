"""The service against the plain model: any commands and reports in any order, restarts included, on each store.

After every rule the answer, everything that a caller can see and everything that the host was asked must be what the
model says.
"""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dispatch import MemoryStore, Store
from dispatch.store.postgres import PostgresStore
from tests.conformance.store_rig import emptied_database
from tests.effort import examples
from tests.replaying import assert_replays
from tests.stateful.driver import Driver, expected_survey
from tests.stateful.entries import Step, precedes
from tests.stateful.model import FINISHED, OCCUPYING, UNFINISHED, Answer, Model, Refused

pytestmark = pytest.mark.timeout(600)  # a difference takes its time to be shrunk

Machine = Any  #: a rule machine, as strategies see it
Fields = dict[str, Any]

PATHS = ("src/a.py", "src/*.py", "src/**", "docs/[a-m]*", "docs/[!a-m]*", "**/mod.rs", "lib", "lib/x/mod.rs")
HOTSPOTS = ("schema", "router")
TERMS = ("SRC", " docs ", "mod.rs", "schema", "rout", "nowhere", "")
BAD_IDS = ("", "-a", "a/b", "a..b", "a.lock", "a.", "a b", "a\n", "é", "a" * 81)
BAD_TITLES = ("two\nlines", "bell\a", "x" * 257)
BAD_PATHS = ("/etc", "../up", "src/../lib", "", ".", "src/[ab", "src/[]", "src\\")
PHASES = ("running", "merged", "closed", "failed", "canceled")
URL = "https://example.invalid/pull/"
DEADLINE = dt.datetime(2001, 2, 3, tzinfo=dt.UTC)


FLAWS = [
    *({"id": id_} for id_ in BAD_IDS),
    *({"title": title} for title in BAD_TITLES),
    *({"paths": ["src/a.py", path]} for path in BAD_PATHS),
]


def ids(*states: str) -> st.SearchStrategy[str]:
    """The id of a slice in one of `states` if there is any, else of any slice, else one that is unknown."""

    def choices(machine: Machine) -> st.SearchStrategy[str]:
        fitting = [entry.id for entry in machine.model.in_state(*states)]
        return st.sampled_from(fitting or list(machine.model.entries) or ["absent"])

    return st.runner().flatmap(choices)


def edges(*states: str) -> st.SearchStrategy[list[str]]:
    """Ids of up to two slices in `states`, perhaps the same twice."""

    def choices(machine: Machine) -> st.SearchStrategy[list[str]]:
        fitting = [entry.id for entry in machine.model.in_state(*states)]
        return st.lists(st.sampled_from(fitting), max_size=2) if fitting else st.just([])

    return st.runner().flatmap(choices)


some_slice = st.fixed_dictionaries(
    {
        "depends_on": edges(*UNFINISHED, "merged"),
        "required_by": edges("queued", "failed"),
        "contends": edges(*UNFINISHED, "merged", "canceled"),
        "paths": st.lists(st.sampled_from(PATHS), max_size=2),
        "hotspots": st.lists(st.sampled_from(HOTSPOTS), max_size=1),
        "hold": st.sampled_from([False, False, False, True]),
        "max_attempts": st.integers(1, 3),
    }
)
some_intent = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["now", "soon", "later"]),
        "statement": st.just("as written"),
        "scope": st.one_of(st.just(""), st.just("absent"), ids("queued"), ids(*UNFINISHED), ids(*FINISHED)),
        "urgency": st.sampled_from(["urgent", "urgent", "high", "normal", "low"]),
        "terms": st.lists(st.sampled_from(TERMS), max_size=3),
        "supersedes": st.sampled_from(["", "", "now", "soon", "later", "unknown"]),
        "deadline": st.sampled_from([None, DEADLINE]),
    }
).filter(lambda intent: intent["supersedes"] != intent["id"])
some_edge = st.sampled_from(["depends_on", "required_by", "contends"])
some_url = st.sampled_from(["", "", f"{URL}1", f"{URL}2"])
has_slices = precondition(lambda machine: machine.model.entries)
has_sessions = precondition(lambda machine: machine.model.in_state(*OCCUPYING))


class ServiceMachine(RuleBasedStateMachine):
    """One graph's service and the model of it; each rule does the same to both."""

    model: Model
    driver: Driver

    def open_store(self) -> Store | str:
        raise NotImplementedError

    @initialize(cores=st.integers(1, 4), prompt=st.booleans())
    def start(self, cores: int, prompt: bool) -> None:
        self.made = 0
        self.model, self.driver = Model(cores), Driver(cores, self.open_store(), prompt=prompt)

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.service.stop()
            assert_replays(self.driver.store)

    def both(self, **step: Any) -> None:
        self.both_at_once([step])

    def both_at_once(self, steps: Sequence[Step]) -> None:
        answers = self.driver.play(*steps)
        for step, answer in zip(steps, answers, strict=True):
            assert answer in self.right_answers(step), step
        assert self.driver.survey() == expected_survey(self.model)
        self.driver.assert_texts(self.model)
        self.driver.assert_reasons(self.model)
        self.driver.service.check()

    def right_answers(self, step: Step) -> list[Answer]:
        try:
            return [self.model.play(step)]
        except Refused as refused:
            return [{"error": name} for name in refused.names]

    def fresh_id(self) -> str:
        self.made += 1
        return f"s{self.made}"

    # Slices come in.

    @rule(fields=some_slice)
    def enqueue(self, fields: Fields) -> None:
        self.both(do="enqueue", id=self.fresh_id(), **fields)

    @rule(fields=some_slice, flaw=st.sampled_from(FLAWS))
    def enqueue_out_of_grammar(self, fields: Fields, flaw: Fields) -> None:
        self.both(**{"do": "enqueue", "id": self.fresh_id(), **fields, **flaw})

    @rule(
        fields=some_slice,
        edge=some_edge,
        named=ids(*FINISHED) | st.sampled_from(["absent", "itself"]),
        last=st.booleans(),
    )
    def enqueue_with_a_doubtful_edge(self, fields: Fields, edge: str, named: str, last: bool) -> None:
        id_ = self.fresh_id()
        other = id_ if named == "itself" else named
        ends = [*fields[edge], other] if last else [other, *fields[edge]]
        self.both(**{"do": "enqueue", "id": id_, **fields, edge: ends})

    @rule(fields=some_slice, pick=st.integers(0, 9))
    def enqueue_between_two_that_are_in_order(self, fields: Fields, pick: int) -> None:
        """What waits for the later and is required by the earlier closes a circle."""
        entries = list(self.model.entries.values())
        pairs = [(one.id, other.id) for one in entries for other in entries if precedes(one, other)]
        if pairs:
            earlier, later = pairs[pick % len(pairs)]
            fields = {**fields, "depends_on": [later], "required_by": [earlier]}
        self.both(do="enqueue", id=self.fresh_id(), **fields)

    @has_slices
    @rule(fields=some_slice, id_=ids())
    def enqueue_again(self, fields: Fields, id_: str) -> None:
        self.both(do="enqueue", id=id_, **fields)

    @rule(
        batch=st.lists(some_slice, max_size=4),
        links=st.lists(st.tuples(st.integers(0, 3), some_edge, st.integers(0, 3)), max_size=3),
        flaw=st.none() | st.none() | st.sampled_from(FLAWS),
    )
    def enqueue_many(self, batch: list[Fields], links: list[tuple[int, str, int]], flaw: Fields | None) -> None:
        """Slices that name one another in any direction, now and then in a circle or with a flaw: all or none."""
        slices = [{"id": self.fresh_id(), **fields} for fields in batch]
        for one, edge, other in links:
            if max(one, other) < len(slices):
                slices[one][edge] = [*slices[one][edge], slices[other]["id"]]
        if flaw and slices:
            slices[-1].update(flaw)
        self.both(do="enqueue_many", slices=slices)

    # Sessions report.

    @has_sessions
    @rule(id_=ids(*OCCUPYING), phase=st.sampled_from(PHASES), url=some_url, times=st.sampled_from([1, 1, 1, 2]))
    def report(self, id_: str, phase: str, url: str, times: int) -> None:
        attempt = self.model.entries[id_].attempt
        for _ in range(times):
            self.both(do="report", id=id_, attempt=attempt, phase=phase, pull_request_url=url, error=f"{id_} broke")

    @rule(id_=ids(), attempt=st.integers(0, 3), phase=st.sampled_from(PHASES), url=some_url)
    def report_about_some_attempt(self, id_: str, attempt: int, phase: str, url: str) -> None:
        self.both(do="report", id=id_, attempt=attempt, phase=phase, pull_request_url=url, error="late")

    @has_sessions
    @rule(reports=st.lists(st.tuples(ids(*OCCUPYING), st.sampled_from(PHASES), some_url), min_size=2, max_size=6))
    def reports_at_once(self, reports: list[tuple[str, str, str]]) -> None:
        """What one report lets start may be told to stop, and have ended, before it was handed to the host."""
        steps = [
            {"do": "report", "id": id_, "attempt": attempt, "phase": phase, "pull_request_url": url, "error": "so"}
            for id_, phase, url in reports
            for attempt in (self.model.entries[id_].attempt, self.model.entries[id_].attempt + 1)
        ]
        self.both_at_once(steps)

    # Commands.

    @has_slices
    @rule(id_=ids(*UNFINISHED), url=some_url)
    def merge(self, id_: str, url: str) -> None:
        again = self.model.entries[id_].state == "merged"
        self.both(do="merge", id=id_, pull_request_url="" if again else url)
        if not again and self.model.entries[id_].state == "merged":
            assert self.driver.released == self.model.released

    @has_slices
    @rule(id_=ids(*FINISHED))
    def merge_too_late(self, id_: str) -> None:
        self.both(do="merge", id=id_)

    @has_slices
    @rule(id_=ids(*OCCUPYING))
    def cancel(self, id_: str) -> None:
        self.both(do="cancel", id=id_)

    @has_slices
    @rule(id_=ids("in_review", "failed"))
    def retry(self, id_: str) -> None:
        self.both(do="retry", id=id_)

    @has_slices
    @rule(id_=ids(*UNFINISHED), reason=st.sampled_from(["one", "another"]))
    def hold(self, id_: str, reason: str) -> None:
        self.both(do="hold", id=id_, reason=reason)

    @has_slices
    @rule(id_=ids("queued"))
    def release(self, id_: str) -> None:
        self.both(do="release", id=id_)

    @has_slices
    @rule(id_=ids(), do=st.sampled_from(["cancel", "retry", "hold", "release", "merge"]))
    def command_any(self, id_: str, do: str) -> None:
        self.both(do=do, id=id_)

    @rule(do=st.sampled_from(["cancel", "retry", "hold", "release", "merge"]))
    def command_nobody(self, do: str) -> None:
        self.both(do=do, id="absent")

    @rule()
    def pause(self) -> None:
        self.both(do="pause")

    @rule()
    def resume(self) -> None:
        self.both(do="resume")

    @rule(cores=st.integers(1, 5), load=st.sampled_from([0.0, 0.5, 1.7, 9.0]))
    def measure(self, cores: int, load: float) -> None:
        self.both(do="measure", cores=cores, load=load)

    @rule()
    def restart(self) -> None:
        self.both(do="restart")

    # Intents.

    @rule(intent=some_intent)
    def declare(self, intent: Fields) -> None:
        self.both(do="declare", intent=intent)

    @rule(intent=some_intent, id_=ids("queued"))
    def declare_urgent(self, intent: Fields, id_: str) -> None:
        self.both(do="declare", intent={**intent, "urgency": "urgent", "scope": id_})

    @rule(intent=some_intent)
    def reprioritize(self, intent: Fields) -> None:
        self.both(do="reprioritize", intent=intent)

    @rule(intent=some_intent)
    def route(self, intent: Fields) -> None:
        self.both(do="route", intent=intent, message="please")

    @rule(intent=some_intent, fields=some_slice, flaw=st.none() | st.sampled_from(FLAWS))
    def route_with_a_slice(self, intent: Fields, fields: Fields, flaw: Fields | None) -> None:
        new = {"id": self.fresh_id(), **fields, **(flaw or {})}
        self.both(do="route", intent=intent, message="please", new=new)


class OnMemory(ServiceMachine):
    def open_store(self) -> Store:
        return MemoryStore()


class OnSqlite(ServiceMachine):
    def open_store(self) -> str:
        self.folder = Path(tempfile.mkdtemp())
        return f"sqlite:///{self.folder}/graph.db"

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


class OnPostgres(ServiceMachine):
    def open_store(self) -> Store:
        return PostgresStore(emptied_database())


TestOnMemory = OnMemory.TestCase
TestOnMemory.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestOnSqlite = OnSqlite.TestCase
TestOnSqlite.settings = settings(max_examples=examples(15), stateful_step_count=30, deadline=None)
TestOnPostgres = OnPostgres.TestCase
TestOnPostgres.settings = settings(max_examples=examples(15), stateful_step_count=30, deadline=None)
