"""The authority's SQL files: every block is used, every used block is there, and both databases have the same."""

from __future__ import annotations

import re
import sqlite3
from importlib import resources
from pathlib import Path

import pytest

import harness.fleet.authority
from harness.database.queries import migrations, named_blocks

PACKAGE = "harness.fleet.authority"
FOLDER = Path(str(harness.fleet.authority.__file__)).parent
BLOCKS = {database: named_blocks(PACKAGE, f"{database}.sql") for database in ("sqlite", "postgres")}

#: What only one of them has a use for, and why.
ALONE = {
    "postgres": {
        *("plan_by_keys", "keep_alive", "find_self", "cut_off_former"),  # a connection to a server
        "add_item",  # statements are sent one by one there
        *("hint", "listen", "say_that_somebody_listens"),  # the file's change counter is enough
        *("lock_items", "lock_sessions", "touch_item", "hold_sessions", "let_go_sessions", "find_holders"),  # company
        *("try_session_locks", "free_session_locks", "cut_off_holder"),
    },
    "sqlite": {
        "find_holder",
        *("find_prunable", "note_pruned", "prune_outcomes", "prune_waits", "prune_messages"),  # no writing CTEs
        *("add_client", "drop_client", "find_session_lock", "take_session_lock", "drop_session_lock"),
    },
}


def used(database: str) -> set[str]:
    files = [*FOLDER.glob(f"{database}*.py"), FOLDER / "stored.py"]
    text = "".join(path.read_text("utf-8") for path in files)
    return {name for name in BLOCKS[database] if f'"{name}"' in text}


@pytest.mark.parametrize("database", BLOCKS)
def test_every_block_is_used(database: str) -> None:
    assert used(database) == set(BLOCKS[database])


@pytest.mark.parametrize("database", BLOCKS)
def test_every_block_that_is_named_is_there(database: str) -> None:
    text = "".join(path.read_text("utf-8") for path in FOLDER.glob(f"{database}*.py"))
    assert set(re.findall(r'SQL\["(\w+)"\]', text)) <= set(BLOCKS[database])


def test_both_databases_have_the_same_blocks() -> None:
    shared = [set(blocks) - ALONE[database] for database, blocks in BLOCKS.items()]
    assert shared[0] == shared[1]
    assert all(ALONE[database] <= set(blocks) for database, blocks in BLOCKS.items())


def test_every_block_is_a_statement_that_the_newest_schema_takes() -> None:
    connection = sqlite3.connect(":memory:")
    for statements in migrations(PACKAGE, "sqlite"):
        for statement in statements:
            connection.execute(statement)
    for name, statement in BLOCKS["sqlite"].items():
        assert "--" not in statement, name
        numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
        count = max(numbered) if numbered else statement.count("?")
        connection.execute(f"EXPLAIN {statement}", (None,) * count)
    connection.close()


def test_migrations_are_numbered_from_1_without_a_gap() -> None:
    names = sorted(file.name for file in resources.files(PACKAGE).joinpath("sql").iterdir())
    for database in BLOCKS:
        numbered = [name for name in names if name.startswith(f"{database}_")]
        assert numbered == [f"{database}_{number:04}.sql" for number in range(1, len(numbered) + 1)]
        assert len(migrations(PACKAGE, database)) == len(numbered)


@pytest.mark.parametrize(
    ("block", "index"),
    [
        ("find_items", "sqlite_autoindex_items_1"),
        ("find_holder", "items_held"),
        ("lock_undelivered", "items_due"),
        ("find_expired", "items_expiring"),
        ("find_lapsed", "items_lapsing"),
        ("find_claimable", "items_next"),
        ("find_outcomes", "PRIMARY KEY"),
        ("find_waiting", "PRIMARY KEY"),
    ],
)
def test_what_is_asked_often_is_looked_up(block: str, index: str) -> None:
    connection = sqlite3.connect(":memory:")
    for statements in migrations(PACKAGE, "sqlite"):
        for statement in statements:
            connection.execute(statement)
    sql = BLOCKS["sqlite"][block]
    count = max(int(number) for number in re.findall(r"\?(\d+)", sql))
    plan = "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("[]",) * count))
    connection.close()
    assert index in plan
    assert "SCAN items" not in plan.replace("SCAN items USING INDEX items_", "")
