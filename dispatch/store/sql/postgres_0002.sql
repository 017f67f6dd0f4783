-- A log of what came in and of what was decided, with keyframes from which it can be played; and what an attempt left
-- for the next one, told of each attempt.

CREATE TABLE dispatch.log (
    graph INTEGER NOT NULL,
    seq BIGINT NOT NULL,                -- from 1, without a gap
    epoch BIGINT NOT NULL,              -- of the owner that wrote it
    at DOUBLE PRECISION NOT NULL,
    cap BIGINT NOT NULL,
    suspended SMALLINT NOT NULL,
    kind TEXT NOT NULL,
    input TEXT NOT NULL,                -- JSON, like the decisions
    decisions TEXT NOT NULL,
    PRIMARY KEY (graph, seq)
);

CREATE TABLE dispatch.keyframes (
    graph INTEGER NOT NULL,
    seq BIGINT NOT NULL,                -- of the last entry before it
    at DOUBLE PRECISION NOT NULL,
    content BYTEA NOT NULL,             -- the whole graph, compressed
    PRIMARY KEY (graph, seq)
);

ALTER TABLE dispatch.keyframes ALTER COLUMN content SET STORAGE EXTERNAL;

ALTER TABLE dispatch.attempts ADD COLUMN checkpoint TEXT NOT NULL DEFAULT '';
