"""What a worker's log looks like: a time in UTC, a level, a line; no path, host or user, not even in a traceback."""

from __future__ import annotations

import logging
import math
import sys
import time
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import TextIO

from harness.fleet.privacy import Redactor

FRAMES = 20  #: of a traceback, the innermost
AGAIN_S = 60.0  #: before the same warning is written again
KEPT = 100  #: warnings that are remembered
CAUSES = 5  #: of an exception, and of each of them

_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class PrivateFormatter(logging.Formatter):
    """A traceback's frames are modules, functions and lines; whatever text there is goes through the redactor."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # another handler's, with everything in it
        try:
            return self._redactor.redacted(super().format(record))
        finally:
            record.exc_text = None

    def formatException(self, ei: _ExceptionInfo) -> str:  # noqa: N802 - the name is logging's
        return "\n".join(_lines(ei[1])) if ei[1] is not None else ""


class Once(logging.Filter):
    """Lets a warning through that was not said in the last `again_s` seconds, with how often it would have been since.

    What is out of reach is tried again twice a second, for hours perhaps. Errors and news pass as they are.
    """

    def __init__(self, again_s: float = AGAIN_S) -> None:
        super().__init__()
        self._again_s = again_s
        self._said: dict[str, tuple[float, int]] = {}  # when, and how often it was not since

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING or record.exc_info:
            return True
        words = record.getMessage()
        at, unsaid = self._said.pop(words, (-math.inf, 0))
        if record.created - at < self._again_s:
            self._said[words] = (at, unsaid + 1)
            return False
        self._said[words] = (record.created, 0)
        while len(self._said) > KEPT:
            del self._said[next(iter(self._said))]
        if unsaid:
            record.msg, record.args = f"{words} (and {unsaid:,} times since it was last said)", None
        return True


def _lines(error: BaseException) -> Iterator[str]:
    chain: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in chain and len(chain) <= CAUSES:
        chain.append(step)
        step = step.__cause__ or (None if step.__suppress_context__ else step.__context__)
    for number, each in enumerate(chain):
        yield f"  {'caused by ' if number else ''}{type(each).__name__}: {' '.join(str(each).split())}"
        for frame, line in list(traceback.walk_tb(each.__traceback__))[-FRAMES:]:
            yield f"    in {frame.f_globals.get('__name__', '?')}, {frame.f_code.co_name}, line {line}"


def log_to(stream: TextIO, redactor: Redactor) -> None:
    """Everything that the process logs from `INFO` on, and nothing else, goes to the stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PrivateFormatter(redactor))
    handler.addFilter(Once())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def log_to_stderr(redactor: Redactor) -> None:
    log_to(sys.stderr, redactor)
