"""The tables of a PostgreSQL store, in a schema of their own."""

from __future__ import annotations

from dispatch.store.refusals import TERMS
from harness.database.postgres_schema import SchemaKind
from harness.database.queries import migrations, named_blocks

SQL = named_blocks("dispatch.store", "postgres.sql")
STORE = SchemaKind(
    schema="dispatch",
    versions=("schema_version",),
    lock=7235441202855961448,  # 'dispatch' in ASCII
    migrations=migrations("dispatch.store", "postgres"),
    terms=TERMS,
    name="store",
    advice="`run` a plan first, or name another store",
    upgrade="`run` a plan on it once to bring it up to date",
    use="`run`",
    privileges="USAGE ON SCHEMA dispatch, and SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dispatch",
)
