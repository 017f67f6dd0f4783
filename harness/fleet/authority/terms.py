"""In whose exceptions an authority's database is refused."""

from __future__ import annotations

from harness.database.terms import Terms
from harness.fleet.errors import FleetBrokenError, FleetError, FleetUnavailableError

TERMS: Terms[FleetError] = Terms(FleetBrokenError, FleetUnavailableError)
