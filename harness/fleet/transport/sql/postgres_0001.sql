-- A queue of deliveries, and beside it what is needed to tell at once which one is next.
--
-- Only `agent_dispatch_queue` is written by those who put and acknowledge, who may be anybody, and only it is logged.
-- All else follows from it, save who was served when, and is made anew after a crash has emptied it (`queue_rebuild`).
-- Triggers note what came and went. A receiver, before it claims, works the notes off; receivers do so one at a time, so
-- that the tables of the order have one writer, and those who put or acknowledge never wait for them.
--
-- Beside a snapshot that somebody keeps open dead rows can't be removed, and whoever looks for the first row of an index
-- wades through those that were first before. So nothing is looked for where it was before: notes and steps from the
-- oldest transaction that was under way when they were last worked off (`since`); the newest version of a row from the
-- high end; and the tables of the order within their generation (`gen`), which stands first in each index. When the dead
-- of a generation have begun to cost time, the living move to the next (`queue_move_on`).

CREATE TABLE agent_dispatch.queue_version (
    version integer NOT NULL
);

CREATE TABLE agent_dispatch.agent_dispatch_queue (
    enqueued_at double precision DEFAULT extract(epoch FROM clock_timestamp()),
    deadline double precision,
    priority integer DEFAULT 2,
    attempt integer DEFAULT 0,
    job_id text COLLATE "C" NOT NULL PRIMARY KEY,
    session_id text,
    kind text,
    payload_ref text,
    tenant text
);

-- The depth: `depth`, and the sum of the steps of transactions that were not over `since`. The newest version counts.
CREATE UNLOGGED TABLE agent_dispatch.queue_depth (
    version bigint NOT NULL PRIMARY KEY,
    depth bigint NOT NULL,
    since xid8 NOT NULL
);

CREATE UNLOGGED TABLE agent_dispatch.queue_step (
    step bigint NOT NULL,
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id()
);

CREATE INDEX queue_step_transaction ON agent_dispatch.queue_step (transaction);

-- What came (1) and went (-1), in order; what was rewritten came and went.
CREATE UNLOGGED TABLE agent_dispatch.queue_note (
    number bigint GENERATED ALWAYS AS IDENTITY,
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    change integer NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    tenant uuid NOT NULL,
    grp uuid NOT NULL,
    priority integer NOT NULL,
    deadline double precision NOT NULL,
    enqueued_at double precision NOT NULL
);

CREATE INDEX queue_note_transaction ON agent_dispatch.queue_note (transaction);

-- Of the newest version: the number of the last claim, since when notes are not worked off, the generation, how much has
-- come, gone and been claimed in it, and how many deliveries are known.
CREATE UNLOGGED TABLE agent_dispatch.queue_order (
    version bigint NOT NULL PRIMARY KEY,
    claims bigint NOT NULL,
    since xid8 NOT NULL,
    gen bigint NOT NULL,
    moves bigint NOT NULL,
    size bigint NOT NULL
);

-- When whom a claim served last, by its number; 0 is never. `size` counts queued deliveries: with the last, it goes.
CREATE UNLOGGED TABLE agent_dispatch.queue_tenant (
    gen bigint NOT NULL,
    tenant uuid NOT NULL,
    served bigint NOT NULL DEFAULT 0,
    size bigint NOT NULL,
    PRIMARY KEY (gen, tenant)
);

-- A fairness group. With a delivery that may be handed out, and none that is out, it is ready: the columns from `class`
-- on are those of its first. `class` is the priority, less 4 where the deadline has passed.
CREATE UNLOGGED TABLE agent_dispatch.queue_group (
    gen bigint NOT NULL,
    grp uuid NOT NULL,
    tenant uuid NOT NULL,
    served bigint NOT NULL DEFAULT 0,
    size bigint NOT NULL,
    class integer,
    deadline double precision,
    enqueued_at double precision,
    job_id text COLLATE "C",
    PRIMARY KEY (gen, grp)
);

CREATE INDEX queue_group_ready ON agent_dispatch.queue_group (gen, tenant, class, served, deadline, enqueued_at, job_id)
    WHERE class IS NOT NULL;

-- A tenant's ready groups of one class. There is a row as long as there is one, and it tells the first.
CREATE UNLOGGED TABLE agent_dispatch.queue_lane (
    gen bigint NOT NULL,
    tenant uuid NOT NULL,
    class integer NOT NULL,
    served bigint NOT NULL,
    deadline double precision NOT NULL,
    enqueued_at double precision NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    grp uuid NOT NULL,
    PRIMARY KEY (gen, tenant, class)
);

