"""The SQL files of the queues: every block is used, every used block is there, and statements are told apart."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

import harness.fleet.transport
from harness.database.queries import migrations, named_blocks

PACKAGE = "harness.fleet.transport"
FOLDER = Path(harness.fleet.transport.__file__).parent


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_blocks_are_those_that_the_adapter_uses(database: str) -> None:
    paths = [*FOLDER.glob(f"{database}*.py"), *FOLDER.parent.glob(f"{database}*.py")]
    text = "".join(path.read_text("utf-8") for path in paths)
    used = set(re.findall(r'SQL\["(\w+)"\]', text)) | set(re.findall(r'_(?:read|write|for_each)\(\s*"(\w+)"', text))
    assert set(named_blocks(PACKAGE, f"{database}.sql")) == used


def test_every_block_is_a_statement_that_the_newest_schema_takes() -> None:
    connection = sqlite3.connect(":memory:")
    for statements in migrations(PACKAGE, "sqlite"):
        for statement in statements:
            connection.execute(statement)
    for name, statement in named_blocks(PACKAGE, "sqlite.sql").items():
        numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
        count = max(numbered) if numbered else statement.count("?")
        values = dict.fromkeys(re.findall(r":(\w+)", statement), 1) or (1,) * count
        assert connection.execute(f"EXPLAIN {statement}", values).fetchall(), name
    connection.close()


def test_the_body_of_a_function_is_one_statement_with_its_head() -> None:
    (statements,) = migrations(PACKAGE, "postgres")
    functions = [each for each in statements if "CREATE FUNCTION" in each]
    assert len(functions) > 15
    assert all(each.count("CREATE ") == 1 for each in statements)
    assert all(each.count("$$") == 2 and each.endswith("$$;") for each in functions)


@pytest.mark.parametrize("name", ["put", "receive", "acknowledge", "give_back", "extend", "work_off"])
def test_whoever_uses_the_order_of_a_postgres_queue_plans_without_statistics(name: str) -> None:
    """Nobody knows how many rows there will be when a statement is planned, once for a connection's life."""
    (statements,) = migrations(PACKAGE, "postgres")
    (function,) = [each for each in statements if f"CREATE FUNCTION agent_dispatch.queue_{name}(" in each]
    head = " ".join(function.split("AS $$")[0].split())
    assert "SET enable_seqscan = off SET enable_bitmapscan = off" in head
    assert "SET jit = off SET plan_cache_mode = force_generic_plan" in head
    assert ("SET enable_sort = off" in head) == (name in ("receive", "give_back", "work_off")), (
        "who looks for a first one"
    )
