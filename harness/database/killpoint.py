"""Named places at which a test can have the process killed, to see what a restart finds.

`DISPATCH_KILLPOINT=name:n` in the environment makes the process end itself with SIGKILL at the n-th passage of that
place. Without it a passage costs a comparison.
"""

from __future__ import annotations

import os
import signal

_name, _, _count = os.environ.get("DISPATCH_KILLPOINT", "").partition(":")
_left = int(_count or 1)


def killpoint(name: str) -> None:
    """Mark a place. Names are `<adapter>.<when>-<what>`, each used at one place only."""
    if _name and name == _name:
        _pass()


def _pass() -> None:
    global _left
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