CREATE INDEX queue_lane_next ON agent_dispatch.queue_lane (gen, class, served, deadline, enqueued_at, job_id);

-- A delivery as the order knows it. State 0: it waits; 1: it is not due yet; 2: it is out, by claim `number` of `owner`.
-- `changes_at` is when time alone changes something about it; only then `gen` means anything. A deadline that is none is
-- infinite.
CREATE UNLOGGED TABLE agent_dispatch.queue_entry (
    job_id text COLLATE "C" NOT NULL PRIMARY KEY,
    tenant uuid NOT NULL,
    grp uuid NOT NULL,
    priority integer NOT NULL,
    class integer NOT NULL,
    deadline double precision NOT NULL,
    enqueued_at double precision NOT NULL,
    state integer NOT NULL DEFAULT 0,
    owner text NOT NULL DEFAULT '',
    claimed_at double precision NOT NULL DEFAULT 0,
    number bigint NOT NULL DEFAULT 0,
    changes_at double precision,
    gen bigint NOT NULL
);

CREATE INDEX queue_entry_waiting ON agent_dispatch.queue_entry (grp, class, deadline, enqueued_at, job_id)
    WHERE state = 0;
CREATE UNIQUE INDEX queue_entry_out ON agent_dispatch.queue_entry (grp) WHERE state = 2;
CREATE INDEX queue_entry_changing ON agent_dispatch.queue_entry (gen, changes_at) WHERE changes_at IS NOT NULL;

-- Two locks, for the length of a transaction: the first for who admits, the second for who changes the order. Whoever
-- takes both takes them in this order. A third is held, shared, by each receiver that waits.
CREATE FUNCTION agent_dispatch.queue_lock(which integer) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT 7018690069354607360 + which
$$;

CREATE FUNCTION agent_dispatch.queue_reference(tenant text, session_id text) RETURNS uuid LANGUAGE sql STABLE AS $$
    SELECT encode(substr(sha256(
        convert_to(coalesce(tenant, ''), 'UTF8') || coalesce('\x00'::bytea || convert_to(session_id, 'UTF8'), '')
    ), 1, 16), 'hex')::uuid
$$;

CREATE FUNCTION agent_dispatch.queue_now(given double precision) RETURNS double precision LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(given, extract(epoch FROM clock_timestamp())::double precision)
$$;

CREATE FUNCTION agent_dispatch.queue_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO agent_dispatch.queue_note (change, job_id, tenant, grp, priority, deadline, enqueued_at)
        SELECT 1, n.job_id, agent_dispatch.queue_reference(n.tenant, NULL),
            agent_dispatch.queue_reference(n.tenant, coalesce(nullif(n.session_id, ''), n.job_id)),
            CASE WHEN n.priority BETWEEN 0 AND 3 THEN n.priority ELSE 3 END,
            coalesce(n.deadline, 'Infinity'), coalesce(n.enqueued_at, 0)
        FROM new_rows AS n;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO agent_dispatch.queue_note (change, job_id, tenant, grp, priority, deadline, enqueued_at)
        SELECT -1, o.job_id, agent_dispatch.queue_reference(o.tenant, NULL),
            agent_dispatch.queue_reference(o.tenant, coalesce(nullif(o.session_id, ''), o.job_id)), 0, 0, 0
        FROM old_rows AS o;
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO agent_dispatch.queue_step (step) SELECT count(*) FROM new_rows HAVING count(*) > 0;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO agent_dispatch.queue_step (step) SELECT -count(*) FROM old_rows HAVING count(*) > 0;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER queue_came AFTER INSERT ON agent_dispatch.agent_dispatch_queue
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION agent_dispatch.queue_changed();
CREATE OR REPLACE TRIGGER queue_went AFTER DELETE ON agent_dispatch.agent_dispatch_queue
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION agent_dispatch.queue_changed();
CREATE OR REPLACE TRIGGER queue_rewritten AFTER UPDATE ON agent_dispatch.agent_dispatch_queue
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION agent_dispatch.queue_changed();

CREATE FUNCTION agent_dispatch.queue_emptied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE agent_dispatch.queue_depth, agent_dispatch.queue_step, agent_dispatch.queue_note,
        agent_dispatch.queue_order, agent_dispatch.queue_tenant, agent_dispatch.queue_group,
        agent_dispatch.queue_lane, agent_dispatch.queue_entry;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER queue_emptied AFTER TRUNCATE ON agent_dispatch.agent_dispatch_queue
    FOR EACH STATEMENT EXECUTE FUNCTION agent_dispatch.queue_emptied();

