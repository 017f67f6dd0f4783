"""SQL kept as SQL: the named blocks and the numbered migrations under the folder `sql/` of a package.

A file of queries holds blocks, each headed by a line `-- name: <name>`; what stands before the first is a comment on
the file. A migration `<database>_<number>.sql` brings a schema of version number - 1 to version number.
"""

from __future__ import annotations

import sqlite3
from importlib import resources

_HEAD = "-- name: "


def named_blocks(package: str, file_name: str) -> dict[str, str]:
    """The blocks of `sql/<file_name>` in the package of that dotted name, by name, without their comment lines."""
    blocks: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in _read(package, file_name).splitlines():
        if line.startswith(_HEAD):
            lines = blocks.setdefault(line.removeprefix(_HEAD).strip(), [])
        elif not line.startswith("--"):
            lines.append(line)
    return {name: "\n".join(lines).strip() for name, lines in blocks.items()}


def migrations(package: str, database: str) -> list[list[str]]:
    """The statements of each migration of `database`, in order; the schema's newest version is their number."""
    names = [entry.name for entry in resources.files(package).joinpath("sql").iterdir()]
    numbered = sorted(name for name in names if name.startswith(f"{database}_"))
    return [_statements(_read(package, name)) for name in numbered]


def _read(package: str, file_name: str) -> str:
    return resources.files(package).joinpath("sql", file_name).read_text("utf-8")


def _statements(script: str) -> list[str]:
    """One by one, because `executescript` would commit the transaction that a migration runs in.

    What stands between two `$$` is the body of a function, in a language of its own.
    """
    statements, lines = [], [""]
    for line in script.splitlines():
        lines.append(line)
        statement = "\n".join(lines)
        if statement.count("$$") % 2 == 0 and sqlite3.complete_statement(statement):
            statements.append(statement.strip())
            lines = [""]
    return statements
