-- What the SQLite authority says to its database, by name: the blocks of PostgreSQL's, with the same parameters in the
-- same order, save that rows which come in bulk are bound one by one, and that nothing needs a guard, since whoever
-- writes is alone. Lists arrive and leave as JSON arrays.

-- name: now
-- To the millisecond.
SELECT coalesce(?1, (julianday('now') - 2440587.5) * 86400.0)

-- name: next_tokens
UPDATE fencing_tokens SET last = last + ?1 RETURNING last

-- name: find_items
SELECT id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM items WHERE id IN (SELECT value FROM json_each(?1))

-- name: find_holder
SELECT id FROM items WHERE tenant = ?1 AND session_id = ?2 AND state IN ('leased', 'running')

-- name: find_waiting
SELECT a.id, i.id
FROM items AS a JOIN waits AS w ON w.awaited = a.seq JOIN items AS i ON i.seq = w.item
WHERE a.id IN (SELECT value FROM json_each(?1)) AND i.state = 'submitted'
ORDER BY a.id, i.id

-- name: count_unmet
SELECT i.id, count(DISTINCT d.value)
FROM items AS i, json_each(i.depends_on) AS d
WHERE i.id IN (SELECT value FROM json_each(?1))
    AND NOT EXISTS (SELECT 1 FROM items AS a WHERE a.id = d.value AND a.state = 'succeeded')
GROUP BY i.id

