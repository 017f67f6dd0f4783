-- What the PostgreSQL adapter says to its database, by name. Nothing here outlives its transaction, so that a pooler may
-- hand the connection to somebody else after each. Every name is qualified: the search path is the user's. Rows that
-- come in bulk arrive as one array for each column, in the order in which the codec gives them. A row that comes alone,
-- as in most batches, has a statement of its own: to take an array apart for each of its columns costs the server more
-- than to write it.

-- name: graph_names
-- Of those that were ever written.
SELECT name FROM dispatch.graphs WHERE graph_id IS NOT NULL ORDER BY name COLLATE "C"

-- name: find_graph
-- With its claim, and Unix seconds by the database's clock.
SELECT
    coalesce($2::double precision, extract(epoch FROM clock_timestamp())::double precision),
    g.key, g.graph_id, g.paused, c.token, c.pid, c.started, c.boot, c.pid_namespace, c.epoch, c.since, c.expires_at
FROM (SELECT) AS always
LEFT JOIN dispatch.graphs AS g ON g.name = $1
LEFT JOIN dispatch.claims AS c ON c.graph = g.key

-- name: add_graph
INSERT INTO dispatch.graphs (name) VALUES ($1) ON CONFLICT (name) DO NOTHING

-- name: lock_graph
-- Those who would claim it at once come one after the other.
SELECT key FROM dispatch.graphs WHERE name = $1 FOR NO KEY UPDATE

-- name: take_claim
INSERT INTO dispatch.claims (
    graph, epoch, token, since, expires_at, pid, started, boot, pid_namespace, incarnation, written
) VALUES (
    $1::integer, $2::bigint, $3, $4::double precision, $5::double precision, $6::bigint, $7::bigint, $8, $9, 1, 0
)
ON CONFLICT (graph) DO UPDATE SET
    epoch = excluded.epoch, token = excluded.token, since = excluded.since, expires_at = excluded.expires_at,
    pid = excluded.pid, started = excluded.started, boot = excluded.boot, pid_namespace = excluded.pid_namespace,
    incarnation = excluded.incarnation, written = excluded.written

-- name: check_claim
SELECT 1 FROM dispatch.claims WHERE graph = $1::integer AND epoch = $2::bigint AND token = $3

-- name: move_claim
-- The division fails if the claim is not ours any more.
WITH mine AS (
    UPDATE dispatch.claims
    SET expires_at = coalesce($5::double precision, extract(epoch FROM clock_timestamp())::double precision)
        + $6::double precision
    WHERE graph = $1::integer AND epoch = $2::bigint AND token = $3 AND incarnation = $4::bigint
    RETURNING 1
)
SELECT 1 / count(*) FROM mine

-- name: give_up_claim
WITH mine AS (
    UPDATE dispatch.claims SET expires_at = 0
    WHERE graph = $1::integer AND epoch = $2::bigint AND token = $3 AND incarnation = $4::bigint
    RETURNING 1
)
SELECT 1 / count(*) FROM mine

-- name: count_batch
-- The proof of ownership of a writing transaction, and its last statement before the commit, so that the claim's row is
-- locked for a moment only. The division fails, and with it the transaction, if the claim is not ours any more, if the
-- connection is not the owner's newest, or if the batch is not the one that follows.
WITH mine AS (
    UPDATE dispatch.claims SET written = $5::bigint
    WHERE graph = $1::integer AND epoch = $2::bigint AND token = $3 AND incarnation = $4::bigint
        AND written = $5::bigint - 1
    RETURNING 1
)
SELECT 1 / count(*), pg_notify('dispatch', $1::text) FROM mine

-- name: listen
-- To the numbers of graphs that a batch was written of.
LISTEN dispatch

-- name: come_back
-- A new connection of the same owner. What an earlier one still has on its way can't be committed after this.
UPDATE dispatch.claims SET incarnation = incarnation + 1
WHERE graph = $1::integer AND epoch = $2::bigint AND token = $3
RETURNING incarnation, written

-- name: write_graph
UPDATE dispatch.graphs SET graph_id = $2, paused = $3 WHERE key = $1::integer

