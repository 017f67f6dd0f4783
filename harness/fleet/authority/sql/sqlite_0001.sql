-- The first schema of the authority. Numbers of items are never used twice, since what is left of one may refer to it.

CREATE TABLE fencing_tokens (
    last INTEGER NOT NULL
);

INSERT INTO fencing_tokens (last) VALUES (0);

CREATE TABLE items (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    submitted_at REAL NOT NULL,         -- Unix seconds, like every time here
    deadline REAL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3),
    max_attempts INTEGER NOT NULL CHECK (max_attempts >= 1),
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    session_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload_ref TEXT NOT NULL,
    depends_on TEXT NOT NULL,           -- a JSON array
    delivered INTEGER NOT NULL,
    failures INTEGER NOT NULL CHECK (failures BETWEEN 0 AND max_attempts),
    not_before REAL NOT NULL,
    handed_at REAL NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt BETWEEN 0 AND lease_epoch),
    started_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    lease_epoch INTEGER NOT NULL,
    fencing_token INTEGER NOT NULL,
    state TEXT NOT NULL,
    owner TEXT NOT NULL,
    cause TEXT NOT NULL,
    cancel_cause TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    result TEXT NOT NULL,
    CHECK (
        CASE WHEN state IN ('leased', 'running')
            THEN owner <> '' AND expires_at > 0 AND lease_epoch > 0 AND fencing_token > 0
            ELSE owner = '' AND expires_at = 0
                AND state IN ('submitted', 'ready', 'succeeded', 'failed', 'cancelled', 'dead_letter')
        END
    ),
    CHECK (state <> 'running' OR attempt > 0 AND started_at > 0),
    CHECK (state <> 'submitted' OR lease_epoch = 0 AND depends_on <> '[]'),
    CHECK (cancel_cause = '' OR state IN ('leased', 'running', 'cancelled'))
);

-- Of a session, one item is held at a time.
CREATE UNIQUE INDEX items_held ON items (tenant, session_id) WHERE state IN ('leased', 'running');

-- Of what waits in a queue nobody has written down yet that it does; but it was handed on a moment ago.
CREATE INDEX items_due ON items (handed_at, not_before) WHERE state = 'ready' AND NOT delivered;

-- The same, by who is next.
CREATE INDEX items_next ON items (priority, deadline IS NULL, deadline, seq) WHERE state = 'ready' AND NOT delivered;

CREATE INDEX items_expiring ON items (expires_at) WHERE state IN ('leased', 'running');

CREATE INDEX items_lapsing ON items (deadline) WHERE state IN ('submitted', 'ready') AND deadline IS NOT NULL;

CREATE TABLE waits (                    -- stays when the waiting is over: see the item's state
    awaited INTEGER NOT NULL,
    item INTEGER NOT NULL,
    PRIMARY KEY (awaited, item)
) WITHOUT ROWID;

CREATE TABLE outcomes (
    item INTEGER NOT NULL,
    number INTEGER NOT NULL,            -- from 1 for each item
    started_at REAL NOT NULL,
    ended_at REAL NOT NULL,
    fencing_token INTEGER NOT NULL,
    lease_epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    ended TEXT NOT NULL,
    owner TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (item, number)
) WITHOUT ROWID;

CREATE TABLE forgotten_outcomes (       -- of items that were pruned: how many
    ended TEXT NOT NULL,
    expired INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (ended, expired)
) WITHOUT ROWID;

CREATE TABLE contents (
    reference TEXT NOT NULL PRIMARY KEY,
    kept_at REAL NOT NULL,
    contents BLOB NOT NULL
);

CREATE TABLE messages (
    item_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (item_id, number)
) WITHOUT ROWID;

CREATE TABLE graves (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the last to come has the highest
    digest TEXT NOT NULL UNIQUE,
    cause TEXT NOT NULL,
    job_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    count INTEGER NOT NULL,
    first_at REAL NOT NULL,
    last_at REAL NOT NULL
);

CREATE TABLE workers (
    token TEXT NOT NULL PRIMARY KEY,
    kinds TEXT NOT NULL,                -- a JSON array
    slots INTEGER NOT NULL,
    busy INTEGER NOT NULL,
    every_s REAL NOT NULL,
    started_at REAL NOT NULL,
    seen_at REAL NOT NULL,
    queue TEXT NOT NULL                 -- opaque: from which it takes turns
) WITHOUT ROWID;

CREATE TABLE clients (                  -- those that lock sessions; see there how it is known whether one lives
    number INTEGER PRIMARY KEY AUTOINCREMENT
);

CREATE TABLE session_locks (
    tenant TEXT NOT NULL,
    session_id TEXT NOT NULL,
    client INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id)
) WITHOUT ROWID;
