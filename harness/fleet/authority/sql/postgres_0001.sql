-- The first schema of the authority. Of an item, what was declared comes first and what changes last, close together: an
-- update logs no more than what lies between the first and the last byte that changed. No index is on a column that a
-- claim or an end changes, so that neither writes to an index of this table; hence `held`, and the columns that are
-- empty but for items that wait. There are no foreign keys: whoever writes has the item's row in the same transaction.
-- What makes an item legal is a function, since PostgreSQL reads the text of a table's checks anew for each statement:
-- as expressions they cost twice what the statement does.

CREATE TABLE agent_dispatch.authority_version (
    version INTEGER NOT NULL
);

CREATE SEQUENCE agent_dispatch.fencing_tokens;

CREATE FUNCTION agent_dispatch.is_legal(
    state TEXT, owner TEXT, expires_at DOUBLE PRECISION, lease_epoch INTEGER, fencing_token BIGINT, attempt INTEGER,
    started_at DOUBLE PRECISION, failures INTEGER, max_attempts INTEGER, priority SMALLINT, cancel_cause TEXT,
    depends_on TEXT[], delivered BOOLEAN, not_before DOUBLE PRECISION, deadline DOUBLE PRECISION,
    due_at DOUBLE PRECISION, lapses_at DOUBLE PRECISION
) RETURNS BOOLEAN LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF priority NOT BETWEEN 0 AND 3 OR max_attempts < 1 OR failures NOT BETWEEN 0 AND max_attempts
        OR attempt NOT BETWEEN 0 AND lease_epoch
    THEN
        RETURN false;
    END IF;
    IF state IN ('leased', 'running') THEN
        RETURN owner <> '' AND expires_at > 0 AND lease_epoch > 0 AND fencing_token > 0
            AND (state = 'leased' OR attempt > 0 AND started_at > 0) AND due_at IS NULL AND lapses_at IS NULL;
    END IF;
    IF owner <> '' OR expires_at <> 0 OR cancel_cause <> '' AND state <> 'cancelled' THEN
        RETURN false;
    END IF;
    CASE state
        WHEN 'ready' THEN
            RETURN lapses_at IS NOT DISTINCT FROM deadline
                AND due_at IS NOT DISTINCT FROM CASE WHEN NOT delivered THEN not_before END;
        WHEN 'submitted' THEN
            RETURN lapses_at IS NOT DISTINCT FROM deadline AND due_at IS NULL
                AND lease_epoch = 0 AND cardinality(depends_on) > 0;
        ELSE
            RETURN state IN ('succeeded', 'failed', 'cancelled', 'dead_letter') AND due_at IS NULL AND lapses_at IS NULL;
    END CASE;
END
$$;

CREATE TABLE agent_dispatch.items (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    submitted_at DOUBLE PRECISION NOT NULL,      -- Unix seconds, like every time here
    deadline DOUBLE PRECISION,
    priority SMALLINT NOT NULL,
    max_attempts INTEGER NOT NULL,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    tenant TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,
    payload_ref TEXT NOT NULL,
    depends_on TEXT[] COLLATE "C" NOT NULL,
    is_awaited BOOLEAN NOT NULL DEFAULT false,   -- others were submitted that depend on it
    delivered BOOLEAN NOT NULL,
    failures INTEGER NOT NULL,
    not_before DOUBLE PRECISION NOT NULL,
    handed_at DOUBLE PRECISION NOT NULL,
    due_at DOUBLE PRECISION,                     -- `not_before` of one that needs a delivery
    lapses_at DOUBLE PRECISION,                  -- `deadline` of one that nobody has taken up yet
    attempt INTEGER NOT NULL,
    started_at DOUBLE PRECISION NOT NULL,
    changed_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    lease_epoch INTEGER NOT NULL,
    fencing_token BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    cause TEXT NOT NULL,
    cancel_cause TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    result TEXT NOT NULL,
    CONSTRAINT items_are_legal CHECK (agent_dispatch.is_legal(
        state, owner, expires_at, lease_epoch, fencing_token, attempt, started_at, failures, max_attempts, priority,
        cancel_cause, depends_on, delivered, not_before, deadline, due_at, lapses_at
    ))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- Of what waits in a queue nobody has written down yet that it does; but it was handed on a moment ago.
CREATE INDEX items_due ON agent_dispatch.items (handed_at, due_at) WHERE due_at IS NOT NULL;

-- The same, by who is next.
CREATE INDEX items_next ON agent_dispatch.items (priority, deadline, seq) WHERE due_at IS NOT NULL;

CREATE INDEX items_lapsing ON agent_dispatch.items (lapses_at) WHERE lapses_at IS NOT NULL;

CREATE TABLE agent_dispatch.held (               -- the sessions that are worked on: one item each
    tenant TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    item BIGINT NOT NULL,
    PRIMARY KEY (tenant, session_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE TABLE agent_dispatch.waits (              -- stays when the waiting is over: see the item's state
    awaited BIGINT NOT NULL,
    item BIGINT NOT NULL,
    PRIMARY KEY (awaited, item)
);

CREATE TABLE agent_dispatch.outcomes (
    item BIGINT NOT NULL,
    number BIGINT GENERATED ALWAYS AS IDENTITY,
    started_at DOUBLE PRECISION NOT NULL,
    ended_at DOUBLE PRECISION NOT NULL,
    fencing_token BIGINT NOT NULL,
    lease_epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    expired BOOLEAN NOT NULL,
    ended TEXT COLLATE "C" NOT NULL,
    owner TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (item, number)
);

CREATE TABLE agent_dispatch.forgotten_outcomes ( -- of items that were pruned: how many
    ended TEXT COLLATE "C" NOT NULL,
    expired BOOLEAN NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (ended, expired)
);

CREATE TABLE agent_dispatch.contents (
    reference TEXT COLLATE "C" PRIMARY KEY,
    kept_at DOUBLE PRECISION NOT NULL,
    contents BYTEA NOT NULL
);

CREATE TABLE agent_dispatch.messages (
    item_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (item_id, number)
);

CREATE TABLE agent_dispatch.graves (
    digest TEXT COLLATE "C" PRIMARY KEY,
    cause TEXT NOT NULL,
    job_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    count BIGINT NOT NULL,
    first_at DOUBLE PRECISION NOT NULL,
    last_at DOUBLE PRECISION NOT NULL,
    number BIGINT GENERATED BY DEFAULT AS IDENTITY  -- the last to come has the highest
);

CREATE INDEX graves_by_number ON agent_dispatch.graves (number);

CREATE TABLE agent_dispatch.workers (
    token TEXT COLLATE "C" PRIMARY KEY,
    kinds TEXT[] NOT NULL,
    slots INTEGER NOT NULL,
    busy INTEGER NOT NULL,
    every_s DOUBLE PRECISION NOT NULL,
    started_at DOUBLE PRECISION NOT NULL,
    seen_at DOUBLE PRECISION NOT NULL,
    queue TEXT NOT NULL                         -- opaque: from which it takes turns
) WITH (fillfactor = 50);
