"""A worker's time on duty: made ready, started, drained at the first signal, ended by the second."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial

from dispatch.cli.ending import DONE, INCOMPLETE
from dispatch.cli.interrupts import Gate, Interrupts
from harness.fleet.errors import FleetError, NotReadyError
from harness.fleet.log import log_to_stderr
from harness.fleet.opening import Fleet, open_fleet
from harness.fleet.preflight import prepared
from harness.fleet.privacy import Redactor
from harness.fleet.worker import Worker

logger = logging.getLogger(__name__)


def work(slots: int, named: Sequence[str], drain_s: float, metrics_port: int | None, metrics_address: str) -> int:
    """The exit status: 0 after a clean drain, 1 if the worker could not go on or turns did not stop in time."""
    log_to_stderr(Redactor.of(os.environ))
    ready = prepared(os.environ, named)
    with _closing(ready.fleet), _metrics(ready.fleet, metrics_port, metrics_address):
        fleet = ready.fleet
        worker = Worker(fleet.authority, fleet.transport, ready.executors, fleet.settings, slots, fleet.joint)
        is_clean = _on_duty(worker, drain_s)
        if worker.problem is not None:
            logger.error("the worker could not go on: %s", worker.problem)
        if not is_clean:
            logger.error("turns were left behind; they are taken up again when their leases have run out")
            _leave(INCOMPLETE)  # their threads would keep the process
    return DONE if worker.problem is None else INCOMPLETE


def _on_duty(worker: Worker, drain_s: float) -> bool:
    """Whether all turns have ended."""
    interrupts = Interrupts(Gate())
    interrupts.defer()
    with interrupts.heeded():
        worker.start()
        logger.info("worker %s is ready for turns: %d at once", worker.owner, worker.slots)
        with _beside(interrupts, worker.wait):
            while not interrupts.count and not worker.is_draining:
                interrupts.rest(None)
            logger.info("no more turns are taken; %d under way", worker.busy)
            with _beside(interrupts, partial(worker.drain, drain_s)) as drained:
                while not drained.done():
                    if interrupts.count > 1:
                        logger.warning("ended at once; %d turns are left to their leases", worker.busy)
                        _leave(interrupts.status)
                    interrupts.rest(None)
    logger.info("the worker has ended")
    return drained.result()


@contextlib.contextmanager
def _beside(interrupts: Interrupts, call: Callable[[], bool]) -> Iterator[Future[bool]]:
    """Beside the block, a thread makes the call, and wakes who rests when it is through."""
    answer: Future[bool] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is wanted
            answer.set_exception(error)
        interrupts.wake()

    thread = threading.Thread(target=run, name="fleet-shift")
    thread.start()
    yield answer
    thread.join()


@contextlib.contextmanager
def _closing(fleet: Fleet) -> Iterator[Fleet]:
    try:
        yield fleet
    finally:
        with contextlib.suppress(FleetError):  # all is written down; a connection that is gone needs no closing
            fleet.close()


@contextlib.contextmanager
def _metrics(fleet: Fleet, port: int | None, address: str) -> Iterator[None]:
    """Served during the block, from connections of their own: to count takes a while, and turns are not to wait for it.
    Raises `NotReadyError`."""
    if port is None:
        yield
        return
    try:
        from harness.fleet.metrics import serve_metrics
    except ImportError as missing:
        raise NotReadyError(["--metrics-port needs prometheus-client: install slice-dispatch[metrics]"]) from missing
    with _closing(open_fleet(fleet.settings)) as apart:
        try:
            end = serve_metrics(apart.authority, apart.transport, port, address)
        except OSError as taken:
            problem = f"--metrics-port {port}: {taken.strerror}; name another port, or --metrics-address"
            raise NotReadyError([problem]) from taken
        try:
            yield
        finally:
            end()


def _leave(status: int) -> None:
    """End the process though threads run: nothing of theirs may be waited for."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
