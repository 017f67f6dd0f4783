-- The first schema. A slice is split in two: what was declared is written once, what changes is a short row of its own,
-- so that a change of state rewrites no prompt. Keys stand first: SQLite 3.40 takes the columns of a table without row
-- ids for NULL in an integrity check if they don't.

CREATE TABLE graphs (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    graph_id TEXT,                      -- NULL: claimed, never written
    paused TEXT NOT NULL DEFAULT ''
);

CREATE TABLE claims (
    graph INTEGER PRIMARY KEY REFERENCES graphs (key),
    epoch INTEGER NOT NULL,
    token TEXT NOT NULL,                -- random, one for each claim
    since REAL NOT NULL,                -- Unix seconds, like every time here
    expires_at REAL NOT NULL,           -- 0: given up
    pid INTEGER NOT NULL,
    started INTEGER NOT NULL,           -- clock ticks from the boot to the start of the process
    boot TEXT NOT NULL,
    pid_namespace TEXT NOT NULL
);

CREATE TABLE slices (
    graph INTEGER NOT NULL REFERENCES graphs (key),
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    closes INTEGER NOT NULL,
    turns INTEGER NOT NULL,
    branch TEXT NOT NULL,
    pull_request_url TEXT NOT NULL,
    error TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    hold TEXT NOT NULL,
    canceling INTEGER NOT NULL,
    stopping INTEGER NOT NULL,
    ran_s REAL NOT NULL,
    enqueued_at REAL NOT NULL,
    started_at REAL NOT NULL,
    ended_at REAL NOT NULL,
    PRIMARY KEY (graph, id)
) WITHOUT ROWID;

CREATE TABLE specs (
    graph INTEGER NOT NULL,
    id TEXT NOT NULL,
    spec TEXT NOT NULL,                 -- JSON: the slice as it was declared, less its id
    PRIMARY KEY (graph, id),
    FOREIGN KEY (graph, id) REFERENCES slices (graph, id)
);

CREATE TABLE attempts (
    graph INTEGER NOT NULL,
    slice_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    branch TEXT NOT NULL,
    started_at REAL NOT NULL,
    ended_at REAL NOT NULL,
    outcome TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (graph, slice_id, attempt),
    FOREIGN KEY (graph, slice_id) REFERENCES slices (graph, id)
) WITHOUT ROWID;

CREATE TABLE intents (
    graph INTEGER NOT NULL REFERENCES graphs (key),
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    intent TEXT NOT NULL,               -- JSON: the intent less its id
    attached TEXT NOT NULL,             -- JSON: the ids of the slices it is attached to
    PRIMARY KEY (graph, id)
);
