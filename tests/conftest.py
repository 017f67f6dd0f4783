"""Settings of all tests with generated cases: the same cases in every run, unless a run is to find new ones."""

from __future__ import annotations

from hypothesis import settings

from tests.effort import EFFORT

# No deadline: how long a case takes says more of the machine's other work than of ours.
settings.register_profile("steady", derandomize=EFFORT == 1, deadline=None, print_blob=EFFORT > 1)
settings.load_profile("steady")
