-- What the PostgreSQL authority says to its database, by name. Every name is qualified: the search path is the user's.
-- Rows travel as one array for each column. What changes several rows does so in the order of its arrays, which is that
-- of the ids. A guarded statement divides by zero, and so fails with its transaction, if it did not find every row as
-- it had been read.

-- name: plan_by_keys
-- On a connection of our own. Statements are planned once, and perhaps while tables are still empty, when reading all of
-- a table seems the cheapest way to find a row. To plan them for the values of each call costs more than they do.
SELECT set_config(name, value, false)
FROM (
    VALUES ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'),
        ('enable_mergejoin', 'off'), ('jit', 'off')
) AS settings (name, value)
WHERE pg_backend_pid() = $1::integer

-- name: keep_alive
-- A client that has vanished frees what it has locked within half a minute.
SELECT set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false)
WHERE pg_backend_pid() = $1::integer

-- name: find_self
SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid() AND pid = $1::integer

-- name: cut_off_former
-- The server process of a connection that we have lost may not know it yet, and hold locks; wait until it is gone.
SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity
WHERE pid = $1::integer AND backend_start = $2::timestamptz AND pid <> pg_backend_pid()

-- name: hint
-- To those who watch, if there are any: a notification keeps all that commit at the same time waiting for each other.
SELECT pg_notify('agent_dispatch_items', '') WHERE NOT pg_try_advisory_xact_lock(7018690069354998016)

-- name: listen
LISTEN agent_dispatch_items

-- name: say_that_somebody_listens
SELECT pg_advisory_lock_shared(7018690069354998016)

-- name: now
SELECT coalesce($1::double precision, extract(epoch FROM clock_timestamp())::double precision)

-- name: next_tokens
-- After the rows that they are for were read: so they rise as the claims of an item, and of a session, follow each other.
SELECT coalesce($1::double precision, extract(epoch FROM clock_timestamp())::double precision),
    (SELECT array_agg(nextval('agent_dispatch.fencing_tokens')) FROM generate_series(1, $2::integer))

-- name: find_items
SELECT xmin::text::bigint, is_awaited,
    id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM agent_dispatch.items
WHERE id = ANY ($1::text[])

-- name: lock_items
SELECT xmin::text::bigint, is_awaited,
    id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM agent_dispatch.items
WHERE id = ANY ($1::text[])
ORDER BY id
FOR UPDATE

-- name: lock_sessions
-- Those of the items: of a session, one claim at a time is decided. The seed keeps these keys apart from others.
SELECT pg_advisory_xact_lock(key)
FROM (
    SELECT DISTINCT hashtextextended(tenant || ' ' || session_id, 1) AS key
    FROM agent_dispatch.items WHERE id = ANY ($1::text[])
    ORDER BY key
) AS sessions

-- name: find_holders
SELECT h.tenant, h.session_id, i.id
FROM agent_dispatch.items AS c
JOIN agent_dispatch.held AS h ON h.tenant = c.tenant AND h.session_id = c.session_id
JOIN agent_dispatch.items AS i ON i.seq = h.item
WHERE c.id = ANY ($1::text[])

-- name: find_waiting
SELECT a.id, i.id
FROM agent_dispatch.items AS a
JOIN agent_dispatch.waits AS w ON w.awaited = a.seq
JOIN agent_dispatch.items AS i ON i.seq = w.item
WHERE a.id = ANY ($1::text[]) AND i.state = 'submitted'
ORDER BY a.id, i.id

-- name: count_unmet
SELECT i.id, count(*)
FROM agent_dispatch.items AS i
CROSS JOIN LATERAL (SELECT DISTINCT unnest(i.depends_on) AS id) AS d
WHERE i.id = ANY ($1::text[])
    AND NOT EXISTS (SELECT 1 FROM agent_dispatch.items AS a WHERE a.id = d.id AND a.state = 'succeeded')
GROUP BY i.id

