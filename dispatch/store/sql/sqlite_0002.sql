-- A log of what came in and of what was decided, with keyframes from which it can be played; and what an attempt left
-- for the next one, told of each attempt.

CREATE TABLE log (
    graph INTEGER NOT NULL REFERENCES graphs (key),
    seq INTEGER NOT NULL,               -- from 1, without a gap
    epoch INTEGER NOT NULL,             -- of the owner that wrote it
    at REAL NOT NULL,
    cap INTEGER NOT NULL,
    suspended INTEGER NOT NULL,
    kind TEXT NOT NULL,
    input TEXT NOT NULL,                -- JSON, like the decisions
    decisions TEXT NOT NULL,
    PRIMARY KEY (graph, seq)
) WITHOUT ROWID;

CREATE TABLE keyframes (
    graph INTEGER NOT NULL REFERENCES graphs (key),
    seq INTEGER NOT NULL,               -- of the last entry before it
    at REAL NOT NULL,
    content BLOB NOT NULL,              -- the whole graph, compressed
    PRIMARY KEY (graph, seq)
);

ALTER TABLE attempts ADD COLUMN checkpoint TEXT NOT NULL DEFAULT '';
