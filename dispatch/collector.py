"""The garbage collector, kept out of the way where much is made and nothing is let go."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """While a whole graph is taken in, which makes no garbage: looking for some again and again takes as long as that.

    It is the whole process's: other threads' cycles wait meanwhile, for seconds at most.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