-- name: add_items
-- With $27, times are counted from the beginning of the transaction.
INSERT INTO agent_dispatch.items (
    id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, submitted_at,
    state, attempt, failures, owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at,
    changed_at, started_at, cancel_cause, checkpoint, cause, result, due_at, lapses_at
)
SELECT n.id, n.tenant, n.session_id, n.kind, n.payload_ref, n.priority, n.deadline,
    ARRAY(SELECT jsonb_array_elements_text(n.depends_on::jsonb)), n.max_attempts, beginning + n.submitted_at,
    n.state, n.attempt, n.failures, n.owner, n.lease_epoch, n.fencing_token, n.expires_at, n.not_before, n.delivered,
    beginning + n.handed_at, beginning + n.changed_at, n.started_at, n.cancel_cause, n.checkpoint, n.cause, n.result,
    CASE WHEN n.state = 'ready' AND NOT n.delivered THEN n.not_before END,
    CASE WHEN n.state IN ('submitted', 'ready') THEN n.deadline END
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::double precision[], $8::text[],
    $9::integer[], $10::double precision[], $11::text[], $12::integer[], $13::integer[], $14::text[], $15::integer[],
    $16::bigint[], $17::double precision[], $18::double precision[], $19::boolean[], $20::double precision[],
    $21::double precision[], $22::double precision[], $23::text[], $24::text[], $25::text[], $26::text[]
) AS n (
    id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, submitted_at,
    state, attempt, failures, owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at,
    changed_at, started_at, cancel_cause, checkpoint, cause, result
)
CROSS JOIN (
    SELECT CASE WHEN $27::boolean THEN extract(epoch FROM transaction_timestamp()) ELSE 0 END::double precision
) AS clock (beginning)

-- name: add_item
-- One alone, in half of the time.
INSERT INTO agent_dispatch.items (
    id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, submitted_at,
    state, attempt, failures, owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at,
    changed_at, started_at, cancel_cause, checkpoint, cause, result, due_at, lapses_at
)
SELECT $1, $2, $3, $4, $5, $6::smallint, $7::double precision, ARRAY(SELECT jsonb_array_elements_text($8::jsonb)),
    $9::integer, beginning + $10::double precision, $11, $12::integer, $13::integer, $14, $15::integer, $16::bigint,
    $17::double precision, $18::double precision, $19::boolean, beginning + $20::double precision,
    beginning + $21::double precision, $22::double precision, $23, $24, $25, $26,
    CASE WHEN $11 = 'ready' AND NOT $19::boolean THEN $18::double precision END,
    CASE WHEN $11 IN ('submitted', 'ready') THEN $7::double precision END
FROM (
    SELECT CASE WHEN $27::boolean THEN extract(epoch FROM transaction_timestamp()) ELSE 0 END::double precision
) AS clock (beginning)

-- name: add_waits
-- Of new items. What they wait for is marked: who ends it has read it unmarked, or finds them here.
WITH new AS (
    SELECT DISTINCT a.seq AS awaited, i.seq AS item
    FROM agent_dispatch.items AS i
    CROSS JOIN LATERAL unnest(i.depends_on) AS d (id)
    JOIN agent_dispatch.items AS a ON a.id = d.id
    WHERE i.id = ANY ($1::text[])
), marked AS (
    UPDATE agent_dispatch.items SET is_awaited = true
    WHERE seq IN (SELECT awaited FROM new) AND NOT is_awaited
)
INSERT INTO agent_dispatch.waits (awaited, item) SELECT awaited, item FROM new

-- name: change_items
-- `version` is what wrote the row that was read, NULL for this transaction. Of texts, those that are NULL stay: they may
-- be long, and seldom change.
WITH done AS (
    UPDATE agent_dispatch.items AS i
    SET state = n.state, attempt = n.attempt, failures = n.failures, owner = n.owner, lease_epoch = n.lease_epoch,
        fencing_token = n.fencing_token, expires_at = n.expires_at, not_before = n.not_before, delivered = n.delivered,
        handed_at = n.handed_at, changed_at = n.changed_at, started_at = n.started_at,
        due_at = CASE WHEN n.state = 'ready' AND NOT n.delivered THEN n.not_before END,
        lapses_at = CASE WHEN n.state IN ('submitted', 'ready') THEN i.deadline END,
        cancel_cause = coalesce(n.cancel_cause, i.cancel_cause), checkpoint = coalesce(n.checkpoint, i.checkpoint),
        cause = coalesce(n.cause, i.cause), result = coalesce(n.result, i.result)
    FROM unnest(
        $1::text[], $2::xid[], $3::integer[], $4::text[], $5::integer[], $6::integer[], $7::text[], $8::integer[],
        $9::bigint[], $10::double precision[], $11::double precision[], $12::boolean[], $13::double precision[],
        $14::double precision[], $15::double precision[], $16::text[], $17::text[], $18::text[], $19::text[]
    ) AS n (
        id, version, read_epoch, state, attempt, failures, owner, lease_epoch, fencing_token, expires_at, not_before,
        delivered, handed_at, changed_at, started_at, cancel_cause, checkpoint, cause, result
    )
    WHERE i.id = n.id AND i.lease_epoch = n.read_epoch
        AND i.xmin = coalesce(n.version, pg_current_xact_id()::xid)
    RETURNING 1
)
SELECT 1 / (count(*) = cardinality($1::text[]))::integer FROM done

