-- A queue of deliveries, and beside it what is needed to tell at once which one is next.
--
-- Only `agent_dispatch_queue` is written by those who put and acknowledge, who may be anybody. Triggers note what came
-- and went, and a receiver, before it claims, brings the tables of the order up to date with these notes.

CREATE TABLE agent_dispatch_queue (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL UNIQUE,
    session_id TEXT,
    kind TEXT,
    payload_ref TEXT,
    tenant TEXT,
    priority INTEGER DEFAULT 2,
    deadline REAL,
    attempt INTEGER DEFAULT 0,
    enqueued_at REAL DEFAULT ((julianday('now') - 2440587.5) * 86400.0)
);

CREATE TABLE agent_dispatch_depth (
    depth INTEGER NOT NULL
);

INSERT INTO agent_dispatch_depth (depth) VALUES (0);

-- What came (1), went (-1) or was rewritten (0), in order.
CREATE TABLE agent_dispatch_note (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    place INTEGER NOT NULL,
    change INTEGER NOT NULL
);

CREATE TRIGGER agent_dispatch_came AFTER INSERT ON agent_dispatch_queue BEGIN
    UPDATE agent_dispatch_depth SET depth = depth + 1;
    INSERT INTO agent_dispatch_note (place, change) VALUES (new.place, 1);
END;

CREATE TRIGGER agent_dispatch_went AFTER DELETE ON agent_dispatch_queue BEGIN
    UPDATE agent_dispatch_depth SET depth = depth - 1;
    INSERT INTO agent_dispatch_note (place, change) VALUES (old.place, -1);
END;

CREATE TRIGGER agent_dispatch_rewritten AFTER UPDATE ON agent_dispatch_queue BEGIN
    INSERT INTO agent_dispatch_note (place, change) VALUES (new.place, 0);
END;

-- The number of the last claim.
CREATE TABLE agent_dispatch_claims (
    number INTEGER NOT NULL
);

INSERT INTO agent_dispatch_claims (number) VALUES (0);

-- When whom a claim served last, by its number; 0 is never. `size` counts queued deliveries: with the last, it goes.
CREATE TABLE agent_dispatch_tenant (
    tenant TEXT PRIMARY KEY,
    served INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- A fairness group. With a delivery that may be handed out, and none that is out, it is *ready*: the columns from `class` on
-- are those of its first. `class` is the priority, less 4 where the deadline has passed.
CREATE TABLE agent_dispatch_group (
    grp TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    served INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL DEFAULT 0,
    class INTEGER,
    deadline REAL,
    enqueued_at REAL,
    job_id TEXT,
    place INTEGER
) WITHOUT ROWID;

CREATE INDEX agent_dispatch_group_ready
    ON agent_dispatch_group (tenant, class, served, deadline, enqueued_at, job_id) WHERE class IS NOT NULL;

-- A tenant's ready groups of one class. There is a row as long as there is one, and it tells the first.
CREATE TABLE agent_dispatch_lane (
    tenant TEXT NOT NULL,
    class INTEGER NOT NULL,
    served INTEGER NOT NULL,
    deadline REAL NOT NULL,
    enqueued_at REAL NOT NULL,
    job_id TEXT NOT NULL,
    grp TEXT NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (tenant, class)
) WITHOUT ROWID;

CREATE INDEX agent_dispatch_lane_next ON agent_dispatch_lane (class, served, deadline, enqueued_at, job_id);

-- A delivery as the order knows it. State 0: it waits; 1: it is not due yet; 2: it is out, by claim `number` of `owner`.
-- `changes_at` is when time alone changes something about it. A deadline that is none is infinite.
CREATE TABLE agent_dispatch_entry (
    place INTEGER PRIMARY KEY,
    job_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    grp TEXT NOT NULL,
    priority INTEGER NOT NULL,
    class INTEGER NOT NULL,
    deadline REAL NOT NULL,
    enqueued_at REAL NOT NULL,
    state INTEGER NOT NULL DEFAULT 0,
    owner TEXT NOT NULL DEFAULT '',
    claimed_at REAL NOT NULL DEFAULT 0,
    number INTEGER NOT NULL DEFAULT 0,
    changes_at REAL,
    again INTEGER NOT NULL DEFAULT 0    -- it was put once more while it is out
);

CREATE INDEX agent_dispatch_entry_waiting
    ON agent_dispatch_entry (grp, class, deadline, enqueued_at, job_id) WHERE state = 0;
CREATE UNIQUE INDEX agent_dispatch_entry_out ON agent_dispatch_entry (grp) WHERE state = 2;
CREATE INDEX agent_dispatch_entry_changing ON agent_dispatch_entry (changes_at) WHERE changes_at IS NOT NULL;