-- Make all that is not logged anew, if it is gone. What was committed meanwhile is either among the rows seen here, and
-- its notes go, or it isn't, and they stay: one snapshot decides.
CREATE FUNCTION agent_dispatch.queue_rebuild() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    beginning xid8;
BEGIN
    IF (SELECT max(version) FROM agent_dispatch.queue_order) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(agent_dispatch.queue_lock(1));
    PERFORM pg_advisory_xact_lock(agent_dispatch.queue_lock(2));
    IF (SELECT max(version) FROM agent_dispatch.queue_order) IS NOT NULL THEN
        RETURN;
    END IF;
    beginning := pg_snapshot_xmin(pg_current_snapshot());
    WITH queued AS MATERIALIZED (
        SELECT * FROM agent_dispatch.agent_dispatch_queue
    ), no_notes AS (
        DELETE FROM agent_dispatch.queue_note
    ), no_steps AS (
        DELETE FROM agent_dispatch.queue_step
    ), noted AS (
        INSERT INTO agent_dispatch.queue_note (change, job_id, tenant, grp, priority, deadline, enqueued_at)
        SELECT 1, q.job_id, agent_dispatch.queue_reference(q.tenant, NULL),
            agent_dispatch.queue_reference(q.tenant, coalesce(nullif(q.session_id, ''), q.job_id)),
            CASE WHEN q.priority BETWEEN 0 AND 3 THEN q.priority ELSE 3 END,
            coalesce(q.deadline, 'Infinity'), coalesce(q.enqueued_at, 0)
        FROM queued AS q
    )
    INSERT INTO agent_dispatch.queue_depth (version, depth, since) SELECT 1, count(*), beginning FROM queued;
    INSERT INTO agent_dispatch.queue_order (version, claims, since, gen, moves, size) VALUES (1, 0, beginning, 1, 0, 0);
END
$$;

CREATE FUNCTION agent_dispatch.queue_depth() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT newest.depth
            + (SELECT coalesce(sum(s.step), 0) FROM agent_dispatch.queue_step AS s WHERE s.transaction >= newest.since)
        FROM (SELECT * FROM agent_dispatch.queue_depth ORDER BY version DESC LIMIT 1) AS newest
    );
END
$$;

-- The depth, to who admits, alone. If there are many steps by now they are folded into it.
CREATE FUNCTION agent_dispatch.queue_add_up() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    newest agent_dispatch.queue_depth;
    beginning xid8 := pg_snapshot_xmin(pg_current_snapshot());
    steps bigint;
    total bigint;
BEGIN
    SELECT * INTO newest FROM agent_dispatch.queue_depth ORDER BY version DESC LIMIT 1;
    SELECT count(*), coalesce(sum(step), 0) INTO steps, total
    FROM agent_dispatch.queue_step WHERE transaction >= newest.since;
    IF steps < 50 THEN
        RETURN newest.depth + total;
    END IF;
    WITH gone AS (
        DELETE FROM agent_dispatch.queue_step WHERE transaction >= newest.since RETURNING step
    ), older AS (
        DELETE FROM agent_dispatch.queue_depth WHERE version = newest.version
    )
    INSERT INTO agent_dispatch.queue_depth (version, depth, since)
    SELECT newest.version + 1, newest.depth + coalesce(sum(step), 0), beginning FROM gone
    RETURNING depth INTO total;
    RETURN total;
END
$$;

-- Admit those that are new, in order, as long as there is room. The answer: those that are there now. A refusal takes no
-- lock.
CREATE FUNCTION agent_dispatch.queue_put(
    most bigint, job_ids text[], session_ids text[], kinds text[], payload_refs text[], tenants text[],
    priorities integer[], deadlines double precision[], attempts integer[], times double precision[]
) RETURNS SETOF text LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    known text[] := ARRAY(SELECT job_id FROM agent_dispatch.agent_dispatch_queue WHERE job_id = ANY (job_ids));
    came text[] := '{}';
    depth bigint := agent_dispatch.queue_depth();
    room bigint;
