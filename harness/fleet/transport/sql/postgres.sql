-- What the PostgreSQL queue says to its database, by name. What these functions do is told where they are made, in
-- `postgres_0001.sql`: a function's statements are planned once for each connection of the server's, whoever of a
-- pooler's clients it serves.

-- name: depth
SELECT agent_dispatch.queue_depth()

-- name: count
SELECT agent_dispatch.queue_count()

-- name: put
SELECT agent_dispatch.queue_put(
    $1::bigint, $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::integer[], $8::double precision[],
    $9::integer[], $10::double precision[]
)

-- name: put_all
-- All that are named, $10 of them, or none: else it divides by zero, and its transaction fails. They are enqueued as the
-- transaction begins, by the clock $11 if it is given; the answer is when that was.
SELECT beginning / ((
    SELECT count(*) FROM agent_dispatch.queue_put(
        $1::bigint, $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::integer[], $8::double precision[],
        $9::integer[], array_fill(beginning, ARRAY[$10::integer])
    )
) = $10::integer)::integer::double precision
FROM (
    SELECT coalesce($11::double precision, extract(epoch FROM transaction_timestamp())::double precision)
) AS clock (beginning)

-- name: work_off
SELECT agent_dispatch.queue_work_off($1::double precision)

-- name: receive
SELECT * FROM agent_dispatch.queue_receive($1::text, $2::integer, $3::double precision, $4::double precision)

-- name: acknowledge
SELECT * FROM agent_dispatch.queue_acknowledge($1::text[], $2::text[], $3::double precision[], $4::bigint[])

-- name: give_back
SELECT agent_dispatch.queue_give_back(
    $1::text[], $2::text[], $3::double precision[], $4::bigint[], $5::double precision, $6::double precision
)

-- name: extend
SELECT agent_dispatch.queue_extend(
    $1::text[], $2::text[], $3::double precision[], $4::bigint[], $5::double precision, $6::double precision
)

-- name: next_change
-- In how many seconds time alone may bring something about; NULL if never.
SELECT min(changes_at) - agent_dispatch.queue_now($1::double precision) FROM agent_dispatch.queue_entry
WHERE gen = (SELECT gen FROM agent_dispatch.queue_order ORDER BY version DESC LIMIT 1) AND changes_at IS NOT NULL

-- name: wake
-- A hint to those who wait, if there are any: each holds the lock, shared.
SELECT pg_notify('agent_dispatch_queue', '') WHERE NOT pg_try_advisory_xact_lock(agent_dispatch.queue_lock(3))

-- name: listen
LISTEN agent_dispatch_queue

-- name: wait
SELECT pg_advisory_lock_shared(agent_dispatch.queue_lock(3))

-- name: wait_no_more
SELECT pg_advisory_unlock_shared(agent_dispatch.queue_lock(3))
