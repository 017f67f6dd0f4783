"""What is nobody's fault and passes: a full disk, a main that is being renamed. It is waited for, within limits."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import attrs

from harness.local.errors import GitError, RepositoryError
from harness.text import sanitize

ROOM_LIMIT_S = 600.0  #: for somebody to make room
MAIN_LIMIT_S = 5.0  #: a branch is renamed, or made anew by a script, in far less
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 20.0
FULL = re.compile(r"No space left on device|Disk quota exceeded")
PATH_LIMIT = 200


class MainGoneError(RepositoryError):
    """The branch to merge into isn't there now."""

    def __init__(self, main: str) -> None:
        super().__init__(f"branch {main!r} is gone; make it again with: git branch")


@attrs.frozen
class Passing:
    """What a session waits for, in words, and for how long at most."""

    words: str
    limit_s: float


def passing(error: Exception, place: Path) -> Passing | None:
    """What is to be waited for before the step that met the error is tried again; None if waiting is of no use.

    `place` is where room is taken to be lacking if the error doesn't say.
    """
    match error:
        case MainGoneError():
            return Passing(f"waits: {error}", MAIN_LIMIT_S)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            where = str(error.filename or place)
        case GitError() if FULL.search(error.said):
            where = str(place)
        case _:
            return None
    return Passing(f"waits: no space left on {sanitize(where, PATH_LIMIT)}", ROOM_LIMIT_S)


@attrs.frozen
class Tries:
    """How often a step has been tried in vain, and since when, in seconds of the monotonic clock."""

    since: float
    count: int = 0

    def pause_s(self, now: float, limit_s: float) -> float:
        """How long to wait before the next one; 0 or less if there is to be none."""
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(self.count, 30), LONGEST_PAUSE_S)
        return min(pause_s, self.since + limit_s - now)