-- name: write_slices
INSERT INTO dispatch.slices (
    seq, state, attempt, closes, turns, branch, pull_request_url, error, checkpoint, hold, canceling, stopping, ran_s,
    enqueued_at, started_at, ended_at, graph, id
)
SELECT
    seq, state, attempt, closes, turns, branch, pull_request_url, error, checkpoint, hold, canceling, stopping, ran_s,
    enqueued_at, started_at, ended_at, $1::integer, id
FROM unnest(
    $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::smallint[], $13::smallint[], $14::double precision[], $15::double precision[],
    $16::double precision[], $17::double precision[], $18::text[]
) AS new (
    seq, state, attempt, closes, turns, branch, pull_request_url, error, checkpoint, hold, canceling, stopping, ran_s,
    enqueued_at, started_at, ended_at, id
)
ON CONFLICT (graph, id) DO UPDATE SET
    seq = excluded.seq, state = excluded.state, attempt = excluded.attempt, closes = excluded.closes,
    turns = excluded.turns, branch = excluded.branch, pull_request_url = excluded.pull_request_url,
    error = excluded.error, checkpoint = excluded.checkpoint, hold = excluded.hold, canceling = excluded.canceling,
    stopping = excluded.stopping, ran_s = excluded.ran_s, enqueued_at = excluded.enqueued_at,
    started_at = excluded.started_at, ended_at = excluded.ended_at

-- name: write_slice
INSERT INTO dispatch.slices (
    seq, state, attempt, closes, turns, branch, pull_request_url, error, checkpoint, hold, canceling, stopping, ran_s,
    enqueued_at, started_at, ended_at, graph, id
) VALUES (
    $1::bigint, $2, $3::bigint, $4::bigint, $5::bigint, $6, $7, $8, $9, $10, $11::smallint, $12::smallint,
    $13::double precision, $14::double precision, $15::double precision, $16::double precision, $17::integer, $18
)
ON CONFLICT (graph, id) DO UPDATE SET
    seq = excluded.seq, state = excluded.state, attempt = excluded.attempt, closes = excluded.closes,
    turns = excluded.turns, branch = excluded.branch, pull_request_url = excluded.pull_request_url,
    error = excluded.error, checkpoint = excluded.checkpoint, hold = excluded.hold, canceling = excluded.canceling,
    stopping = excluded.stopping, ran_s = excluded.ran_s, enqueued_at = excluded.enqueued_at,
    started_at = excluded.started_at, ended_at = excluded.ended_at

-- name: write_specs
INSERT INTO dispatch.specs (spec, graph, id)
SELECT spec, $1::integer, id FROM unnest($2::text[], $3::text[]) AS new (spec, id)
ON CONFLICT (graph, id) DO NOTHING

-- name: rewrite_specs
INSERT INTO dispatch.specs (spec, graph, id)
SELECT spec, $1::integer, id FROM unnest($2::text[], $3::text[]) AS new (spec, id)
ON CONFLICT (graph, id) DO UPDATE SET spec = excluded.spec

-- name: copy_slices
COPY dispatch.slices (
    seq, state, attempt, closes, turns, branch, pull_request_url, error, checkpoint, hold, canceling, stopping, ran_s,
    enqueued_at, started_at, ended_at, graph, id
) FROM STDIN

-- name: copy_specs
COPY dispatch.specs (spec, graph, id) FROM STDIN

-- name: write_attempts
INSERT INTO dispatch.attempts (branch, started_at, ended_at, outcome, detail, checkpoint, graph, slice_id, attempt)
SELECT branch, started_at, ended_at, outcome, detail, checkpoint, $1::integer, slice_id, attempt
FROM unnest(
    $2::text[], $3::double precision[], $4::double precision[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::bigint[]
) AS new (branch, started_at, ended_at, outcome, detail, checkpoint, slice_id, attempt)
ON CONFLICT (graph, slice_id, attempt) DO UPDATE SET
    branch = excluded.branch, started_at = excluded.started_at, ended_at = excluded.ended_at,
    outcome = excluded.outcome, detail = excluded.detail, checkpoint = excluded.checkpoint

-- name: write_attempt
INSERT INTO dispatch.attempts (branch, started_at, ended_at, outcome, detail, checkpoint, graph, slice_id, attempt)
VALUES ($1, $2::double precision, $3::double precision, $4, $5, $6, $7::integer, $8, $9::bigint)
ON CONFLICT (graph, slice_id, attempt) DO UPDATE SET
    branch = excluded.branch, started_at = excluded.started_at, ended_at = excluded.ended_at,
    outcome = excluded.outcome, detail = excluded.detail, checkpoint = excluded.checkpoint

-- name: write_intents
INSERT INTO dispatch.intents (seq, intent, attached, graph, id)
SELECT seq, intent, attached, $1::integer, id
FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[]) AS new (seq, intent, attached, id)
ON CONFLICT (graph, id) DO UPDATE SET
    seq = excluded.seq, intent = excluded.intent, attached = excluded.attached