-- name: remove_items
WITH done AS (
    DELETE FROM agent_dispatch.items AS i USING unnest($1::text[], $2::xid[]) AS n (id, version)
    WHERE i.id = n.id AND i.xmin = coalesce(n.version, pg_current_xact_id()::xid)
    RETURNING 1
)
SELECT 1 / (count(*) = cardinality($1::text[]))::integer FROM done

-- name: touch_item
-- Nobody who read the row before can change it after this.
UPDATE agent_dispatch.items SET is_awaited = is_awaited WHERE id = $1 AND xmin = $2::xid RETURNING 1

-- name: hold_sessions
INSERT INTO agent_dispatch.held (tenant, session_id, item)
SELECT tenant, session_id, seq FROM agent_dispatch.items WHERE id = ANY ($1::text[])

-- name: let_go_sessions
WITH done AS (
    DELETE FROM agent_dispatch.held AS h
    USING agent_dispatch.items AS i
    WHERE i.id = ANY ($1::text[]) AND h.tenant = i.tenant AND h.session_id = i.session_id AND h.item = i.seq
    RETURNING 1
)
SELECT 1 / (count(*) = cardinality($1::text[]))::integer FROM done

-- name: add_outcomes
INSERT INTO agent_dispatch.outcomes (
    item, lease_epoch, fencing_token, attempt, owner, started_at, ended_at, ended, text, expired
)
SELECT i.seq, n.lease_epoch, n.fencing_token, n.attempt, n.owner, n.started_at, n.ended_at, n.ended, n.text, n.expired
FROM unnest(
    $1::text[], $2::integer[], $3::bigint[], $4::integer[], $5::text[], $6::double precision[], $7::double precision[],
    $8::text[], $9::text[], $10::boolean[]
) WITH ORDINALITY AS n (
    id, lease_epoch, fencing_token, attempt, owner, started_at, ended_at, ended, text, expired, place
)
JOIN agent_dispatch.items AS i ON i.id = n.id
ORDER BY n.place

-- name: find_outcomes
SELECT i.id, i.tenant, o.lease_epoch, o.fencing_token, o.attempt, o.owner, o.started_at, o.ended_at, o.ended, o.text,
    o.expired
FROM agent_dispatch.items AS i JOIN agent_dispatch.outcomes AS o ON o.item = i.seq
WHERE i.id = $1
ORDER BY o.number

-- name: search_items
SELECT xmin::text::bigint, is_awaited,
    id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM agent_dispatch.items
WHERE seq > coalesce((SELECT seq FROM agent_dispatch.items WHERE id = $1), 0)
    AND ($2::text IS NULL OR tenant = $2) AND ($3::text IS NULL OR session_id = $3) AND ($4::text IS NULL OR kind = $4)
    AND (cardinality($5::text[]) = 0 OR state = ANY ($5::text[]))
ORDER BY seq
LIMIT $6::integer

-- name: lock_undelivered
-- By the clock at the statement's beginning, here and in the next two: another could not be looked up in an index.
-- What another pump is just taking on is passed over, and found the next time if it still needs a delivery.
SELECT xmin::text::bigint, is_awaited,
    id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM agent_dispatch.items
WHERE due_at IS NOT NULL
    AND due_at <= coalesce($1::double precision, extract(epoch FROM statement_timestamp())::double precision)
    AND handed_at <= coalesce($1::double precision, extract(epoch FROM statement_timestamp())::double precision)
        - $2::double precision
ORDER BY due_at, seq
LIMIT $3::integer
FOR UPDATE SKIP LOCKED

-- name: find_expired
SELECT i.xmin::text::bigint, i.is_awaited,
    i.id, i.tenant, i.session_id, i.kind, i.payload_ref, i.priority, i.deadline, i.depends_on, i.max_attempts, i.state,
    i.attempt, i.failures, i.owner, i.lease_epoch, i.fencing_token, i.expires_at, i.not_before, i.delivered,
    i.handed_at, i.cancel_cause, i.checkpoint, i.cause, i.result, i.submitted_at, i.changed_at, i.started_at
