"""What processes do with an authority while a test kills them or sets them against each other."""

from __future__ import annotations

import importlib
import os
import random
import threading
from collections.abc import Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

from harness.database import killpoint
from harness.fleet.authority.postgres import PostgresWorkItems
from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.commands import Claim, Command, Submit, Succeed
from harness.fleet.ports import Authority
from harness.fleet.work_item import Submission, WorkItem, WorkItemState
from tests.integration.store_child import LIMIT_S, Where

TTL_S = 600.0
STAGES = 4  #: of a life: nothing, submitted, begun, ended
ITEMS = ("a", "b", "c")  #: c waits for both others


def authority_at(where: Where) -> Authority:
    """One that waits for its server for as long as a busy machine may take."""
    return SqliteWorkItems(where) if isinstance(where, Path) else PostgresWorkItems(where, patience_s=LIMIT_S)


def stage_of(authority: Authority) -> int:
    """How far the life of all of them has come. Fails if any part of a stage is there without the rest."""
    found = authority.find(ITEMS)
    if not found:
        return 0
    states = [found[name].state.value for name in ITEMS]
    stage = {"ready ready submitted": 1, "running running submitted": 2, "succeeded succeeded ready": 3}[
        " ".join(states)
    ]
    outcomes = [outcome for name in ITEMS for outcome in authority.outcomes(name)]
    assert len(outcomes) == (2 if stage == 3 else 0)
    for item in found.values():
        is_held = item.state in (WorkItemState.LEASED, WorkItemState.RUNNING)
        assert (item.owner != "", item.expires_at > 0) == (is_held, is_held)
        assert (item.epoch, item.attempt) == ((1, 1) if stage > 1 and item.id != "c" else (0, 0))
    return stage


def next_stage(authority: Authority) -> None:
    """From where it stands."""
    match stage_of(authority):
        case 0:
            authority.perform([Submit(_submission(name)) for name in ITEMS])
        case 1:
            authority.perform([Claim(name, "t", "w", TTL_S, starts=True) for name in "ab"])
        case _:
            authority.perform([Succeed(item.lease, "done") for item in authority.find("ab").values()])


def _submission(name: str) -> Submission:
    return Submission(name, "t", f"session of {name}", "k", depends_on=("a", "b") if name == "c" else ())


def life(where: Where, pipe: Connection, name: str, passage: int) -> None:
    """All stages, ended at the given passage of a killpoint. It tells each that was acknowledged."""
    os.environ["DISPATCH_KILLPOINT"] = f"{name}:{passage}"
    importlib.reload(killpoint)
    with closing(authority_at(where)) as authority:
        for stage in range(1, STAGES):
            next_stage(authority)
            pipe.send(stage)


def crowd(where: Where, pipe: Connection, names: Sequence[str], notes: Path, seed: int) -> None:
    """Four threads, each with a client, that claim whatever is left of one session and end it. What is begun and ended
    is noted in a file, in single writes at its end."""
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def work(number: int) -> None:
        rng = random.Random(seed * 10 + number)
        with closing(authority_at(where)) as authority:
            left = list(names)
            while left:
                tried = rng.sample(left, min(8, len(left)))
                claims: list[Command] = [Claim(name, "t", f"w{seed}{number}", TTL_S, starts=True) for name in tried]
                for item in authority.perform(claims):
                    if isinstance(item, WorkItem):
                        os.write(file, f"+ {item.id} {item.token}\n".encode())
                        os.write(file, f"- {item.id} {item.token}\n".encode())
                        authority.perform([Succeed(item.lease)])
                ended = {item.id for item in authority.find(tried).values() if item.state is WorkItemState.SUCCEEDED}
                left = [name for name in left if name not in ended]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send("done")


def holder(where: Where, pipe: Connection, sessions: Sequence[tuple[str, str]]) -> None:
    """Locks sessions and keeps them until it is ended."""
    authority = authority_at(where)
    pipe.send(authority.lock_sessions(sessions))
    pipe.recv()