-- name: add_items
INSERT INTO items (
    id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, submitted_at,
    state, attempt, failures, owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at,
    changed_at, started_at, cancel_cause, checkpoint, cause, result
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_waits
INSERT OR IGNORE INTO waits (awaited, item)
SELECT a.seq, i.seq FROM items AS i, json_each(i.depends_on) AS d JOIN items AS a ON a.id = d.value WHERE i.id = ?1

-- name: change_items
UPDATE items
SET state = ?3, attempt = ?4, failures = ?5, owner = ?6, lease_epoch = ?7, fencing_token = ?8, expires_at = ?9,
    not_before = ?10, delivered = ?11, handed_at = ?12, changed_at = ?13, started_at = ?14,
    cancel_cause = coalesce(?15, cancel_cause), checkpoint = coalesce(?16, checkpoint), cause = coalesce(?17, cause),
    result = coalesce(?18, result)
WHERE id = ?1 AND lease_epoch = ?2

-- name: remove_items
DELETE FROM items WHERE id = ?1

-- name: add_outcomes
INSERT INTO outcomes (
    item, number, lease_epoch, fencing_token, attempt, owner, started_at, ended_at, ended, text, expired
)
SELECT seq, (SELECT coalesce(max(o.number), 0) + 1 FROM outcomes AS o WHERE o.item = i.seq),
    ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
FROM items AS i WHERE id = ?1

-- name: find_outcomes
SELECT i.id, i.tenant, o.lease_epoch, o.fencing_token, o.attempt, o.owner, o.started_at, o.ended_at, o.ended, o.text,
    o.expired
FROM items AS i JOIN outcomes AS o ON o.item = i.seq
WHERE i.id = ?1
ORDER BY o.number

-- name: search_items
SELECT id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM items
WHERE seq > coalesce((SELECT seq FROM items WHERE id = ?1), 0)
    AND (?2 IS NULL OR tenant = ?2) AND (?3 IS NULL OR session_id = ?3) AND (?4 IS NULL OR kind = ?4)
    AND (?5 = '[]' OR state IN (SELECT value FROM json_each(?5)))
ORDER BY seq
LIMIT ?6

-- name: lock_undelivered
SELECT id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM items
WHERE state = 'ready' AND NOT delivered AND not_before <= ?1 AND handed_at <= ?1 - ?2
ORDER BY not_before, seq
LIMIT ?3

-- name: find_expired
SELECT id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM items
WHERE state IN ('leased', 'running') AND expires_at < coalesce(?1, (julianday('now') - 2440587.5) * 86400.0)
    AND (?3 IS NULL OR tenant = ?3) AND (?4 = '[]' OR kind IN (SELECT value FROM json_each(?4)))
ORDER BY expires_at, seq
LIMIT ?2

-- name: find_claimable
-- What nobody carries, of sessions that nobody works on. The first in an index that only such items are in.
SELECT id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM items AS c
WHERE state = 'ready' AND NOT delivered
    AND not_before <= coalesce(?1, (julianday('now') - 2440587.5) * 86400.0)
    AND (?3 IS NULL OR tenant = ?3) AND (?4 = '[]' OR kind IN (SELECT value FROM json_each(?4)))
    AND NOT EXISTS (
        SELECT 1 FROM items AS h
        WHERE h.tenant = c.tenant AND h.session_id = c.session_id AND h.state IN ('leased', 'running')
            AND h.expires_at >= coalesce(?1, (julianday('now') - 2440587.5) * 86400.0)
    )
ORDER BY priority, deadline IS NULL, deadline, seq
LIMIT ?2

-- name: find_lapsed
SELECT id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM items
WHERE state IN ('submitted', 'ready') AND deadline IS NOT NULL
    AND deadline < coalesce(?1, (julianday('now') - 2440587.5) * 86400.0)
ORDER BY deadline, seq
LIMIT ?2

-- name: keep_contents
INSERT INTO contents (reference, contents, kept_at)
VALUES (?2, ?3, coalesce(?1, (julianday('now') - 2440587.5) * 86400.0))
ON CONFLICT (reference) DO UPDATE SET kept_at = max(kept_at, excluded.kept_at)

-- name: find_contents
SELECT contents FROM contents WHERE reference = ?1

-- name: last_message
SELECT coalesce(max(number), 0) FROM messages WHERE item_id = ?1

-- name: add_message
-- What stands there already stands.
INSERT INTO messages (item_id, number, text) VALUES (?1, ?2, ?3) ON CONFLICT (item_id, number) DO NOTHING

-- name: find_messages
SELECT number, text FROM messages WHERE item_id = ?1 AND number > ?2 ORDER BY number

-- name: bury
-- What comes again is put at the end of the line.
INSERT INTO graves (number, digest, cause, job_id, tenant, count, first_at, last_at)
SELECT (SELECT coalesce(max(number), 0) + 1 FROM graves), ?2, ?3, ?4, ?5, ?6, now, now
FROM (SELECT coalesce(?1, (julianday('now') - 2440587.5) * 86400.0) AS now)
WHERE true
ON CONFLICT (digest) DO UPDATE SET
    count = count + excluded.count, last_at = excluded.last_at, number = excluded.number

-- name: find_graves
SELECT digest, cause, job_id, tenant, count, first_at, last_at FROM graves ORDER BY number DESC LIMIT ?1

-- name: beat
INSERT INTO workers (token, kinds, slots, busy, every_s, started_at, seen_at, queue)
SELECT ?2, ?3, ?4, ?5, ?6, now, now, ?7
FROM (SELECT coalesce(?1, (julianday('now') - 2440587.5) * 86400.0) AS now)
WHERE true
ON CONFLICT (token) DO UPDATE SET
    kinds = excluded.kinds, slots = excluded.slots, busy = excluded.busy, every_s = excluded.every_s,
    seen_at = excluded.seen_at, queue = excluded.queue

-- name: forget_workers
-- Those that were silent for so long.
DELETE FROM workers WHERE seen_at < coalesce(?1, (julianday('now') - 2440587.5) * 86400.0) - ?2

-- name: forget_worker
DELETE FROM workers WHERE token = ?1

-- name: find_workers
SELECT token, kinds, slots, busy, every_s, started_at, seen_at, queue
FROM workers
WHERE seen_at >= coalesce(?1, (julianday('now') - 2440587.5) * 86400.0) - ?2
ORDER BY started_at, token

-- name: tally_items
SELECT state, count(*) FROM items GROUP BY state

-- name: tally_outcomes
SELECT ended, expired, sum(count)
FROM (
    SELECT ended, expired, count(*) AS count FROM outcomes GROUP BY ended, expired
    UNION ALL
    SELECT ended, expired, count FROM forgotten_outcomes
)
GROUP BY ended, expired

-- name: tally_expired
SELECT now, count(i.seq), coalesce(now - min(i.expires_at), 0)
FROM (SELECT coalesce(?1, (julianday('now') - 2440587.5) * 86400.0) AS now)
LEFT JOIN items AS i ON i.state IN ('leased', 'running') AND i.expires_at < now
GROUP BY now

-- name: tally_due
SELECT kind, count(*) FROM items
WHERE state = 'ready' AND not_before <= coalesce(?1, (julianday('now') - 2440587.5) * 86400.0) GROUP BY kind

-- name: find_prunable
-- Ends that nobody waits for, but no dead letters.
SELECT i.seq FROM items AS i
WHERE i.state IN ('succeeded', 'failed', 'cancelled') AND i.changed_at < ?1 AND i.seq > ?2 AND NOT EXISTS (
    SELECT 1 FROM waits AS w JOIN items AS d ON d.seq = w.item WHERE w.awaited = i.seq AND d.state = 'submitted'
)
ORDER BY i.seq
LIMIT ?3

-- name: note_pruned
INSERT INTO forgotten_outcomes (ended, expired, count)
SELECT ended, expired, count(*) FROM outcomes WHERE item = ?1 GROUP BY ended, expired
ON CONFLICT (ended, expired) DO UPDATE SET count = count + excluded.count

-- name: prune_outcomes
DELETE FROM outcomes WHERE item = ?1

-- name: prune_waits
DELETE FROM waits WHERE awaited = ?1

-- name: prune_messages
DELETE FROM messages WHERE item_id = (SELECT id FROM items WHERE seq = ?1)

-- name: prune_items
DELETE FROM items WHERE seq = ?1

-- name: prune_contents
-- Those that no item refers to. What was kept a moment ago may be for an item that is still to be submitted.
DELETE FROM contents WHERE reference IN (
    SELECT c.reference FROM contents AS c
    WHERE c.kept_at < ?1 AND NOT EXISTS (SELECT 1 FROM items AS i WHERE i.payload_ref = c.reference)
    LIMIT ?2
)
RETURNING 1

-- name: add_client
INSERT INTO clients DEFAULT VALUES RETURNING number

-- name: find_session_lock
SELECT client FROM session_locks WHERE tenant = ?1 AND session_id = ?2

-- name: take_session_lock
INSERT INTO session_locks (tenant, session_id, client) VALUES (?1, ?2, ?3)
ON CONFLICT (tenant, session_id) DO UPDATE SET client = excluded.client

-- name: drop_session_lock
DELETE FROM session_locks WHERE tenant = ?1 AND session_id = ?2 AND client = ?3

-- name: drop_client
DELETE FROM clients WHERE number = ?1