BEGIN
    IF depth IS NULL THEN
        PERFORM agent_dispatch.queue_rebuild();
        depth := agent_dispatch.queue_depth();
    END IF;
    IF depth < most AND (known = '{}' OR cardinality(known) < (SELECT count(DISTINCT n) FROM unnest(job_ids) AS n)) THEN
        PERFORM pg_advisory_xact_lock(agent_dispatch.queue_lock(1));
        room := most - agent_dispatch.queue_add_up();
        WITH put AS (
            INSERT INTO agent_dispatch.agent_dispatch_queue
                (job_id, session_id, kind, payload_ref, tenant, priority, deadline, attempt, enqueued_at)
            SELECT first.job_id, session_id, kind, payload_ref, tenant, priority, nullif(deadline, 'Infinity'), attempt,
                enqueued_at
            FROM (
                SELECT DISTINCT ON (job_id) *
                FROM unnest(job_ids, session_ids, kinds, payload_refs, tenants, priorities, deadlines, attempts, times)
                    WITH ORDINALITY AS given (
                        job_id, session_id, kind, payload_ref, tenant, priority, deadline, attempt, enqueued_at, place
                    )
                WHERE NOT EXISTS (
                    SELECT 1 FROM agent_dispatch.agent_dispatch_queue AS q WHERE q.job_id = given.job_id
                )
                ORDER BY job_id, place
            ) AS first
            ORDER BY place LIMIT greatest(room, 0)
            ON CONFLICT (job_id) DO NOTHING
            RETURNING job_id
        )
        SELECT array_agg(job_id) INTO came FROM put;
        IF came IS NULL OR cardinality(came) < cardinality(job_ids) THEN  -- others may have put the same meanwhile
            known := ARRAY(SELECT job_id FROM agent_dispatch.agent_dispatch_queue WHERE job_id = ANY (job_ids)) || known;
        END IF;
    END IF;
    RETURN QUERY SELECT DISTINCT there FROM unnest(known || came) AS there;
END
$$;

-- Receipts come as four arrays, and answers with their places in these, from 1. Here: of each whose delivery there was,
-- whether it was theirs and is gone now, and whether others of its group wait.
CREATE FUNCTION agent_dispatch.queue_acknowledge(
    job_ids text[], owners text[], times double precision[], numbers bigint[]
) RETURNS TABLE (place bigint, gone boolean, more boolean) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    ours text[];
    places bigint[];
BEGIN
    SELECT array_agg(o.job_id), array_agg(o.place) INTO ours, places
    FROM agent_dispatch.queue_held(job_ids, owners, times, numbers) AS o;
    RETURN QUERY
    SELECT r.place, false, false
    FROM unnest(job_ids) WITH ORDINALITY AS r (job_id, place)
    JOIN agent_dispatch.agent_dispatch_queue AS q ON q.job_id = r.job_id
    WHERE places IS NULL OR r.place <> ALL (places);
    RETURN QUERY
    WITH deleted AS (
        DELETE FROM agent_dispatch.agent_dispatch_queue AS q WHERE q.job_id = ANY (ours) RETURNING q.job_id
    )
    SELECT o.place, true, g.size > 1
    FROM unnest(ours, places) AS o (job_id, place)
    JOIN deleted AS d ON d.job_id = o.job_id
    JOIN agent_dispatch.queue_entry AS e ON e.job_id = d.job_id
    JOIN agent_dispatch.queue_group AS g ON g.gen = e.gen AND g.grp = e.grp;
END
$$;

-- Which of these receipts hold a delivery: no other has an owner. Nobody else claims those meanwhile.
CREATE FUNCTION agent_dispatch.queue_held(
    job_ids text[], owners text[], times double precision[], numbers bigint[]
) RETURNS TABLE (job_id text, place bigint, grp uuid) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT e.job_id, r.place, e.grp
    FROM unnest(job_ids, owners, times, numbers) WITH ORDINALITY AS r (job_id, owner, claimed_at, number, place)
    JOIN agent_dispatch.queue_entry AS e ON e.job_id = r.job_id AND e.owner = r.owner AND e.number = r.number
        AND e.claimed_at = r.claimed_at
    ORDER BY e.job_id, r.place FOR UPDATE OF e;
END
$$;

-- Of those whose receiver is still there, and the delivery too.
CREATE FUNCTION agent_dispatch.queue_extend(
    job_ids text[], owners text[], times double precision[], numbers bigint[], visibility double precision,
    given_now double precision
) RETURNS SETOF bigint LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    ours text[];
    places bigint[];
BEGIN
    SELECT array_agg(o.job_id), array_agg(o.place) INTO ours, places
    FROM agent_dispatch.queue_held(job_ids, owners, times, numbers) AS o
    JOIN agent_dispatch.agent_dispatch_queue AS q ON q.job_id = o.job_id;
    UPDATE agent_dispatch.queue_entry SET changes_at = agent_dispatch.queue_now(given_now) + visibility
    WHERE job_id = ANY (ours);
    RETURN QUERY SELECT unnest(places);
END
$$;

