"""What the transports on databases share about receipts: where a delivery is kept, and which are done with."""

from __future__ import annotations

from harness.fleet.errors import FleetBrokenError
from harness.fleet.ports import Receipt

VISIBILITY_S = 60.0  #: how long a receiver may say nothing before its deliveries are handed to others
_KEPT = 10_000  #: receipts that are remembered


def place_of(job_id: str, number: int) -> str:
    """Of a delivery and the number of its claim, which tells two claims at one instant apart."""
    return f"{number}/{job_id}"


def read_place(place: str) -> tuple[str, int]:
    number, slash, job_id = place.partition("/")
    if not (slash and number.isascii() and number.isdigit()):
        raise FleetBrokenError("the receipt is none of this transport's; acknowledge with the one that handed it out")
    return job_id, int(number)


class Settled:
    """The receipts that this client has asked to be acknowledged lately: if their delivery is gone, it is their doing.

    An answer may be lost after it was done, and the same asked again.
    """

    def __init__(self) -> None:
        self._receipts: dict[Receipt, None] = {}

    def add(self, receipt: Receipt) -> None:
        self._receipts[receipt] = None
        if len(self._receipts) > _KEPT:
            del self._receipts[next(iter(self._receipts))]

    def __contains__(self, receipt: Receipt) -> bool:
        return receipt in self._receipts
