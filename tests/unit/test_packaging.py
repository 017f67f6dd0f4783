"""What an installation without extras brings is enough for what the packages import."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = {"dispatch", "listsched", "harness"}
ONLY_IF_THERE = {"trio"}  # looked at when the caller's program runs on it, never required


def imported() -> Iterator[tuple[str, Path]]:
    for package in OURS:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    yield from ((name.name.partition(".")[0], path) for name in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    yield node.module.partition(".")[0], path


def test_every_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[\[<>=~!; ]", line, maxsplit=1)[0].lower() for line in project["dependencies"]}
    providers = importlib.metadata.packages_distributions()
    undeclared = {
        f"{module} in {path.relative_to(ROOT)}"
        for module, path in imported()
        if module not in sys.stdlib_module_names | OURS | ONLY_IF_THERE
        and not declared & {name.lower() for name in providers.get(module, ())}
    }
    assert not undeclared
