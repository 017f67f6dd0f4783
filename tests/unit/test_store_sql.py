"""The SQL files: every block is used, every used block is there, migrations are numbered without a gap."""

from __future__ import annotations

import re
import sqlite3
from importlib import resources
from pathlib import Path

import dispatch.store
from harness.database.queries import migrations, named_blocks

FOLDER = Path(dispatch.store.__file__).parent


def test_the_blocks_are_those_that_the_adapter_uses() -> None:
    text = "".join(path.read_text("utf-8") for path in FOLDER.glob("sqlite*.py"))
    assert set(named_blocks("dispatch.store", "sqlite.sql")) == set(re.findall(r'SQL\["(\w+)"\]', text))


def test_every_block_is_a_statement_that_the_newest_schema_takes() -> None:
    connection = sqlite3.connect(":memory:")
    for statements in migrations("dispatch.store", "sqlite"):
        for statement in statements:
            connection.execute(statement)
    for name, statement in named_blocks("dispatch.store", "sqlite.sql").items():
        assert "--" not in statement, name
        names = re.findall(r":(\w+)", statement)
        values = dict.fromkeys(names, 1) if names else (1,) * statement.count("?")
        connection.execute(f"EXPLAIN {statement}", values)
    connection.close()


def test_migrations_are_numbered_from_1_without_a_gap() -> None:
    names = sorted(file.name for file in resources.files("dispatch.store").joinpath("sql").iterdir())
    assert {name for name in names if not re.fullmatch(r"(sqlite|postgres)_\d{4}\.sql", name)} == {
        "postgres.sql",
        "sqlite.sql",
    }
    for database in ("postgres", "sqlite"):
        numbered = [name for name in names if name.startswith(f"{database}_")]
        assert numbered == [f"{database}_{number:04}.sql" for number in range(1, len(numbered) + 1)]
        assert len(migrations("dispatch.store", database)) == len(numbered)
        assert all(len(statements) > 0 for statements in migrations("dispatch.store", database))
