"""What doctoring evidence takes: see `controls`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from benchmarks.crash.evidence import Evidence
from benchmarks.crash.plan import Plan

Doctor: TypeAlias = Callable[[Plan, Evidence], Evidence]


class UnsuitableError(Exception):
    """The round has nothing that could be doctored in that way."""


def first(found: Any) -> Any:
    for each in found:
        return each
    raise UnsuitableError