FROM agent_dispatch.held AS h JOIN agent_dispatch.items AS i ON i.seq = h.item
WHERE i.state IN ('leased', 'running')
    AND i.expires_at < coalesce($1::double precision, extract(epoch FROM statement_timestamp())::double precision)
    AND ($3::text IS NULL OR i.tenant = $3) AND (cardinality($4::text[]) = 0 OR i.kind = ANY ($4::text[]))
ORDER BY i.expires_at, i.seq
LIMIT $2::integer

-- name: find_claimable
-- What nobody carries, of sessions that nobody works on. The first in an index that only such items are in.
SELECT xmin::text::bigint, is_awaited,
    id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM agent_dispatch.items AS c
WHERE due_at IS NOT NULL
    AND due_at <= coalesce($1::double precision, extract(epoch FROM statement_timestamp())::double precision)
    AND ($3::text IS NULL OR tenant = $3) AND (cardinality($4::text[]) = 0 OR kind = ANY ($4::text[]))
    AND NOT EXISTS (
        SELECT 1 FROM agent_dispatch.held AS h JOIN agent_dispatch.items AS i ON i.seq = h.item
        WHERE h.tenant = c.tenant AND h.session_id = c.session_id
            AND i.expires_at >= coalesce($1::double precision, extract(epoch FROM statement_timestamp())::double precision)
    )
ORDER BY priority, deadline, seq
LIMIT $2::integer

-- name: find_lapsed
SELECT xmin::text::bigint, is_awaited,
    id, tenant, session_id, kind, payload_ref, priority, deadline, depends_on, max_attempts, state, attempt, failures,
    owner, lease_epoch, fencing_token, expires_at, not_before, delivered, handed_at, cancel_cause, checkpoint, cause,
    result, submitted_at, changed_at, started_at
FROM agent_dispatch.items
WHERE lapses_at IS NOT NULL
    AND lapses_at < coalesce($1::double precision, extract(epoch FROM statement_timestamp())::double precision)
ORDER BY lapses_at, seq
LIMIT $2::integer

-- name: prune_items
-- Ends that nobody waits for, but no dead letters. With them goes all that was kept of them alone.
WITH old AS (
    SELECT i.seq, i.id FROM agent_dispatch.items AS i
    WHERE i.state IN ('succeeded', 'failed', 'cancelled') AND i.changed_at < $1::double precision
        AND i.seq > $2::bigint AND NOT EXISTS (
            SELECT 1 FROM agent_dispatch.waits AS w JOIN agent_dispatch.items AS d ON d.seq = w.item
            WHERE w.awaited = i.seq AND d.state = 'submitted'
        )
    ORDER BY i.seq
    LIMIT $3::integer
    FOR UPDATE OF i SKIP LOCKED
), outcomes AS (
    DELETE FROM agent_dispatch.outcomes AS o USING old WHERE o.item = old.seq RETURNING o.ended, o.expired
), counted AS (
    INSERT INTO agent_dispatch.forgotten_outcomes AS f (ended, expired, count)
    SELECT ended, expired, count(*) FROM outcomes GROUP BY ended, expired ORDER BY ended, expired
    ON CONFLICT (ended, expired) DO UPDATE SET count = f.count + excluded.count
), waits AS (
    DELETE FROM agent_dispatch.waits AS w USING old WHERE w.awaited = old.seq
), messages AS (
    DELETE FROM agent_dispatch.messages AS m USING old WHERE m.item_id = old.id
), gone AS (
    DELETE FROM agent_dispatch.items AS i USING old WHERE i.seq = old.seq RETURNING i.seq
)
SELECT count(*), coalesce(max(seq), 0) FROM gone

-- name: prune_contents
-- Those that no item refers to. What was kept a moment ago may be for an item that is still to be submitted.
DELETE FROM agent_dispatch.contents
WHERE reference = ANY (ARRAY(
    SELECT c.reference FROM agent_dispatch.contents AS c
    WHERE c.kept_at < $1::double precision
        AND NOT EXISTS (SELECT 1 FROM agent_dispatch.items AS i WHERE i.payload_ref = c.reference)
    LIMIT $2::integer
))
RETURNING 1

-- name: keep_contents
INSERT INTO agent_dispatch.contents AS c (reference, contents, kept_at)
VALUES ($2, $3::bytea, coalesce($1::double precision, extract(epoch FROM clock_timestamp())::double precision))
ON CONFLICT (reference) DO UPDATE SET kept_at = greatest(c.kept_at, excluded.kept_at)

