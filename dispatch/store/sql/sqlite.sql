-- What the SQLite adapter says to its database, by name. Rows that come in bulk are bound by position, in the order
-- in which the codec gives them; the key comes last, so that one tuple fits an insert and an update alike.

-- name: now
-- Unix seconds by the database's clock, to the millisecond.
SELECT coalesce(:now, (julianday('now') - 2440587.5) * 86400.0)

-- name: find_graph
SELECT key, graph_id, paused FROM graphs WHERE name = :name

-- name: graph_names
-- Of those that were ever written.
SELECT name FROM graphs WHERE graph_id IS NOT NULL ORDER BY name

-- name: add_graph
INSERT INTO graphs (name) VALUES (:name) ON CONFLICT (name) DO NOTHING

-- name: find_claim
SELECT token, pid, started, boot, pid_namespace, epoch, since, expires_at FROM claims WHERE graph = :graph

-- name: take_claim
INSERT INTO claims (graph, epoch, token, since, expires_at, pid, started, boot, pid_namespace)
VALUES (:graph, :epoch, :token, :since, :expires_at, :pid, :started, :boot, :pid_namespace)
ON CONFLICT (graph) DO UPDATE SET
    epoch = excluded.epoch, token = excluded.token, since = excluded.since, expires_at = excluded.expires_at,
    pid = excluded.pid, started = excluded.started, boot = excluded.boot, pid_namespace = excluded.pid_namespace

-- name: check_claim
-- Inside a writing transaction nobody else can change the row between this and the commit.
SELECT 1 FROM claims WHERE graph = :graph AND epoch = :epoch AND token = :token

-- name: move_claim
UPDATE claims SET expires_at = :expires_at WHERE graph = :graph AND epoch = :epoch AND token = :token

-- name: write_graph
UPDATE graphs SET graph_id = :graph_id, paused = :paused WHERE key = :graph

-- name: update_slice
UPDATE slices SET
    seq = ?, state = ?, attempt = ?, closes = ?, turns = ?, branch = ?, pull_request_url = ?, error = ?, checkpoint = ?,
    hold = ?, canceling = ?, stopping = ?, ran_s = ?, enqueued_at = ?, started_at = ?, ended_at = ?
WHERE graph = ? AND id = ?

-- name: write_slice
INSERT INTO slices (
    seq, state, attempt, closes, turns, branch, pull_request_url, error, checkpoint, hold, canceling, stopping, ran_s,
    enqueued_at, started_at, ended_at, graph, id
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (graph, id) DO UPDATE SET
    seq = excluded.seq, state = excluded.state, attempt = excluded.attempt, closes = excluded.closes,
    turns = excluded.turns, branch = excluded.branch, pull_request_url = excluded.pull_request_url,
    error = excluded.error, checkpoint = excluded.checkpoint, hold = excluded.hold, canceling = excluded.canceling,
    stopping = excluded.stopping, ran_s = excluded.ran_s, enqueued_at = excluded.enqueued_at,
    started_at = excluded.started_at, ended_at = excluded.ended_at

-- name: write_spec
INSERT INTO specs (spec, graph, id) VALUES (?, ?, ?) ON CONFLICT (graph, id) DO NOTHING

-- name: rewrite_spec
UPDATE specs SET spec = ? WHERE graph = ? AND id = ?

-- name: write_attempt
INSERT INTO attempts (branch, started_at, ended_at, outcome, detail, checkpoint, graph, slice_id, attempt)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (graph, slice_id, attempt) DO UPDATE SET
    branch = excluded.branch, started_at = excluded.started_at, ended_at = excluded.ended_at,
    outcome = excluded.outcome, detail = excluded.detail, checkpoint = excluded.checkpoint

-- name: write_intent
INSERT INTO intents (seq, intent, attached, graph, id) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (graph, id) DO UPDATE SET
    seq = excluded.seq, intent = excluded.intent, attached = excluded.attached

-- name: forget_intent
DELETE FROM intents WHERE graph = ? AND id = ?

-- name: read_slices
SELECT
    id, spec, seq, state, attempt, closes, turns, branch, pull_request_url, error, checkpoint, hold, canceling,
    stopping, ran_s, enqueued_at, started_at, ended_at
FROM slices LEFT JOIN specs USING (graph, id) WHERE graph = :graph

-- name: read_attempts
SELECT slice_id, attempt, branch, started_at, ended_at, outcome, detail, checkpoint
FROM attempts WHERE graph = :graph ORDER BY slice_id, attempt

-- name: read_intents
SELECT id, intent, seq, attached FROM intents WHERE graph = :graph ORDER BY seq, id

-- name: write_entry
INSERT INTO log (epoch, at, cap, suspended, kind, input, decisions, graph, seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (graph, seq) DO NOTHING

-- name: write_keyframe
INSERT INTO keyframes (at, content, graph, seq) VALUES (:at, :content, :graph, :seq)
ON CONFLICT (graph, seq) DO NOTHING

-- name: read_last_entry
-- Its number. Where all has been pruned, that of the keyframe that stands for it.
SELECT max(
    coalesce((SELECT max(seq) FROM log WHERE graph = :graph), 0),
    coalesce((SELECT max(seq) FROM keyframes WHERE graph = :graph), 0)
)

-- name: read_keyframes
SELECT seq, at FROM keyframes WHERE graph = :graph ORDER BY seq

-- name: read_keyframe
SELECT seq, at, content FROM keyframes WHERE graph = :graph AND seq = :seq

-- name: read_entries
SELECT seq, epoch, at, cap, suspended, kind, input, decisions FROM log
WHERE graph = :graph AND seq > :after AND :kind IN ('', kind) ORDER BY seq LIMIT :limit

-- name: prune_entries
DELETE FROM log WHERE graph = :graph AND seq IN (
    SELECT seq FROM log
    WHERE graph = :graph AND seq <= (SELECT seq FROM keyframes WHERE graph = :graph AND seq = :keyframe)
    ORDER BY seq LIMIT :limit
)

-- name: prune_keyframes
DELETE FROM keyframes
WHERE graph = :graph AND seq < (SELECT seq FROM keyframes WHERE graph = :graph AND seq = :keyframe)
    AND NOT EXISTS (SELECT 1 FROM log WHERE graph = :graph AND seq <= :keyframe)
