-- The first schema. A slice is split in two: what was declared is written once, what changes is a short row of its own,
-- so that a change of state rewrites no prompt. Rows that change often leave room in their pages: an update that stays
-- in its page touches no index. Of foreign keys there are two: a check for each of a hundred thousand new slices costs
-- more than the slice, and who writes has proved in the same transaction that the graph is there.

CREATE TABLE dispatch.schema_version (
    version INTEGER NOT NULL
);

CREATE TABLE dispatch.graphs (
    key INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    graph_id TEXT,                      -- NULL: claimed, never written
    paused TEXT NOT NULL DEFAULT ''
);

CREATE TABLE dispatch.claims (
    graph INTEGER PRIMARY KEY REFERENCES dispatch.graphs (key),
    epoch BIGINT NOT NULL,
    token TEXT NOT NULL,                -- random, one for each claim
    since DOUBLE PRECISION NOT NULL,    -- Unix seconds, like every time here
    expires_at DOUBLE PRECISION NOT NULL,  -- 0: given up
    pid BIGINT NOT NULL,
    started BIGINT NOT NULL,            -- clock ticks from the boot to the start of the process
    boot TEXT NOT NULL,
    pid_namespace TEXT NOT NULL,
    incarnation BIGINT NOT NULL,        -- of the owner's connection: what an earlier one still has on its way is void
    written BIGINT NOT NULL             -- number of the owner's last batch that is here
) WITH (fillfactor = 10);

CREATE TABLE dispatch.slices (
    graph INTEGER NOT NULL,
    id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    state TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    closes BIGINT NOT NULL,
    turns BIGINT NOT NULL,
    branch TEXT NOT NULL,
    pull_request_url TEXT NOT NULL,
    error TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    hold TEXT NOT NULL,
    canceling SMALLINT NOT NULL,
    stopping SMALLINT NOT NULL,
    ran_s DOUBLE PRECISION NOT NULL,
    enqueued_at DOUBLE PRECISION NOT NULL,
    started_at DOUBLE PRECISION NOT NULL,
    ended_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (graph, id)
) WITH (fillfactor = 70);

CREATE TABLE dispatch.specs (
    graph INTEGER NOT NULL,
    id TEXT NOT NULL,
    spec TEXT NOT NULL,                 -- JSON: the slice as it was declared, less its id
    PRIMARY KEY (graph, id)
);

CREATE TABLE dispatch.attempts (
    graph INTEGER NOT NULL,
    slice_id TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    branch TEXT NOT NULL,
    started_at DOUBLE PRECISION NOT NULL,
    ended_at DOUBLE PRECISION NOT NULL,
    outcome TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (graph, slice_id, attempt),
    FOREIGN KEY (graph, slice_id) REFERENCES dispatch.slices (graph, id)
) WITH (fillfactor = 70);

CREATE TABLE dispatch.intents (
    graph INTEGER NOT NULL,
    id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    intent TEXT NOT NULL,               -- JSON: the intent less its id
    attached TEXT NOT NULL,             -- JSON: the ids of the slices it is attached to
    PRIMARY KEY (graph, id)
);
