"""What is tried: each trial troubles a stage for a while, waits for the end, and tells what it saw."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator

import attrs
from confluent_kafka import Producer

from benchmarks.fencing.chore import Chore
from benchmarks.members.stage import Stage
from harness.fleet.envelope import encode
from harness.fleet.errors import FleetUnavailableError, QueueFullError
from harness.fleet.opening import open_transport
from harness.fleet.queue import TurnQueue
from harness.fleet.settings import FleetSettings
from harness.fleet.transport.kafka import KafkaQueue, KafkaTransport
from harness.fleet.transport.kafka_cluster import TOPIC, KafkaCluster
from harness.fleet.transport.kafka_producer import KafkaProducer, _Request
from harness.fleet.work_item import WorkItem, WorkItemState
from tests.tcp_proxy import Flow, TcpProxy

SESSIONS = 12
FEWEST, MOST = 2, 6  #: workers, while they come and go
PARTITIONS = (8, 16, 24)  #: of the topic: at first, after a third of the time, and after another
DUPLICATES = 0.25  #: of each delivery, this many more at once, and as many again a while later
CALM_S = 20.0  #: from the last that came or went, until the group has to be calm
WATCHED_S = 30.0  #: for so long it is watched then
NOTICED_S = 40.0  #: by then members have seen that the topic has grown, and shared out what is new
PER_CHANGE = 3  #: rebalances that a member may cause which comes or goes: cooperative ones go by two steps
PLENTY = 10_000
ANSWER_S = 1.0  #: after so long without an answer, who submits gives up


@attrs.define
class Report:
    """What a trial saw, line by line, and what should not have been."""

    name: str
    seen: dict[str, object] = attrs.field(factory=dict)
    problems: list[str] = attrs.field(factory=list)

    def expect(self, is_so: bool, problem: str) -> None:
        if not is_so:
            self.problems.append(problem)


def concluded(stage: Stage, report: Report) -> Report:
    """The end is waited for, and judged."""
    stage.settle()
    verdict, handed, doubles = stage.verdict(), stage.handed(), stage.doubles()
    report.seen |= {
        "turns": len(stage.accepted),
        "deliveries, records, jobs": f"{handed.deliveries}, {handed.records}, {handed.jobs}",
        "deliveries more than jobs": handed.again,
        "workers that ended by themselves": dict(stage.exits),
        "effects": sum(note.what == "effect" for note in stage.workers.notes()),
        "effects had twice": len(doubles),
        "violations": len(verdict.violations),
    }
    report.problems += [f"had twice: {note}" for note in doubles[:20]]
    report.problems += [f"{code}: {text}" for code, text in verdict.violations[:20]]
    return report


# -- members come and go -----------------------------------------------------------------------------------------------


def churn(stage: Stage, seconds: float, seed: int, calm_s: float = CALM_S, watched_s: float = WATCHED_S) -> Report:
    """Turns are submitted, and delivered more often than that, while workers join, drain and are killed, and the topic
    grows. Then nobody comes or goes for a while."""
    report, rng = Report("members come and go"), random.Random(seed)
    stream = _Stream(stage, rng.randrange(2**32))
    stream.start()
    try:
        changes = _come_and_go(stage, seconds, rng, report)
        stage.until(lambda: False, calm_s)
        during, calm = stage.rebalances(), time.monotonic() + watched_s
        stage.until(lambda: time.monotonic() > calm, watched_s + 1)
        after = stage.rebalances() - during
    finally:
        stream.stop()
    report.seen |= {
        "rebalances meanwhile": during.total(),
        "of them, by reason": ", ".join(f"{number} {why}" for why, number in during.most_common()),
        f"rebalances in {watched_s:.0f} calm seconds": after.total(),
        "longest time in which no turn began, s": round(_longest_pause(stage), 1),
        "deliveries planted twice": stream.planted,
    }
    report.expect(during.total() >= changes / 3, f"only {during.total()} rebalances were seen of {changes} changes")
    report.expect(during.total() <= PER_CHANGE * changes, f"a storm: {during.total()} rebalances of {changes} changes")
    noticing = 2 if seconds / len(PARTITIONS) + calm_s < NOTICED_S else 0
    report.expect(after.total() <= noticing, f"the group was not calm: {dict(after)}")
    return concluded(stage, report)


def _come_and_go(stage: Stage, seconds: float, rng: random.Random, report: Report) -> int:
    """How many did, the members of the beginning and grown topics among them."""
    began, grown = time.monotonic(), 1
    changes = {"workers at first": len(stage.workers.running), "joined": 0, "drained": 0, "killed": 0, "topic grown": 0}
    while (share := (time.monotonic() - began) / seconds) < 1:
        time.sleep(rng.uniform(1.0, 4.0))
        if grown < len(PARTITIONS) and share >= grown / len(PARTITIONS):
            _grow(stage, PARTITIONS[grown])
            grown, changes["topic grown"] = grown + 1, changes["topic grown"] + 1
        running = stage.workers.running
        if len(running) <= FEWEST or (len(running) < MOST and rng.random() < 0.5):
            stage.workers.start()
            changes["joined"] += 1
        elif rng.random() < 0.5:
            stage.workers.drain(rng.choice(running))
            changes["drained"] += 1
        else:
            stage.workers.kill(rng.choice(running))
            changes["killed"] += 1
        stage.mind()
    report.seen |= changes
    return sum(changes.values())


def _grow(stage: Stage, partitions: int) -> None:
    """As whoever sets AGENT_TURNS_PARTITIONS to more does."""
    more = stage.grounds.direct | {"AGENT_TURNS_PARTITIONS": str(partitions)}
    open_transport(FleetSettings.of(more)).close()


def _longest_pause(stage: Stage) -> float:
    begun = sorted(note.written_at for note in stage.workers.notes() if note.what == "start")
    return max((later - earlier for earlier, later in itertools.pairwise(begun)), default=0.0)


class _Stream:
    """A thread that submits turns until it is stopped, and puts deliveries of theirs beside, now and later."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage, self._rng, self._stopped = stage, random.Random(seed), threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": stage.broker.bootstrap, "partitioner": "murmur2_random", "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run, name="stream")
        self.planted = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(30.0) == 0

    def _run(self) -> None:
        last: list[WorkItem] = []
        for number in _numbers(self._stopped):
            chore = Chore(*self._rng.choice([(1, 0.0), (3, 0.01), (2, 0.7)]))
            submission = self._stage.submission(f"turn-{number}", f"s-{self._rng.randrange(SESSIONS)}", chore)
            while not self._stopped.is_set():
                try:
                    last.append(self._stage.accept(submission, chore))
                    break
                except (QueueFullError, FleetUnavailableError):
                    self._stopped.wait(0.05)
            for item in last[-1:], last[:1]:
                self._plant(item)
            last = last[-50:]
            self._stopped.wait(0.15)

    def _plant(self, items: list[WorkItem]) -> None:
        for item in items:
            if self._rng.random() < DUPLICATES:
                value = encode(item.envelope(time.time()))
                self._producer.produce(TOPIC, value, item.session_id.encode())
                self.planted += 1
        self._producer.poll(0)


