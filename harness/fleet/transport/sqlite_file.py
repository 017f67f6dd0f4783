"""The file of a SQLite queue."""

from __future__ import annotations

from harness.database.queries import migrations
from harness.database.sqlite_file import FileKind
from harness.database.terms import Terms
from harness.fleet.errors import FleetBrokenError, FleetError, FleetUnavailableError

TERMS: Terms[FleetError] = Terms(FleetBrokenError, FleetUnavailableError)
QUEUE = FileKind(
    application_id=0x51C3D1F1,
    migrations=migrations("harness.fleet.transport", "sqlite"),
    terms=TERMS,
    name="queue",
    advice="put a turn into it first, or name another queue",
    upgrade="start a worker on it once to bring it up to date",
    orphan="a delivery's entry is gone; report this as a defect",
)