-- The same receipt twice gives back once.
CREATE FUNCTION agent_dispatch.queue_give_back(
    job_ids text[], owners text[], times double precision[], numbers bigint[], delay double precision,
    given_now double precision
) RETURNS SETOF bigint LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    ours text[];
    places bigint[];
    groups uuid[];
    gen bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(agent_dispatch.queue_lock(2));
    SELECT o.gen INTO gen FROM agent_dispatch.queue_order AS o ORDER BY version DESC LIMIT 1;
    SELECT array_agg(o.job_id), array_agg(o.place), array_agg(o.grp) INTO ours, places, groups
    FROM (
        SELECT job_id, grp, min(place) AS place
        FROM agent_dispatch.queue_held(job_ids, owners, times, numbers) GROUP BY job_id, grp
    ) AS o;
    UPDATE agent_dispatch.queue_entry
    SET state = 1, owner = '', number = 0, changes_at = agent_dispatch.queue_now(given_now) + delay
    WHERE job_id = ANY (ours);
    PERFORM agent_dispatch.queue_refresh(gen, groups);
    RETURN QUERY SELECT unnest(places);
END
$$;

-- What follows from a change to these groups, or to entries of theirs: the first of each, and the first of each lane
-- that they were or are in.
CREATE FUNCTION agent_dispatch.queue_refresh(now_gen bigint, groups uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    tenants uuid[];
    classes integer[];
BEGIN
    IF groups IS NULL THEN
        RETURN;
    END IF;
    WITH first AS (
        SELECT g.grp, g.class AS before, f.*
        FROM agent_dispatch.queue_group AS g
        LEFT JOIN LATERAL (
            SELECT e.class, e.deadline, e.enqueued_at, e.job_id FROM agent_dispatch.queue_entry AS e
            WHERE e.grp = g.grp AND e.state = 0 AND NOT EXISTS (
                SELECT 1 FROM agent_dispatch.queue_entry AS o WHERE o.grp = g.grp AND o.state = 2
            )
            ORDER BY e.class, e.deadline, e.enqueued_at, e.job_id LIMIT 1
        ) AS f ON true
        WHERE g.gen = now_gen AND g.grp = ANY (groups)
    ), changed AS (
        UPDATE agent_dispatch.queue_group AS g
        SET class = first.class, deadline = first.deadline, enqueued_at = first.enqueued_at, job_id = first.job_id
        FROM first WHERE g.gen = now_gen AND g.grp = first.grp
        RETURNING g.tenant, first.before, g.class
    ), lanes AS (
        SELECT tenant, before AS class FROM changed WHERE before IS NOT NULL
        UNION
        SELECT tenant, class FROM changed WHERE class IS NOT NULL
    )
    SELECT array_agg(tenant), array_agg(class) INTO tenants, classes FROM lanes;
    IF tenants IS NULL THEN
        RETURN;
    END IF;
    PERFORM agent_dispatch.queue_refresh_lanes(now_gen, tenants, classes);
END
$$;

CREATE FUNCTION agent_dispatch.queue_refresh_lanes(
    now_gen bigint, tenants uuid[], classes integer[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM agent_dispatch.queue_lane AS l USING unnest(tenants, classes) AS touched (tenant, class)
    WHERE l.gen = now_gen AND l.tenant = touched.tenant AND l.class = touched.class AND NOT EXISTS (
        SELECT 1 FROM agent_dispatch.queue_group AS g
        WHERE g.gen = now_gen AND g.tenant = l.tenant AND g.class = l.class
    );
    INSERT INTO agent_dispatch.queue_lane (gen, tenant, class, served, deadline, enqueued_at, job_id, grp)
    SELECT now_gen, touched.tenant, touched.class, t.served, f.deadline, f.enqueued_at, f.job_id, f.grp
    FROM unnest(tenants, classes) AS touched (tenant, class)
    JOIN agent_dispatch.queue_tenant AS t ON t.gen = now_gen AND t.tenant = touched.tenant
    CROSS JOIN LATERAL (
        SELECT g.deadline, g.enqueued_at, g.job_id, g.grp FROM agent_dispatch.queue_group AS g
        WHERE g.gen = now_gen AND g.tenant = touched.tenant AND g.class = touched.class
        ORDER BY g.served, g.deadline, g.enqueued_at, g.job_id LIMIT 1
    ) AS f
    ON CONFLICT (gen, tenant, class) DO UPDATE SET
        served = excluded.served, deadline = excluded.deadline, enqueued_at = excluded.enqueued_at,
        job_id = excluded.job_id, grp = excluded.grp;
END
$$;

-- Work off the notes. A delivery is there afterwards if it was and nothing happened on balance, or if it wasn't and came.
CREATE FUNCTION agent_dispatch.queue_fold(
    INOUT state agent_dispatch.queue_order, now double precision
) LANGUAGE plpgsql AS $$
DECLARE
    ids text[]; changes integer[]; tenants uuid[]; groups uuid[];
    priorities integer[]; deadlines double precision[]; times double precision[];
    existed text[];
    beginning xid8 := pg_snapshot_xmin(pg_current_snapshot());
BEGIN
    WITH gone AS (DELETE FROM agent_dispatch.queue_note WHERE transaction >= state.since RETURNING *)
    SELECT array_agg(job_id ORDER BY number), array_agg(change ORDER BY number), array_agg(tenant ORDER BY number),
        array_agg(grp ORDER BY number), array_agg(priority ORDER BY number), array_agg(deadline ORDER BY number),
        array_agg(enqueued_at ORDER BY number)
    INTO ids, changes, tenants, groups, priorities, deadlines, times FROM gone;
    IF ids IS NULL THEN
        RETURN;
    END IF;
    state.since := beginning;
    state.moves := state.moves + cardinality(ids);
    state.size := state.size + (SELECT sum(change) FROM unnest(changes) AS change);
    WITH gone AS (DELETE FROM agent_dispatch.queue_entry WHERE job_id = ANY (ids) RETURNING job_id)
    SELECT coalesce(array_agg(job_id), '{}') INTO existed FROM gone;
    WITH note AS (
        SELECT * FROM unnest(ids, changes, tenants, groups, priorities, deadlines, times) WITH ORDINALITY
            AS n (job_id, change, tenant, grp, priority, deadline, enqueued_at, place)
    ), balance AS (
        SELECT job_id, sum(change) AS change FROM note GROUP BY job_id
    )
    INSERT INTO agent_dispatch.queue_entry
        (gen, job_id, tenant, grp, priority, class, deadline, enqueued_at, changes_at)
    SELECT DISTINCT ON (n.job_id) state.gen, n.job_id, n.tenant, n.grp, n.priority,
        n.priority - CASE WHEN n.deadline < now THEN 4 ELSE 0 END, n.deadline, n.enqueued_at,
        CASE WHEN n.deadline < now THEN NULL ELSE nullif(n.deadline, 'Infinity') END
    FROM note AS n
    JOIN balance AS b USING (job_id)
    LEFT JOIN unnest(existed) AS before ON before = n.job_id
    WHERE n.change = 1 AND b.change + CASE WHEN before IS NULL THEN 0 ELSE 1 END > 0
    ORDER BY n.job_id, n.place DESC;
    MERGE INTO agent_dispatch.queue_tenant AS t USING (
        SELECT tenant, sum(change) AS change, min(level) AS low FROM (
            SELECT tenant, change, sum(change) OVER (PARTITION BY tenant ORDER BY place) AS level
            FROM unnest(tenants, changes) WITH ORDINALITY AS n (tenant, change, place)
        ) AS levels GROUP BY tenant
    ) AS tally ON t.gen = state.gen AND t.tenant = tally.tenant
    WHEN MATCHED THEN UPDATE SET
        size = t.size + tally.change, served = CASE WHEN t.size + tally.low <= 0 THEN 0 ELSE t.served END
    WHEN NOT MATCHED THEN INSERT (gen, tenant, size) VALUES (state.gen, tally.tenant, tally.change);
    MERGE INTO agent_dispatch.queue_group AS g USING (
        SELECT grp, tenant, sum(change) AS change, min(level) AS low FROM (
            SELECT grp, tenant, change, sum(change) OVER (PARTITION BY grp ORDER BY place) AS level
            FROM unnest(groups, tenants, changes) WITH ORDINALITY AS n (grp, tenant, change, place)
        ) AS levels GROUP BY grp, tenant
    ) AS tally ON g.gen = state.gen AND g.grp = tally.grp
    WHEN MATCHED THEN UPDATE SET
        size = g.size + tally.change, served = CASE WHEN g.size + tally.low <= 0 THEN 0 ELSE g.served END
    WHEN NOT MATCHED THEN INSERT (gen, grp, tenant, size) VALUES (state.gen, tally.grp, tally.tenant, tally.change);
    DELETE FROM agent_dispatch.queue_group AS g
    WHERE g.gen = state.gen AND g.grp = ANY (groups) AND g.size <= 0 AND g.class IS NULL;
    PERFORM agent_dispatch.queue_refresh(state.gen, groups);
    DELETE FROM agent_dispatch.queue_group AS g WHERE g.gen = state.gen AND g.grp = ANY (groups) AND g.size <= 0;
    DELETE FROM agent_dispatch.queue_tenant AS t WHERE t.gen = state.gen AND t.tenant = ANY (tenants) AND t.size <= 0;
END
$$;

-- By who has put much: before receivers have to.
CREATE FUNCTION agent_dispatch.queue_work_off(given_now double precision) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    before agent_dispatch.queue_order;
BEGIN
    PERFORM agent_dispatch.queue_rebuild();
    PERFORM pg_advisory_xact_lock(agent_dispatch.queue_lock(2));
    SELECT * INTO before FROM agent_dispatch.queue_order ORDER BY version DESC LIMIT 1;
    PERFORM agent_dispatch.queue_keep(
        before, agent_dispatch.queue_fold(before, agent_dispatch.queue_now(given_now))
    );
END
$$;

CREATE FUNCTION agent_dispatch.queue_keep(
    before agent_dispatch.queue_order, after agent_dispatch.queue_order
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF after IS DISTINCT FROM before THEN
        DELETE FROM agent_dispatch.queue_order WHERE version = before.version;
        INSERT INTO agent_dispatch.queue_order (version, claims, since, gen, moves, size)
        VALUES (before.version + 1, after.claims, after.since, after.gen, after.moves, after.size);
    END IF;
END
$$;

-- The living move to the next generation, if so much has happened in this one that it is worth it.
CREATE FUNCTION agent_dispatch.queue_move_on(INOUT state agent_dispatch.queue_order) LANGUAGE plpgsql AS $$
BEGIN
    IF state.moves < 1000 + state.size THEN
        RETURN;
    END IF;
    UPDATE agent_dispatch.queue_tenant SET gen = state.gen + 1 WHERE gen = state.gen;
    UPDATE agent_dispatch.queue_group SET gen = state.gen + 1 WHERE gen = state.gen;
    UPDATE agent_dispatch.queue_lane SET gen = state.gen + 1 WHERE gen = state.gen;
    UPDATE agent_dispatch.queue_entry SET gen = state.gen + 1 WHERE gen = state.gen AND changes_at IS NOT NULL;
    state.gen := state.gen + 1;
    state.moves := 0;
END
$$;

-- What time alone has changed: deadlines that passed, delays and receivers' times that are over. One whose
-- acknowledgement is under way is passed over.
CREATE FUNCTION agent_dispatch.queue_change(now_gen bigint, now double precision) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    groups uuid[];
BEGIN
    WITH due AS (
        SELECT job_id FROM agent_dispatch.queue_entry
        WHERE gen = now_gen AND changes_at <= now AND (state <> 0 OR deadline < now)
        FOR UPDATE SKIP LOCKED
    ), changed AS (
        UPDATE agent_dispatch.queue_entry AS e
        SET state = 0, owner = '', number = 0, class = e.priority - CASE WHEN e.deadline < now THEN 4 ELSE 0 END,
            changes_at = CASE WHEN e.deadline < now THEN NULL ELSE nullif(e.deadline, 'Infinity') END
        FROM due WHERE e.job_id = due.job_id
        RETURNING e.grp
    )
    SELECT array_agg(DISTINCT grp) INTO groups FROM changed;
    PERFORM agent_dispatch.queue_refresh(now_gen, groups);
END
$$;

-- Whether a receiver would find anything.
CREATE FUNCTION agent_dispatch.queue_is_due(now double precision) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    state agent_dispatch.queue_order;
BEGIN
    SELECT * INTO state FROM agent_dispatch.queue_order ORDER BY version DESC LIMIT 1;
    RETURN state.version IS NULL
        OR EXISTS (SELECT 1 FROM agent_dispatch.queue_note WHERE transaction >= state.since)
        OR EXISTS (SELECT 1 FROM agent_dispatch.queue_lane AS l WHERE l.gen = state.gen)
        OR EXISTS (SELECT 1 FROM agent_dispatch.queue_entry AS e WHERE e.gen = state.gen AND e.changes_at <= now);
END
$$;

-- The next ones, at most so many, as if one by one.
CREATE FUNCTION agent_dispatch.queue_receive(
    receiver text, most integer, visibility double precision, given_now double precision
) RETURNS TABLE (
    number bigint, claimed_at double precision, job_id text, session_id text, kind text, payload_ref text, tenant text,
    priority integer, deadline double precision, attempt integer, enqueued_at double precision
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    before agent_dispatch.queue_order;
    state agent_dispatch.queue_order;
    now double precision := agent_dispatch.queue_now(given_now);
    began timestamptz;
    claimed text[];
BEGIN
    IF NOT agent_dispatch.queue_is_due(now) THEN
        RETURN;
    END IF;
    IF (SELECT max(version) FROM agent_dispatch.queue_order) IS NULL THEN
        PERFORM agent_dispatch.queue_rebuild();
    END IF;
    PERFORM pg_advisory_xact_lock(agent_dispatch.queue_lock(2));
    LOOP
        began := clock_timestamp();
        now := agent_dispatch.queue_now(given_now);
        SELECT * INTO before FROM agent_dispatch.queue_order ORDER BY version DESC LIMIT 1;
        state := agent_dispatch.queue_fold(before, now);
        PERFORM agent_dispatch.queue_change(state.gen, now);
        claimed := agent_dispatch.queue_claim(state.gen, receiver, most, state.claims, now, now + visibility);
        state.claims := state.claims + cardinality(claimed);
        state.moves := state.moves + cardinality(claimed);
        IF clock_timestamp() - began > interval '2 ms' THEN
            state := agent_dispatch.queue_move_on(state);
        END IF;
        PERFORM agent_dispatch.queue_keep(before, state);
        RETURN QUERY
        SELECT e.number, e.claimed_at, q.job_id, q.session_id, q.kind, q.payload_ref, q.tenant, q.priority, q.deadline,
            q.attempt, q.enqueued_at
        FROM agent_dispatch.queue_entry AS e JOIN agent_dispatch.agent_dispatch_queue AS q ON q.job_id = e.job_id
        WHERE e.job_id = ANY (claimed)
        ORDER BY e.number;
        EXIT WHEN FOUND OR claimed = '{}';  -- or all that was claimed has gone meanwhile: there are notes of it
    END LOOP;
END
$$;

-- The next ones, by the tables of the order; the ids, in the order of the claims. In each round the lanes of the best
-- class that has any are served, each once, in their order, as many as are wanted; a lane that is alone goes on to be
-- served.
CREATE FUNCTION agent_dispatch.queue_claim(
    now_gen bigint, receiver text, most integer, claims bigint, now double precision, until double precision
) RETURNS text[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    claimed text[] := '{}';
    tenants uuid[];
    groups uuid[];
    jobs text[];
    best integer;
    base bigint;
BEGIN
    WHILE cardinality(claimed) < most LOOP
        base := claims + cardinality(claimed);
        SELECT min(class), array_agg(tenant), array_agg(grp), array_agg(job_id) INTO best, tenants, groups, jobs
        FROM (
            SELECT * FROM agent_dispatch.queue_lane
            WHERE gen = now_gen
                AND class = (SELECT class FROM agent_dispatch.queue_lane WHERE gen = now_gen ORDER BY class LIMIT 1)
            ORDER BY class, served, deadline, enqueued_at, job_id LIMIT most - cardinality(claimed)
        ) AS lane;
        EXIT WHEN best IS NULL;
        IF cardinality(tenants) = 1 AND cardinality(claimed) + 1 < most THEN
            SELECT array_agg(grp), array_agg(job_id) INTO groups, jobs
            FROM (
                SELECT grp, job_id FROM agent_dispatch.queue_group
                WHERE gen = now_gen AND tenant = tenants[1] AND class = best
                ORDER BY served, deadline, enqueued_at, job_id LIMIT most - cardinality(claimed)
            ) AS ready;
        END IF;
        claimed := claimed || jobs;
        UPDATE agent_dispatch.queue_entry AS e
        SET state = 2, owner = receiver, claimed_at = now, number = base + place, changes_at = until,
            gen = now_gen
        FROM unnest(jobs) WITH ORDINALITY AS chosen (job_id, place) WHERE e.job_id = chosen.job_id;
        UPDATE agent_dispatch.queue_group AS g SET served = base + place, class = NULL
        FROM unnest(groups) WITH ORDINALITY AS chosen (grp, place)
        WHERE g.gen = now_gen AND g.grp = chosen.grp;
        IF cardinality(tenants) = 1 THEN
            UPDATE agent_dispatch.queue_tenant SET served = base + cardinality(jobs)
            WHERE gen = now_gen AND tenant = tenants[1];
        ELSE
            UPDATE agent_dispatch.queue_tenant AS t SET served = base + place
            FROM unnest(tenants) WITH ORDINALITY AS chosen (tenant, place)
            WHERE t.gen = now_gen AND t.tenant = chosen.tenant;
        END IF;
        PERFORM agent_dispatch.queue_refresh_lanes(now_gen, tenants, array_fill(best, ARRAY[cardinality(tenants)]));
        UPDATE agent_dispatch.queue_lane AS l SET served = t.served
        FROM agent_dispatch.queue_tenant AS t
        WHERE t.gen = now_gen AND t.tenant = ANY (tenants)
            AND l.gen = now_gen AND l.tenant = t.tenant AND l.class <> best;
    END LOOP;
    RETURN claimed;
END
$$;