def _numbers(stopped: threading.Event) -> Iterator[int]:
    number = 0
    while not stopped.is_set():
        yield number
        number += 1


# -- acknowledgements are lost -----------------------------------------------------------------------------------------


class _Forgetful(KafkaProducer):
    """Of its next flush requests get through the proxy, and answers don't. `lose` returns once the records are there;
    then the connection ends, so that it asks again, or nothing comes for so long that it gives up."""

    lose: Callable[[], None] | None = None
    is_cut = False

    def __init__(self, queue: KafkaQueue, cluster: KafkaCluster, proxy: TcpProxy) -> None:
        super().__init__(queue, cluster)
        self._proxy = proxy

    def _produce(self, request: _Request) -> None:
        if self.lose is not None:
            self._proxy.down = Flow.SWALLOW
            for link in self._proxy.links:
                link.set(down=Flow.SWALLOW)
        super()._produce(request)

    def _flush(self) -> None:
        lose, self.lose = self.lose, None
        if lose is None:
            return super()._flush()
        try:
            lose()
            if self.is_cut:
                self._mend()
            super()._flush()
        finally:
            self._mend()

    def _mend(self) -> None:
        self._proxy.down = Flow.PASS
        self._proxy.reset()
        self._proxy.links.clear()


def lost_answers(stage: Stage, losses: int, workers: int) -> Report:
    """Who submits is not told that its records are there: half of the time the connection ends, and half of the time
    nothing comes until it gives up. It submits again until it is told. Workers start when all is submitted, so that
    what is submitted again is delivered again."""
    report, chore = Report("acknowledgements of records are lost"), Chore(1, 0.0)
    place = stage.by_the_proxy(ANSWER_S)
    given_up = 0
    with contextlib.closing(KafkaTransport(place)) as transport:
        transport._producer = producer = _Forgetful(place, transport._cluster, stage.proxy)
        queue = TurnQueue(stage.fleet.authority, transport, PLENTY)
        for number in range(losses):
            for name in (f"told-{number}", f"lost-{number}"):  # the first has the producer connected
                submission = stage.submission(name, f"s-{number % SESSIONS}", chore)
                if name.startswith("lost"):
                    depth = stage.fleet.transport.depth()
                    producer.is_cut, producer.lose = bool(number % 2), functools.partial(_arrived, stage, depth)
                tries = _tries(functools.partial(queue.submit, submission))
                given_up += name.startswith("lost") and tries > 1
                stage.accepted[submission.id] = chore.effects
        queue.flush()
    report.seen |= {"answers lost": losses, "of them, submissions that came again": given_up}
    for _ in range(workers):
        stage.workers.start()
    concluded(stage, report)
    handed = stage.handed()
    report.expect(given_up >= losses // 3, f"only {given_up} of {losses} submissions were not told")
    report.expect(handed.records > handed.jobs, "no record came twice: no answer was lost that mattered")
    return report


def _arrived(stage: Stage, depth: int) -> None:
    """Until there is more than that: then the record is there for sure."""
    assert stage.until(lambda: stage.fleet.transport.depth() > depth, 30.0), "what was put never came"


def _tries(submit: Callable[[], object]) -> int:
    for tries in itertools.count(1):
        try:
            submit()
        except (QueueFullError, FleetUnavailableError):
            continue
        return tries
    raise AssertionError


# -- turns that kill their worker --------------------------------------------------------------------------------------


def deadly(stage: Stage, turns: int, deaths: int) -> Report:
    """Each takes along its worker whenever it is tried; two good ones of its session lie behind it."""
    report = Report("turns that kill their worker")
    bad, good = Chore(1, 0.0, deaths=deaths), Chore(2, 0.05)
    for number in range(turns):
        session = f"s-{number}"
        stage.accept(stage.submission(f"deadly-{number}", session, bad, deaths), bad)
        for place in range(2):
            stage.accept(stage.submission(f"good-{number}-{place}", session, good), good)
    concluded(stage, report)
    dead = [stage.item(f"deadly-{number}") for number in range(turns)]
    fine = [stage.item(f"good-{number}-{place}") for number in range(turns) for place in range(2)]
    attempts = sum(note.what == "start" and note.item.startswith("deadly") for note in stage.workers.notes())
    report.seen |= {
        "deadly turns, tries each": f"{turns}, {deaths}",
        "deaths": attempts,
        "dead letters": sum(item.state is WorkItemState.DEAD_LETTER for item in dead),
        "good turns behind them that succeeded": sum(item.state is WorkItemState.SUCCEEDED for item in fine),
    }
    report.problems += [
        f"{item.id} is {item.state.value}" for item in dead if item.state is not WorkItemState.DEAD_LETTER
    ]
    report.problems += [
        f"{item.id} is {item.state.value}" for item in fine if item.state is not WorkItemState.SUCCEEDED
    ]
    return report
