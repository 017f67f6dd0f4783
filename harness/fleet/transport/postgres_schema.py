"""The tables of a PostgreSQL queue."""

from __future__ import annotations

from harness.database.postgres_schema import SchemaKind
from harness.database.queries import migrations, named_blocks
from harness.database.terms import Terms
from harness.fleet.errors import FleetBrokenError, FleetError, FleetUnavailableError

SQL = named_blocks("harness.fleet.transport", "postgres.sql")
TERMS: Terms[FleetError] = Terms(FleetBrokenError, FleetUnavailableError)
QUEUE = SchemaKind(
    schema="agent_dispatch",
    versions=("queue_version", "authority_version"),
    lock=7018690069354607360,  # 'agentqs', in ASCII, and a zero
    migrations=migrations("harness.fleet.transport", "postgres"),
    terms=TERMS,
    name="queue",
    advice="start a worker on it first, or name another database",
    upgrade="start a worker on it once to bring it up to date",
    use="start a worker",
    privileges="USAGE ON SCHEMA agent_dispatch, and SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN it",
)