-- name: find_contents
SELECT contents FROM agent_dispatch.contents WHERE reference = $1

-- name: last_message
SELECT coalesce(max(number), 0) FROM agent_dispatch.messages WHERE item_id = $1

-- name: add_message
-- What stands there already stands.
INSERT INTO agent_dispatch.messages (item_id, number, text) VALUES ($1, $2::bigint, $3)
ON CONFLICT (item_id, number) DO NOTHING

-- name: find_messages
SELECT number, text FROM agent_dispatch.messages WHERE item_id = $1 AND number > $2::bigint ORDER BY number

-- name: bury
INSERT INTO agent_dispatch.graves AS g (digest, cause, job_id, tenant, count, first_at, last_at)
SELECT $2, $3, $4, $5, $6::bigint, now, now
FROM (SELECT coalesce($1::double precision, extract(epoch FROM clock_timestamp())::double precision) AS now) AS clock
ON CONFLICT (digest) DO UPDATE SET
    count = g.count + excluded.count, last_at = excluded.last_at, number = excluded.number

-- name: find_graves
SELECT digest, cause, job_id, tenant, count, first_at, last_at
FROM agent_dispatch.graves ORDER BY number DESC LIMIT $1::integer

-- name: beat
INSERT INTO agent_dispatch.workers AS w (token, kinds, slots, busy, every_s, started_at, seen_at, queue)
SELECT
    $2, ARRAY(SELECT jsonb_array_elements_text($3::jsonb)), $4::integer, $5::integer, $6::double precision, now, now, $7
FROM (SELECT coalesce($1::double precision, extract(epoch FROM clock_timestamp())::double precision) AS now) AS clock
ON CONFLICT (token) DO UPDATE SET
    kinds = excluded.kinds, slots = excluded.slots, busy = excluded.busy, every_s = excluded.every_s,
    seen_at = excluded.seen_at, queue = excluded.queue

-- name: forget_workers
-- Those that were silent for so long.
DELETE FROM agent_dispatch.workers
WHERE seen_at < coalesce($1::double precision, extract(epoch FROM clock_timestamp())::double precision)
    - $2::double precision

-- name: forget_worker
DELETE FROM agent_dispatch.workers WHERE token = $1

-- name: find_workers
SELECT token, kinds, slots, busy, every_s, started_at, seen_at, queue
FROM agent_dispatch.workers
WHERE seen_at >= coalesce($1::double precision, extract(epoch FROM clock_timestamp())::double precision)
    - $2::double precision
ORDER BY started_at, token

-- name: tally_items
SELECT state, count(*) FROM agent_dispatch.items GROUP BY state

-- name: tally_outcomes
SELECT ended, expired, sum(count)::bigint
FROM (
    SELECT ended, expired, count(*) FROM agent_dispatch.outcomes GROUP BY ended, expired
    UNION ALL
    SELECT ended, expired, count FROM agent_dispatch.forgotten_outcomes
) AS counted
GROUP BY ended, expired

-- name: tally_expired
SELECT now, count(i.seq), coalesce(now - min(i.expires_at), 0)
FROM (SELECT coalesce($1::double precision, extract(epoch FROM clock_timestamp())::double precision) AS now) AS clock
LEFT JOIN (agent_dispatch.held AS h JOIN agent_dispatch.items AS i ON i.seq = h.item) ON i.expires_at < now
GROUP BY now

-- name: tally_due
SELECT kind, count(*) FROM agent_dispatch.items
WHERE state = 'ready'
    AND not_before <= coalesce($1::double precision, extract(epoch FROM clock_timestamp())::double precision)
GROUP BY kind

-- name: try_session_locks
-- Each once, in order.
SELECT pg_backend_pid() = $1::integer, pg_try_advisory_lock(hashtextextended(tenant || ' ' || session_id, 2))
FROM unnest($2::text[], $3::text[]) AS asked (tenant, session_id)

-- name: free_session_locks
SELECT pg_advisory_unlock(hashtextextended(tenant || ' ' || session_id, 2))
FROM unnest($1::text[], $2::text[]) AS given (tenant, session_id)

-- name: cut_off_holder
-- Of the lock of a session, and wait a moment until it is gone.
SELECT pg_terminate_backend(l.pid, 1000)
FROM pg_locks AS l
WHERE l.locktype = 'advisory' AND l.granted AND l.pid <> pg_backend_pid() AND l.objsubid = 1
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended($1 || ' ' || $2, 2)
