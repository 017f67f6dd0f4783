"""What an installation without extras brings is enough for all but the modules of an extra."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dispatch.bench.fleet import PEERS_NEED

ROOT = Path(__file__).parents[2]
OURS = {"dispatch", "listsched", "harness"}
#: Which files may import what comes with an extra, by the extra's name.
OF_EXTRAS = {
    "bench": "dispatch/bench/fleet_peers.py",
    "http": "harness/fleet/http.py",
    "kafka": "harness/fleet/transport/kafka*.py",
    "metrics": "harness/fleet/metrics.py",
}
NOT_FOR_TESTS = {"bench"}  # other queues, to measure against: asked for by name, or never imported
ONLY_IF_THERE = {"trio"}  # looked at when the caller's program runs on it, never required


def imported() -> Iterator[tuple[str, Path]]:
    for package in OURS:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    yield from ((name.name.partition(".")[0], path) for name in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    yield node.module.partition(".")[0], path


def names(requirements: Iterable[str]) -> set[str]:
    """Normalized as the index does."""
    return {re.split(r"[\[<>=~!; ]", line, maxsplit=1)[0].lower().replace("_", "-") for line in requirements}


def declared_for(path: Path, project: dict[str, Any]) -> set[str]:
    """The distributions that are there wherever this file is imported."""
    extras = [extra for extra, files in OF_EXTRAS.items() if path.relative_to(ROOT).match(files)]
    return names(
        [*project["dependencies"], *(line for name in extras for line in project["optional-dependencies"][name])]
    )


def test_every_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    providers = importlib.metadata.packages_distributions()
    undeclared = {
        f"{module} in {path.relative_to(ROOT)}"
        for module, path in imported()
        if module not in sys.stdlib_module_names | OURS | ONLY_IF_THERE
        and not declared_for(path, project) & names(providers.get(module, [module]))
    }
    assert not undeclared


def test_what_comes_with_extras_is_there_for_tests() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) == {*OF_EXTRAS, "dev"}
    for name in OF_EXTRAS.keys() - NOT_FOR_TESTS:
        assert set(extras[name]) <= set(extras["dev"]), name


def test_all_but_the_modules_of_extras_can_be_imported_without_them() -> None:
    """Each module that an extra brings is made one that isn't there."""
    files = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))
    ours = [path for path in files if not any(path.relative_to(ROOT).match(some) for some in OF_EXTRAS.values())]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ours if path.name != "__main__.py"]
    of_extras = ["confluent_kafka", "prometheus_client", "starlette", *PEERS_NEED]
    program = (
        "import importlib, sys\n"
        f"for name in {of_extras!r}: sys.modules[name] = None\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run((sys.executable, "-c", program), cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