-- name: forget_intents
DELETE FROM dispatch.intents WHERE graph = $1::integer AND id = ANY ($2::text[])

-- name: read_slices
SELECT
    id, seq, state, attempt, closes, turns, branch, pull_request_url, error, checkpoint, hold, canceling, stopping,
    ran_s, enqueued_at, started_at, ended_at
FROM dispatch.slices WHERE graph = $1::integer

-- name: read_specs
-- Not joined to the slices: where the server's statistics know other graphs but not yet this one, it takes it for one of
-- a row or two, and may well look at each of its specs for each of its slices.
SELECT id, spec FROM dispatch.specs WHERE graph = $1::integer

-- name: read_attempts
SELECT slice_id, attempt, branch, started_at, ended_at, outcome, detail, checkpoint
FROM dispatch.attempts WHERE graph = $1::integer ORDER BY slice_id COLLATE "C", attempt

-- name: read_intents
SELECT id, intent, seq, attached FROM dispatch.intents WHERE graph = $1::integer ORDER BY seq, id COLLATE "C"

-- name: write_entries
INSERT INTO dispatch.log (epoch, at, cap, suspended, kind, input, decisions, graph, seq)
SELECT epoch, at, cap, suspended, kind, input, decisions, $1::integer, seq
FROM unnest(
    $2::bigint[], $3::double precision[], $4::bigint[], $5::smallint[], $6::text[], $7::text[], $8::text[], $9::bigint[]
) AS new (epoch, at, cap, suspended, kind, input, decisions, seq)
ON CONFLICT (graph, seq) DO NOTHING

-- name: write_entry
INSERT INTO dispatch.log (epoch, at, cap, suspended, kind, input, decisions, graph, seq)
VALUES ($1::bigint, $2::double precision, $3::bigint, $4::smallint, $5, $6, $7, $8::integer, $9::bigint)
ON CONFLICT (graph, seq) DO NOTHING

-- name: write_keyframe
INSERT INTO dispatch.keyframes (graph, seq, at, content)
VALUES ($1::integer, $2::bigint, $3::double precision, $4::bytea)
ON CONFLICT (graph, seq) DO NOTHING

-- name: read_last_entry
-- Its number. Where all has been pruned, that of the keyframe that stands for it.
SELECT greatest(
    0::bigint,
    (SELECT max(seq) FROM dispatch.log WHERE graph = $1::integer),
    (SELECT max(seq) FROM dispatch.keyframes WHERE graph = $1::integer)
)

-- name: read_keyframes
SELECT seq, at FROM dispatch.keyframes WHERE graph = $1::integer ORDER BY seq

-- name: read_keyframe
SELECT seq, at, content FROM dispatch.keyframes WHERE graph = $1::integer AND seq = $2::bigint

-- name: read_entries
SELECT seq, epoch, at, cap, suspended, kind, input, decisions FROM dispatch.log
WHERE graph = $1::integer AND seq > $2::bigint AND $3::text IN ('', kind) ORDER BY seq LIMIT $4::bigint

-- name: prune_entries
WITH gone AS (
    DELETE FROM dispatch.log WHERE graph = $1::integer AND seq IN (
        SELECT seq FROM dispatch.log
        WHERE graph = $1::integer
            AND seq <= (SELECT seq FROM dispatch.keyframes WHERE graph = $1::integer AND seq = $2::bigint)
        ORDER BY seq LIMIT $3::bigint
    )
    RETURNING 1
)
SELECT count(*) FROM gone

-- name: prune_keyframes
DELETE FROM dispatch.keyframes
WHERE graph = $1::integer
    AND seq < (SELECT seq FROM dispatch.keyframes WHERE graph = $1::integer AND seq = $2::bigint)
    AND NOT EXISTS (SELECT 1 FROM dispatch.log WHERE graph = $1::integer AND seq <= $2::bigint)
