-- What the SQLite queue says to its database, by name.

-- name: now
-- Unix seconds by the database's clock, to the millisecond.
SELECT coalesce(:now, (julianday('now') - 2440587.5) * 86400.0)

-- name: depth
SELECT depth FROM agent_dispatch_depth

-- name: known
-- Which of these wait or are out, and whether they are out for the last time. The ids come as a JSON array.
SELECT queue.job_id, coalesce(entry.state = 2 AND NOT entry.again, false)
FROM agent_dispatch_queue AS queue LEFT JOIN agent_dispatch_entry AS entry USING (place)
WHERE queue.job_id IN (SELECT value FROM json_each(?))

-- name: put_again
-- What is out is to be delivered once more, unless it is a stranger's.
UPDATE agent_dispatch_entry SET again = true
WHERE state = 2 AND place = (SELECT place FROM agent_dispatch_queue WHERE job_id = ? AND tenant = ?)

-- name: put
INSERT INTO agent_dispatch_queue
    (job_id, session_id, kind, payload_ref, tenant, priority, deadline, attempt, enqueued_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: let_come_again
-- Instead of going, one that was put again while it was out: as if its receiver had been silent for too long.
UPDATE agent_dispatch_entry SET changes_at = claimed_at, number = 0, again = false
WHERE place = :place AND state = 2 AND number = :number AND owner = :owner AND claimed_at = :claimed_at AND again

-- name: acknowledge
DELETE FROM agent_dispatch_queue
WHERE place = (
    SELECT place FROM agent_dispatch_entry
    WHERE place = :place AND state = 2 AND number = :number AND owner = :owner AND claimed_at = :claimed_at
)

-- name: is_due
-- Whether a receiver would find anything: notes, a ready group, or something that has become due.
SELECT EXISTS (SELECT 1 FROM agent_dispatch_note)
    OR EXISTS (SELECT 1 FROM agent_dispatch_lane)
    OR EXISTS (SELECT 1 FROM agent_dispatch_entry WHERE changes_at <= :now)

-- name: next_change
SELECT min(changes_at) FROM agent_dispatch_entry WHERE changes_at IS NOT NULL

-- name: count_notes
-- At most: those that are gone leave gaps.
SELECT coalesce(
    (SELECT max(number) FROM agent_dispatch_note) - (SELECT min(number) FROM agent_dispatch_note) + 1, 0
)

-- name: notes
SELECT note.place, note.change, entry.tenant, entry.grp
FROM agent_dispatch_note AS note LEFT JOIN agent_dispatch_entry AS entry USING (place)
ORDER BY note.number

-- name: forget_notes
DELETE FROM agent_dispatch_note

-- name: noted
-- The deliveries that there are notes of, if they are still there.
SELECT place, job_id, session_id, tenant, priority, deadline, enqueued_at FROM agent_dispatch_queue
WHERE place IN (SELECT place FROM agent_dispatch_note)

-- name: remove_entry
DELETE FROM agent_dispatch_entry WHERE place = ?

-- name: add_entry
INSERT INTO agent_dispatch_entry (place, job_id, tenant, grp, priority, class, deadline, enqueued_at, changes_at)
VALUES (:place, :job_id, :tenant, :grp, :priority, :class, :deadline, :enqueued_at, :changes_at)

-- name: resize_tenant
-- `low` is how far its size sinks meanwhile: its history goes when nothing is left, even if something comes again.
INSERT INTO agent_dispatch_tenant (tenant, size) VALUES (:tenant, :change)
ON CONFLICT (tenant) DO UPDATE SET
    size = size + :change, served = CASE WHEN size + :low <= 0 THEN 0 ELSE served END

-- name: resize_group
INSERT INTO agent_dispatch_group (grp, tenant, size) VALUES (:grp, :tenant, :change)
ON CONFLICT (grp) DO UPDATE SET
    size = size + :change, served = CASE WHEN size + :low <= 0 THEN 0 ELSE served END

-- name: forget_tenant
DELETE FROM agent_dispatch_tenant WHERE tenant = ? AND size <= 0

-- name: forget_group
DELETE FROM agent_dispatch_group WHERE grp = ? AND size <= 0

-- name: changing
SELECT place, grp, state, priority, class, deadline FROM agent_dispatch_entry WHERE changes_at <= :now

-- name: change
UPDATE agent_dispatch_entry
SET state = 0, owner = '', number = 0, class = :class, changes_at = :changes_at
WHERE place = :place

-- name: give_back
UPDATE agent_dispatch_entry
SET state = 1, owner = '', number = 0, changes_at = :due
WHERE place = :place AND state = 2 AND number = :number AND owner = :owner AND claimed_at = :claimed_at
    AND EXISTS (SELECT 1 FROM agent_dispatch_queue AS queue WHERE queue.place = agent_dispatch_entry.place)
RETURNING grp

-- name: extend
UPDATE agent_dispatch_entry SET changes_at = :until
WHERE place = :place AND state = 2 AND number = :number AND owner = :owner AND claimed_at = :claimed_at
    AND EXISTS (SELECT 1 FROM agent_dispatch_queue AS queue WHERE queue.place = agent_dispatch_entry.place)

-- name: lanes_of_groups
-- The groups come as a JSON array.
SELECT DISTINCT tenant, class FROM agent_dispatch_group
WHERE grp IN (SELECT value FROM json_each(?)) AND class IS NOT NULL

-- name: set_group
-- To its first delivery, or to none.
UPDATE agent_dispatch_group SET (class, deadline, enqueued_at, job_id, place) = (
    SELECT entry.class, entry.deadline, entry.enqueued_at, entry.job_id, entry.place
    FROM agent_dispatch_entry AS entry
    WHERE entry.grp = ?1 AND entry.state = 0
        AND NOT EXISTS (SELECT 1 FROM agent_dispatch_entry AS out WHERE out.grp = ?1 AND out.state = 2)
    ORDER BY entry.class, entry.deadline, entry.enqueued_at, entry.job_id LIMIT 1
)
WHERE grp = ?1

-- name: first_of_lane
SELECT deadline, enqueued_at, job_id, grp, place FROM agent_dispatch_group
WHERE tenant = :tenant AND class = :class AND class IS NOT NULL
ORDER BY served, deadline, enqueued_at, job_id LIMIT 1

-- name: remove_lane
DELETE FROM agent_dispatch_lane WHERE tenant = :tenant AND class = :class

-- name: set_lane
INSERT INTO agent_dispatch_lane (tenant, class, served, deadline, enqueued_at, job_id, grp, place)
VALUES (
    :tenant, :class, coalesce(:served, (SELECT served FROM agent_dispatch_tenant WHERE tenant = :tenant)),
    :deadline, :enqueued_at, :job_id, :grp, :place
)
ON CONFLICT (tenant, class) DO UPDATE SET
    served = excluded.served, deadline = excluded.deadline, enqueued_at = excluded.enqueued_at,
    job_id = excluded.job_id, grp = excluded.grp, place = excluded.place

-- name: next_lane
SELECT tenant, class, grp, place FROM agent_dispatch_lane
ORDER BY class, served, deadline, enqueued_at, job_id LIMIT 1

-- name: last_claim
SELECT number FROM agent_dispatch_claims

-- name: note_claims
UPDATE agent_dispatch_claims SET number = ?

-- name: claim_entry
UPDATE agent_dispatch_entry
SET state = 2, owner = :owner, claimed_at = :now, number = :number, changes_at = :until, again = false
WHERE place = :place

-- name: serve_group
UPDATE agent_dispatch_group SET served = :number, class = NULL WHERE grp = :grp

-- name: serve_tenant
UPDATE agent_dispatch_tenant SET served = :number WHERE tenant = :tenant

-- name: serve_other_lanes
UPDATE agent_dispatch_lane SET served = :number WHERE tenant = :tenant AND class <> :class

-- name: deliveries
SELECT place, job_id, session_id, kind, payload_ref, tenant, priority, deadline, attempt, enqueued_at
FROM agent_dispatch_queue WHERE place IN (SELECT value FROM json_each(?))
