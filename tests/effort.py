"""How hard tests with generated cases try. `tests/README.md` says what the variable is for."""

from __future__ import annotations

import os

EFFORT = int(os.environ.get("TEST_EFFORT", "1"))


def examples(usual: int) -> int:
    """How many cases to generate, where `usual` is what every run of the suite can afford."""
    return usual * EFFORT
