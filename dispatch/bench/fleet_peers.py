"""Other task queues that do the same no-op turns: pgqueuer and procrastinate on PostgreSQL, huey on SQLite.

Each as its own documentation sets it up, with its own defaults: pgqueuer over asyncpg and uvloop, procrastinate with
its pool. They come with the extra `bench`, and nothing here is imported unless somebody asks for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import huey
import huey.signals
import procrastinate
import uvloop
from pgqueuer import AsyncpgDriver, Job, Queries, QueueManager

from dispatch.bench.fleet_member import Teller

_NOTHING = "nothing"


class Pgqueuer:
    """In the database at `place`, with a batch size."""

    work = f"{__name__}:work_pgqueuer"

    def __init__(self, place: str, batch: int) -> None:
        self.name, self.place, self.batch = f"pgqueuer {batch}", place, batch
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._connection = self._runner.run(asyncpg.connect(place))
        self._queries = Queries(AsyncpgDriver(self._connection))
        if not self._runner.run(self._queries.schema_is_installed()):
            self._runner.run(self._queries.install())

    def admit(self, names: Sequence[str]) -> None:
        if len(names) == 1:
            self._runner.run(self._queries.enqueue(_NOTHING, names[0].encode()))
        else:
            payloads = [name.encode() for name in names]
            self._runner.run(self._queries.enqueue([_NOTHING] * len(names), payloads, [0] * len(names)))

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()


def work_pgqueuer(place: str, batch: int, tell: Teller, over: threading.Event) -> None:
    """What is done is told when it has gone to the log."""

    async def nothing(job: Job) -> None:
        tell.started()

    async def work() -> None:
        connection = await asyncpg.connect(place)
        queries = Queries(AsyncpgDriver(connection))
        log_jobs = queries.log_jobs

        async def told(done: list[Any]) -> None:
            await log_jobs(done)
            tell.done(len(done))

        queries.log_jobs = told
        manager = QueueManager(queries)
        manager.entrypoint(_NOTHING)(nothing)
        running = asyncio.create_task(manager.run(batch_size=batch))
        tell.ready()
        await asyncio.to_thread(over.wait)
        manager.shutdown.set()
        await running

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


class Procrastinate:
    """In the database at `place`; `batch` is how many tasks a worker runs at once."""

    work = f"{__name__}:work_procrastinate"

    def __init__(self, place: str, batch: int) -> None:
        self.name, self.place, self.batch = "procrastinate", place, batch
        self._app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=place))
        self._nothing = self._app.task(_nothing, name=_NOTHING)
        self._app.open()
        self._app.schema_manager.apply_schema()

    def admit(self, names: Sequence[str]) -> None:
        if len(names) == 1:
            self._nothing.defer(name=names[0])
        else:
            self._nothing.batch_defer(*({"name": name} for name in names))

    def close(self) -> None:
        self._app.close()


async def _nothing(name: str) -> None:
    """The turn, as those who only admit it know it."""


def work_procrastinate(place: str, batch: int, tell: Teller, over: threading.Event) -> None:
    """What is done is told when its end is noted."""

    async def nothing(name: str) -> None:
        tell.started()

    async def work() -> None:
        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=place))
        app.task(nothing, name=_NOTHING)
        finish_job = app.job_manager.finish_job

        async def told(**ending: Any) -> None:
            await finish_job(**ending)
            tell.done(1)

        app.job_manager.finish_job = told
        async with app.open_async():
            running = asyncio.create_task(app.run_worker_async(concurrency=batch, install_signal_handlers=False))
            tell.ready()
            await asyncio.to_thread(over.wait)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(work())


class Huey:
    """A file in the folder at `place`; `batch` is how many threads a consumer has."""

    work = f"{__name__}:work_huey"

    def __init__(self, folder: str, batch: int) -> None:
        self.name, self.place, self.batch = "huey", str(Path(folder, "huey.db")), batch
        self._queue = _huey(self.place)
        self._task = self._queue.task(name=_NOTHING)(lambda name: None)

    def admit(self, names: Sequence[str]) -> None:
        for name in names:  # it knows no other way
            self._task(name)

    def close(self) -> None:
        self._queue.storage.close()


def work_huey(place: str, batch: int, tell: Teller, over: threading.Event) -> None:
    """What is done is told when its worker has gone through with it."""
    queue = _huey(place)
    queue.task(name=_NOTHING)(lambda name: tell.started())
    queue.signal(huey.signals.SIGNAL_COMPLETE)(lambda signal, task: tell.done(1))
    consumer = queue.create_consumer(workers=batch, periodic=False)
    consumer.start()
    tell.ready()
    over.wait()
    consumer.stop(graceful=True)


def _huey(place: str) -> Any:
    return huey.SqliteHuey("bench", filename=place, fsync=True, results=False)
