-- A queue of deliveries, and beside it what is needed to tell at once which one is next.
--
-- Only `agent_dispatch_queue` is written by those who put and acknowledge, who may be anybody, and only it is logged.
-- All else follows from it, save who was served when, and is made anew after a crash has emptied it (`queue_count`,
-- `queue_rebuild`).
-- Triggers note what came and went. A receiver, before it claims, works the notes off; receivers do so one at a time, so
-- that the tables of the order have one writer, and those who put or acknowledge never wait for them. Most statements
-- look one row up by its key, and say so: nobody knows how many rows there will be when they are planned.
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

-- What came (1) and went (-1, and then there is no more to say), in order; what was rewritten came and went.
CREATE UNLOGGED TABLE agent_dispatch.queue_note (
    number bigint GENERATED ALWAYS AS IDENTITY,
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    change integer NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    tenant uuid,
    grp uuid,
    priority integer,
    deadline double precision,
    enqueued_at double precision
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

-- When a claim served a tenant last, by its number: of each that was served, and has a group still.
CREATE UNLOGGED TABLE agent_dispatch.queue_tenant (
    gen bigint NOT NULL,
    tenant uuid NOT NULL,
    served bigint NOT NULL,
    PRIMARY KEY (gen, tenant)
);

-- A fairness group: since when (the version of the order, and the number of the note) it is there, how many deliveries it
-- has (with the last, it goes), when it was served last (0 is never), and whether one of it is out. With one that may be
-- handed out, and none that is out, it is ready: the columns from `class` on are those of its first. `class` is the
-- priority, less 4 where the deadline has passed.
CREATE UNLOGGED TABLE agent_dispatch.queue_group (
    gen bigint NOT NULL,
    tenant uuid NOT NULL,
    grp uuid NOT NULL,
    version bigint NOT NULL,
    came bigint NOT NULL,
    size bigint NOT NULL DEFAULT 1,
    served bigint NOT NULL DEFAULT 0,
    is_out boolean NOT NULL DEFAULT false,
    class integer,
    deadline double precision,
    enqueued_at double precision,
    job_id text COLLATE "C",
    PRIMARY KEY (gen, tenant, grp)
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

-- A delivery as the order knows it. It is out, by claim `number` of `owner`; or it waits, and has the class that its group
-- would have if it were the first; or it is not due. The next of a group is looked for among those that are listed: one
-- that is alone in its group from the beginning isn't, until it has company or is let go. `changes_at` is when time alone
-- changes something about it; only then `gen` means anything. A deadline that is none is infinite. `surplus`: it came so
-- often before it went, as what is rewritten does. `again`: it was put once more while it is out.
CREATE UNLOGGED TABLE agent_dispatch.queue_entry (
    job_id text COLLATE "C" NOT NULL PRIMARY KEY,
    tenant uuid NOT NULL,
    grp uuid NOT NULL,
    priority integer NOT NULL,
    class integer,
    deadline double precision NOT NULL,
    enqueued_at double precision NOT NULL,
    is_listed boolean NOT NULL,
    owner text NOT NULL DEFAULT '',
    claimed_at double precision NOT NULL DEFAULT 0,
    number bigint NOT NULL DEFAULT 0,
    changes_at double precision,
    gen bigint NOT NULL,
    surplus integer NOT NULL DEFAULT 0,
    again boolean NOT NULL DEFAULT false
);

CREATE INDEX queue_entry_listed ON agent_dispatch.queue_entry (grp, class, deadline, enqueued_at, job_id)
    WHERE is_listed AND class IS NOT NULL;
CREATE INDEX queue_entry_changing ON agent_dispatch.queue_entry (gen, changes_at) WHERE changes_at IS NOT NULL;

-- Two locks, for the length of a transaction: the first for who admits, the second for who changes the order. Nothing
-- here takes both. A third is held, shared, by each receiver that waits.
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
DECLARE
    came bigint := 0;
    went bigint := 0;
BEGIN
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO agent_dispatch.queue_note (change, job_id, tenant, grp, priority, deadline, enqueued_at)
        SELECT 1, n.job_id, agent_dispatch.queue_reference(n.tenant, NULL),
            agent_dispatch.queue_reference(n.tenant, coalesce(nullif(n.session_id, ''), n.job_id)),
            CASE WHEN n.priority BETWEEN 0 AND 3 THEN n.priority ELSE 3 END,
            coalesce(n.deadline, 'Infinity'), coalesce(n.enqueued_at, 0)
        FROM new_rows AS n;
        GET DIAGNOSTICS came = ROW_COUNT;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO agent_dispatch.queue_note (change, job_id) SELECT -1, job_id FROM old_rows;
        GET DIAGNOSTICS went = ROW_COUNT;
    END IF;
    IF came <> went THEN
        INSERT INTO agent_dispatch.queue_step (step) VALUES (came - went);
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

-- Make the depth anew, if it is gone. What was committed meanwhile is either among the rows seen here, and its steps go,
-- or it isn't, and they stay: one snapshot decides.
CREATE FUNCTION agent_dispatch.queue_count() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(agent_dispatch.queue_lock(1));
    IF EXISTS (SELECT 1 FROM agent_dispatch.queue_depth) THEN
        RETURN;
    END IF;
    WITH no_steps AS (DELETE FROM agent_dispatch.queue_step)
    INSERT INTO agent_dispatch.queue_depth (version, depth, since)
    SELECT 1, count(*), pg_snapshot_xmin(pg_current_snapshot()) FROM agent_dispatch.agent_dispatch_queue;
END
$$;

-- Make the order anew, if it is gone, in the same way; notes that stay follow those that are made here.
CREATE FUNCTION agent_dispatch.queue_rebuild(OUT state agent_dispatch.queue_order) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(agent_dispatch.queue_lock(2));
    SELECT * INTO state FROM agent_dispatch.queue_order ORDER BY version DESC LIMIT 1;
    IF FOUND THEN
        RETURN;
    END IF;
    WITH no_notes AS (
        DELETE FROM agent_dispatch.queue_note
    ), noted AS (
        INSERT INTO agent_dispatch.queue_note
            (number, change, job_id, tenant, grp, priority, deadline, enqueued_at) OVERRIDING SYSTEM VALUE
        SELECT -row_number() OVER (), 1, q.job_id, agent_dispatch.queue_reference(q.tenant, NULL),
            agent_dispatch.queue_reference(q.tenant, coalesce(nullif(q.session_id, ''), q.job_id)),
            CASE WHEN q.priority BETWEEN 0 AND 3 THEN q.priority ELSE 3 END,
            coalesce(q.deadline, 'Infinity'), coalesce(q.enqueued_at, 0)
        FROM agent_dispatch.agent_dispatch_queue AS q
    )
    INSERT INTO agent_dispatch.queue_order (version, claims, since, gen, moves, size)
    VALUES (1, 0, pg_snapshot_xmin(pg_current_snapshot()), 1, 0, 0) RETURNING * INTO state;
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
    newest bigint;
    beginning xid8;
    steps bigint;
    total bigint;
BEGIN
    SELECT d.version, d.since, d.depth + s.total, s.steps INTO newest, beginning, total, steps
    FROM (SELECT * FROM agent_dispatch.queue_depth ORDER BY version DESC LIMIT 1) AS d CROSS JOIN LATERAL (
        SELECT count(*) AS steps, coalesce(sum(step), 0) AS total
        FROM agent_dispatch.queue_step WHERE transaction >= d.since
    ) AS s;
    IF steps >= 50 THEN
        WITH gone AS (DELETE FROM agent_dispatch.queue_step WHERE transaction >= beginning RETURNING step)
        UPDATE agent_dispatch.queue_depth AS d
        SET version = newest + 1, depth = d.depth + s.total, since = pg_snapshot_xmin(pg_current_snapshot())
        FROM (SELECT sum(step) AS total FROM gone) AS s WHERE d.version = newest
        RETURNING d.depth INTO total;
    END IF;
    RETURN total;
END
$$;

-- Admit those that are new, in order, as long as there is room. The answer: those that are there now. A refusal waits for
-- no lock.
CREATE FUNCTION agent_dispatch.queue_put(
    most bigint, job_ids text[], session_ids text[], kinds text[], payload_refs text[], tenants text[],
    priorities integer[], deadlines double precision[], attempts integer[], times double precision[]
) RETURNS SETOF text LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    known text[] := '{}';
    wanted integer := cardinality(job_ids);
    room bigint := 0;
    is_enough boolean;
    came integer := 0;
BEGIN
    IF pg_try_advisory_xact_lock(agent_dispatch.queue_lock(1)) THEN
        room := most - agent_dispatch.queue_add_up();
    ELSIF coalesce(agent_dispatch.queue_depth() < most, true) THEN
        PERFORM pg_advisory_xact_lock(agent_dispatch.queue_lock(1));
        room := most - agent_dispatch.queue_add_up();
    END IF;
    IF room IS NULL THEN
        PERFORM agent_dispatch.queue_count();
        room := most - agent_dispatch.queue_add_up();
    END IF;
    is_enough := room >= wanted;
    IF NOT is_enough THEN
        known := ARRAY(SELECT job_id FROM agent_dispatch.agent_dispatch_queue WHERE job_id = ANY (job_ids));
    END IF;
    LOOP
        IF room > 0 THEN
            INSERT INTO agent_dispatch.agent_dispatch_queue
                (job_id, session_id, kind, payload_ref, tenant, priority, deadline, attempt, enqueued_at)
            SELECT job_id, session_id, kind, payload_ref, tenant, priority, nullif(deadline, 'Infinity'), attempt, enqueued_at
            FROM (
                SELECT DISTINCT ON (job_id) *
                FROM unnest(job_ids, session_ids, kinds, payload_refs, tenants, priorities, deadlines, attempts, times)
                    WITH ORDINALITY AS given (
                        job_id, session_id, kind, payload_ref, tenant, priority, deadline, attempt, enqueued_at, place
                    )
                WHERE job_id <> ALL (known)
                ORDER BY job_id, place
            ) AS first
            ORDER BY place LIMIT room
            ON CONFLICT (job_id) DO NOTHING;
            GET DIAGNOSTICS came = ROW_COUNT;
            room := room - came;
            wanted := wanted - came;
        END IF;
        EXIT WHEN wanted <= 0;
        -- What is out already is to be delivered once more, unless it is a stranger's; what goes while this waits for it
        -- is put anew.
        UPDATE agent_dispatch.queue_entry AS e SET again = true
        FROM unnest(job_ids, tenants) AS given (job_id, tenant)
        WHERE e.job_id = given.job_id AND e.owner <> '' AND NOT e.again
            AND e.tenant = agent_dispatch.queue_reference(given.tenant, NULL);
        EXIT WHEN NOT FOUND;
    END LOOP;
    IF is_enough THEN  -- all are there, by whomever
        RETURN QUERY SELECT DISTINCT unnest(job_ids);
    ELSE
        RETURN QUERY
        SELECT job_id FROM agent_dispatch.agent_dispatch_queue WHERE job_id = ANY (job_ids) UNION SELECT unnest(known);
    END IF;
END
$$;

-- Receipts come as four arrays, and answers with their places in these, from 1. Here: of each whose delivery there was,
-- whether it was theirs and is gone now, and whether others of its group wait.
CREATE FUNCTION agent_dispatch.queue_acknowledge(
    job_ids text[], owners text[], times double precision[], numbers bigint[]
) RETURNS TABLE (place bigint, gone boolean, more boolean) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    answers bigint;
BEGIN
    RETURN QUERY
    WITH ours AS MATERIALIZED (
        SELECT * FROM agent_dispatch.queue_held(job_ids, owners, times, numbers)
    ), let_go AS (  -- for good: what is put under the same id next isn't theirs
        UPDATE agent_dispatch.queue_entry AS e
        SET number = 0, again = false,  -- and as if their receivers had been silent for too long
            changes_at = CASE WHEN e.again THEN e.claimed_at ELSE e.changes_at END
        WHERE e.job_id = ANY (ARRAY(SELECT o.job_id FROM ours AS o))
    ), deleted AS (
        DELETE FROM agent_dispatch.agent_dispatch_queue AS q
        WHERE q.job_id = ANY (ARRAY(SELECT o.job_id FROM ours AS o WHERE NOT o.again))
        RETURNING q.job_id
    )
    SELECT o.place, true, coalesce((
        SELECT g.size > 1 FROM agent_dispatch.queue_group AS g
        WHERE g.gen = o.gen AND g.tenant = o.tenant AND g.grp = o.grp
    ), true)
    FROM deleted AS d JOIN ours AS o ON o.job_id = d.job_id
    UNION ALL
    SELECT o.place, true, true FROM ours AS o WHERE o.again;
    GET DIAGNOSTICS answers = ROW_COUNT;
    IF answers < cardinality(job_ids) THEN
        RETURN QUERY
        SELECT r.place, false, false
        FROM unnest(job_ids, owners, times) WITH ORDINALITY AS r (job_id, owner, claimed_at, place)
        WHERE (SELECT true FROM agent_dispatch.agent_dispatch_queue AS q WHERE q.job_id = r.job_id) AND (
            SELECT e.number = 0 FROM agent_dispatch.queue_entry AS e
            WHERE e.job_id = r.job_id AND e.owner = r.owner AND e.claimed_at = r.claimed_at
        ) IS NOT TRUE;  -- which was let go
    END IF;
END
$$;

-- Which of these receipts hold a delivery: no other has an owner. Nobody else claims those meanwhile.
CREATE FUNCTION agent_dispatch.queue_held(
    job_ids text[], owners text[], times double precision[], numbers bigint[]
) RETURNS TABLE (place bigint, job_id text, gen bigint, tenant uuid, grp uuid, again boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.place, e.*
    FROM (
        SELECT * FROM unnest(job_ids, owners, times, numbers)
            WITH ORDINALITY AS given (job_id, owner, claimed_at, number, place)
        ORDER BY job_id, place
    ) AS r CROSS JOIN LATERAL (
        SELECT e.job_id, e.gen, e.tenant, e.grp, e.again FROM agent_dispatch.queue_entry AS e
        WHERE e.job_id = r.job_id AND e.owner = r.owner AND e.number = r.number AND e.claimed_at = r.claimed_at
        FOR UPDATE
    ) AS e;
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
    WHERE (SELECT true FROM agent_dispatch.agent_dispatch_queue AS q WHERE q.job_id = o.job_id);
    UPDATE agent_dispatch.queue_entry SET changes_at = agent_dispatch.queue_now(given_now) + visibility
    WHERE job_id = ANY (ours);
    RETURN QUERY SELECT unnest(places);
END
$$;

-- Of those, too, whose delivery is still there. The same receipt twice gives back once.
CREATE FUNCTION agent_dispatch.queue_give_back(
    job_ids text[], owners text[], times double precision[], numbers bigint[], delay double precision,
    given_now double precision
) RETURNS SETOF bigint LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    now_gen bigint;
    held record;
BEGIN
    PERFORM pg_advisory_xact_lock(agent_dispatch.queue_lock(2));
    SELECT gen INTO now_gen FROM agent_dispatch.queue_order ORDER BY version DESC LIMIT 1;
    FOR held IN
        SELECT job_id, tenant, grp, min(place) AS place
        FROM agent_dispatch.queue_held(job_ids, owners, times, numbers) GROUP BY job_id, tenant, grp
    LOOP
        CONTINUE WHEN NOT EXISTS (
            SELECT 1 FROM agent_dispatch.agent_dispatch_queue AS q WHERE q.job_id = held.job_id
        );
        UPDATE agent_dispatch.queue_entry
        SET is_listed = true, owner = '', number = 0, changes_at = agent_dispatch.queue_now(given_now) + delay
        WHERE job_id = held.job_id;
        PERFORM agent_dispatch.queue_regroup(now_gen, held.tenant, held.grp, 0, true);
        PERFORM agent_dispatch.queue_relane(now_gen, array_agg(g.tenant), array_agg(g.class))
        FROM agent_dispatch.queue_group AS g
        WHERE g.gen = now_gen AND g.tenant = held.tenant AND g.grp = held.grp AND g.class IS NOT NULL;
        RETURN NEXT held.place;
    END LOOP;
END
$$;

-- Of a group so many deliveries came or went, or something about one is different (0); `is_in` is whether it was out, and
-- isn't any more. What is its first now? The answer: its class before and after, where it was or is ready.
CREATE FUNCTION agent_dispatch.queue_regroup(
    now_gen bigint, this_tenant uuid, this uuid, change integer, is_in boolean
) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
    classes integer[];
BEGIN
    UPDATE agent_dispatch.queue_group AS g
    SET size = b.size + change, is_out = b.is_out AND NOT is_in, class = f.class, deadline = f.deadline,
        enqueued_at = f.enqueued_at, job_id = coalesce(f.job_id, b.job_id)
    FROM agent_dispatch.queue_group AS b LEFT JOIN LATERAL (
        SELECT e.class, e.deadline, e.enqueued_at, e.job_id FROM agent_dispatch.queue_entry AS e
        WHERE e.grp = this AND e.is_listed AND e.class IS NOT NULL
        ORDER BY e.class, e.deadline, e.enqueued_at, e.job_id LIMIT 1
    ) AS f ON is_in OR NOT b.is_out
    WHERE b.gen = now_gen AND b.tenant = this_tenant AND b.grp = this
        AND g.gen = now_gen AND g.tenant = this_tenant AND g.grp = this
    RETURNING array_remove(ARRAY[b.class, g.class], NULL) INTO classes;
    RETURN classes;
END
$$;

-- What is the first of each of these lanes now?
CREATE FUNCTION agent_dispatch.queue_relane(
    now_gen bigint, tenants uuid[], classes integer[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lane record;
BEGIN
    IF tenants = '{}' THEN
        RETURN;
    END IF;
    FOR lane IN SELECT DISTINCT tenant, class FROM unnest(tenants, classes) AS touched (tenant, class) LOOP
        INSERT INTO agent_dispatch.queue_lane (gen, tenant, class, served, deadline, enqueued_at, job_id, grp)
        SELECT now_gen, lane.tenant, lane.class, coalesce((
            SELECT t.served FROM agent_dispatch.queue_tenant AS t WHERE t.gen = now_gen AND t.tenant = lane.tenant
        ), 0), g.deadline, g.enqueued_at, g.job_id, g.grp
        FROM agent_dispatch.queue_group AS g
        WHERE g.gen = now_gen AND g.tenant = lane.tenant AND g.class = lane.class
        ORDER BY g.served, g.deadline, g.enqueued_at, g.job_id LIMIT 1
        ON CONFLICT (gen, tenant, class) DO UPDATE SET
            served = excluded.served, deadline = excluded.deadline, enqueued_at = excluded.enqueued_at,
            job_id = excluded.job_id, grp = excluded.grp;
        IF NOT FOUND THEN
            DELETE FROM agent_dispatch.queue_lane AS l
            WHERE l.gen = now_gen AND l.tenant = lane.tenant AND l.class = lane.class;
        END IF;
    END LOOP;
END
$$;

-- Work off the notes. Groups that are new come first, all at once; `came` tells when they would have. Then, one after the
-- other, what came to or went from a group that was there.
CREATE FUNCTION agent_dispatch.queue_fold(
    INOUT state agent_dispatch.queue_order, now double precision
) LANGUAGE plpgsql AS $$
DECLARE
    notes agent_dispatch.queue_note[];
    note agent_dispatch.queue_note;
    before agent_dispatch.queue_entry;
    tenants uuid[] := '{}';
    classes integer[] := '{}';
    touched integer[];
    this_class integer;
    witness agent_dispatch.queue_group;  -- of that its tenant has a group still
    has_come boolean;
    balance bigint;
    beginning xid8;
BEGIN
    WITH gone AS (DELETE FROM agent_dispatch.queue_note AS n WHERE transaction >= state.since RETURNING n, number, change)
    SELECT array_agg(n ORDER BY number), bool_or(change = 1), sum(change), pg_snapshot_xmin(pg_current_snapshot())
    INTO notes, has_come, balance, beginning FROM gone;
    IF notes IS NULL THEN
        RETURN;
    END IF;
    state.since := beginning;
    state.moves := state.moves + cardinality(notes);
    state.size := state.size + balance;
    IF has_come THEN
        WITH given AS MATERIALIZED (
            SELECT * FROM unnest(notes)
        ), fresh AS (
            INSERT INTO agent_dispatch.queue_group (gen, tenant, grp, version, came, class, deadline, enqueued_at, job_id)
            SELECT DISTINCT ON (tenant, grp) state.gen, tenant, grp, state.version, number,
                priority - CASE WHEN deadline < now THEN 4 ELSE 0 END, deadline, enqueued_at, job_id
            FROM given
            WHERE change = 1 AND job_id NOT IN (SELECT job_id FROM given WHERE change = -1) AND (
                SELECT g.size FROM agent_dispatch.queue_group AS g
                WHERE g.gen = state.gen AND g.tenant = given.tenant AND g.grp = given.grp
            ) IS NULL  -- a look-up each, whatever the planner believes
            ORDER BY tenant, grp, number
            RETURNING queue_group.*
        ), entries AS (
            INSERT INTO agent_dispatch.queue_entry
                (gen, job_id, tenant, grp, priority, class, deadline, enqueued_at, is_listed, changes_at)
            SELECT f.gen, f.job_id, f.tenant, f.grp, f.class + CASE WHEN f.deadline < now THEN 4 ELSE 0 END, f.class,
                f.deadline, f.enqueued_at, false,
                CASE WHEN f.deadline < now THEN NULL ELSE nullif(f.deadline, 'Infinity') END
            FROM fresh AS f
        )
        SELECT array_agg(n ORDER BY number) FILTER (WHERE number NOT IN (SELECT fresh.came FROM fresh)),
            ARRAY(SELECT f.tenant FROM fresh AS f GROUP BY f.tenant, f.class ORDER BY f.tenant, f.class),
            ARRAY(SELECT f.class FROM fresh AS f GROUP BY f.tenant, f.class ORDER BY f.tenant, f.class)
        INTO notes, tenants, classes FROM unnest(notes) AS n;
    END IF;
    FOREACH note IN ARRAY coalesce(notes, '{}') LOOP
        DELETE FROM agent_dispatch.queue_entry WHERE job_id = note.job_id AND (note.change = 1 OR surplus = 0)
        RETURNING * INTO before;
        IF note.change = 1 THEN
            UPDATE agent_dispatch.queue_entry SET is_listed = true
            WHERE class IS NOT NULL AND NOT is_listed AND job_id = (
                SELECT g.job_id FROM agent_dispatch.queue_group AS g
                WHERE g.gen = state.gen AND g.tenant = note.tenant AND g.grp = note.grp AND g.size = 1
            );
            INSERT INTO agent_dispatch.queue_entry
                (gen, job_id, tenant, grp, priority, class, deadline, enqueued_at, is_listed, changes_at, surplus)
            VALUES (
                state.gen, note.job_id, note.tenant, note.grp, note.priority,
                note.priority - CASE WHEN note.deadline < now THEN 4 ELSE 0 END, note.deadline, note.enqueued_at, true,
                CASE WHEN note.deadline < now THEN NULL ELSE nullif(note.deadline, 'Infinity') END,
                coalesce(before.surplus + 1, 0)
            );
            INSERT INTO agent_dispatch.queue_group (gen, tenant, grp, version, came, size)
            VALUES (state.gen, note.tenant, note.grp, state.version, note.number, 0)
            ON CONFLICT (gen, tenant, grp) DO NOTHING;
            touched := agent_dispatch.queue_regroup(state.gen, note.tenant, note.grp, 1, false);
            FOREACH this_class IN ARRAY touched LOOP
                tenants := tenants || note.tenant;
                classes := classes || this_class;
            END LOOP;
        ELSIF NOT FOUND THEN
            UPDATE agent_dispatch.queue_entry SET surplus = surplus - 1 WHERE job_id = note.job_id;
        END IF;
        CONTINUE WHEN before.job_id IS NULL;
        DELETE FROM agent_dispatch.queue_group
        WHERE gen = state.gen AND tenant = before.tenant AND grp = before.grp AND size = 1
        RETURNING array_remove(ARRAY[class], NULL) INTO touched;
        IF FOUND THEN
            IF witness.tenant IS DISTINCT FROM before.tenant OR witness.grp = before.grp THEN
                SELECT * INTO witness FROM agent_dispatch.queue_group AS g
                WHERE g.gen = state.gen AND g.tenant = before.tenant AND (g.version < state.version OR g.came <= note.number)
                LIMIT 1;
                IF NOT FOUND THEN
                    DELETE FROM agent_dispatch.queue_tenant WHERE gen = state.gen AND tenant = before.tenant;
                END IF;
            END IF;
        ELSE
            touched := agent_dispatch.queue_regroup(
                state.gen, before.tenant, before.grp, -1, before.owner <> ''
            );
        END IF;
        FOREACH this_class IN ARRAY touched LOOP
            tenants := tenants || before.tenant;
            classes := classes || this_class;
        END LOOP;
    END LOOP;
    PERFORM agent_dispatch.queue_relane(state.gen, tenants, classes);
END
$$;

-- By who has put much: before receivers have to.
CREATE FUNCTION agent_dispatch.queue_work_off(given_now double precision) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    before agent_dispatch.queue_order := agent_dispatch.queue_rebuild();
BEGIN
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
        UPDATE agent_dispatch.queue_order
        SET version = before.version + 1, claims = after.claims, since = after.since, gen = after.gen,
            moves = after.moves, size = after.size
        WHERE version = before.version;
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
    due agent_dispatch.queue_entry;
    tenants uuid[] := '{}';
    classes integer[] := '{}';
    this_class integer;
BEGIN
    FOR due IN
        SELECT * FROM agent_dispatch.queue_entry AS e
        WHERE e.gen = now_gen AND e.changes_at <= now AND (e.owner <> '' OR e.class IS NULL OR e.deadline < now)
        FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE agent_dispatch.queue_entry AS e
        SET class = e.priority - CASE WHEN e.deadline < now THEN 4 ELSE 0 END, is_listed = true, owner = '', number = 0,
            changes_at = CASE WHEN e.deadline < now THEN NULL ELSE nullif(e.deadline, 'Infinity') END
        WHERE e.job_id = due.job_id;
        FOREACH this_class IN ARRAY agent_dispatch.queue_regroup(now_gen, due.tenant, due.grp, 0, due.owner <> '') LOOP
            tenants := tenants || due.tenant;
            classes := classes || this_class;
        END LOOP;
    END LOOP;
    PERFORM agent_dispatch.queue_relane(now_gen, tenants, classes);
END
$$;

-- Whether a receiver would find anything.
CREATE FUNCTION agent_dispatch.queue_is_due(now double precision) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((
        SELECT EXISTS (SELECT 1 FROM agent_dispatch.queue_note AS n WHERE n.transaction >= newest.since)
            OR EXISTS (SELECT 1 FROM agent_dispatch.queue_lane AS l WHERE l.gen = newest.gen)
            OR EXISTS (SELECT 1 FROM agent_dispatch.queue_entry AS e WHERE e.gen = newest.gen AND e.changes_at <= now)
        FROM (SELECT * FROM agent_dispatch.queue_order ORDER BY version DESC LIMIT 1) AS newest
    ), true);
END
$$;

-- The next ones, at most so many, as if one by one.
CREATE FUNCTION agent_dispatch.queue_receive(
    receiver text, most integer, visibility double precision, given_now double precision
) RETURNS TABLE (
    number bigint, claimed_at double precision, job_id text, session_id text, kind text, payload_ref text, tenant text,
    priority integer, deadline double precision, attempt integer, enqueued_at double precision
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    before agent_dispatch.queue_order;
    state agent_dispatch.queue_order;
    now double precision;
    began timestamptz;
    claimed text[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(agent_dispatch.queue_lock(2)) THEN
        IF NOT agent_dispatch.queue_is_due(agent_dispatch.queue_now(given_now)) THEN
            RETURN;
        END IF;
        PERFORM pg_advisory_xact_lock(agent_dispatch.queue_lock(2));
    END IF;
    LOOP
        began := clock_timestamp();
        now := agent_dispatch.queue_now(given_now);
        SELECT * INTO before FROM agent_dispatch.queue_order ORDER BY version DESC LIMIT 1;
        IF NOT FOUND THEN
            before := agent_dispatch.queue_rebuild();
        END IF;
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
        SELECT before.claims + c.place, now, q.job_id, q.session_id, q.kind, q.payload_ref, q.tenant, q.priority,
            q.deadline, q.attempt, q.enqueued_at
        FROM unnest(claimed) WITH ORDINALITY AS c (job_id, place) CROSS JOIN LATERAL (
            SELECT * FROM agent_dispatch.agent_dispatch_queue AS q WHERE q.job_id = c.job_id OFFSET 0
        ) AS q
        ORDER BY c.place;
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
DECLARE
    claimed text[] := '{}';
    lanes agent_dispatch.queue_lane[];
    lane agent_dispatch.queue_lane;
    ready record;
BEGIN
    WHILE cardinality(claimed) < most LOOP
        lanes := ARRAY(
            SELECT l FROM agent_dispatch.queue_lane AS l
            WHERE l.gen = now_gen
                AND l.class = (SELECT class FROM agent_dispatch.queue_lane WHERE gen = now_gen ORDER BY class LIMIT 1)
            ORDER BY l.class, l.served, l.deadline, l.enqueued_at, l.job_id LIMIT most - cardinality(claimed)
        );
        EXIT WHEN lanes = '{}';
        FOREACH lane IN ARRAY lanes LOOP
            FOR ready IN
                SELECT g.grp, g.job_id FROM agent_dispatch.queue_group AS g
                WHERE g.gen = now_gen AND g.tenant = lane.tenant AND g.class = lane.class
                ORDER BY g.served, g.deadline, g.enqueued_at, g.job_id
                LIMIT CASE WHEN cardinality(lanes) = 1 THEN most - cardinality(claimed) ELSE 1 END
            LOOP
                claimed := claimed || ready.job_id;
                UPDATE agent_dispatch.queue_entry
                SET class = NULL, owner = receiver, claimed_at = now, number = claims + cardinality(claimed),
                    changes_at = until, gen = now_gen, again = false
                WHERE job_id = ready.job_id;
                UPDATE agent_dispatch.queue_group
                SET class = NULL, is_out = true, served = claims + cardinality(claimed)
                WHERE gen = now_gen AND tenant = lane.tenant AND grp = ready.grp;
            END LOOP;
            INSERT INTO agent_dispatch.queue_tenant (gen, tenant, served)
            VALUES (now_gen, lane.tenant, claims + cardinality(claimed))
            ON CONFLICT (gen, tenant) DO UPDATE SET served = excluded.served;
            PERFORM agent_dispatch.queue_relane(now_gen, array_agg(l.tenant), array_agg(l.class))
            FROM agent_dispatch.queue_lane AS l WHERE l.gen = now_gen AND l.tenant = lane.tenant;
        END LOOP;
    END LOOP;
    RETURN claimed;
END
$$;
