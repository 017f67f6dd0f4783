"""In whose terms a database is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import attrs

E = TypeVar("E", bound=Exception)  #: what both of a user's exceptions are


@attrs.frozen
class Terms(Generic[E]):
    """Each makes an exception of one line that says what to do. `error`: the database can't be used as it is;
    `unavailable`: it is out of reach, full or locked, and the same may work later."""

    error: Callable[[str], E]
    unavailable: Callable[[str], E]
