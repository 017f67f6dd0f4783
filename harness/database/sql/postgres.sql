-- What is said to any PostgreSQL database, by name. `{schema}` and `{version}` stand for names that the program has
-- chosen: its schema, and the table in it that tells the version.

-- name: begin
-- Not READ WRITE: a database that its administrator has made read-only is to stay so.
BEGIN ISOLATION LEVEL READ COMMITTED

-- name: begin_reading
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: limit
-- How long this transaction may wait, in milliseconds: for a lock, for a statement, for us. Its commit is on the disk
-- when it returns, whatever the role's default.
SELECT
    set_config('lock_timeout', $1, true),
    set_config('statement_timeout', $2, true),
    set_config('idle_in_transaction_session_timeout', $2, true),
    set_config('synchronous_commit',
        CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
        true)

-- name: limit_session
-- The same for all that follows on a connection to the server process $3: one row, or none if this isn't that process.
-- A pooler makes the number up, and may hand this connection to somebody else, who wants none of these limits.
SELECT
    set_config('lock_timeout', $1, false),
    set_config('statement_timeout', $2, false),
    set_config('idle_in_transaction_session_timeout', $2, false),
    set_config('synchronous_commit',
        CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
        false)
WHERE pg_backend_pid() = $3::integer

-- name: look_around
-- Whose database this is, asked of the catalogs, which need no privileges. $3 are the names of all tables that may tell
-- a version in this schema.
SELECT
    getdatabaseencoding(),
    current_database(),
    current_user,
    EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1),
    EXISTS (
        SELECT 1 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relname = $2
    ),
    EXISTS (
        SELECT 1 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = $1
        HAVING NOT bool_or(c.relname = ANY ($3::text[]))
    ),
    CASE
        WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1)
        THEN has_schema_privilege($1, 'CREATE')
        ELSE has_database_privilege(current_database(), 'CREATE')
    END

-- name: find_version
SELECT version FROM {schema}.{version}

-- name: lock_schema
-- Of those who would migrate at once, one does.
SELECT pg_advisory_xact_lock($1::bigint)

-- name: make_schema
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: set_version
WITH gone AS (DELETE FROM {schema}.{version})
INSERT INTO {schema}.{version} (version) VALUES ($1::integer)
