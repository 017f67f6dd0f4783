"""The command line is there at once: what only some commands need is loaded by those alone."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"networkx", "psutil", "rich", "trio", "yaml"}


def loaded_by(*words: str) -> set[str]:
    """The modules that the interpreter loads for these words on its command line."""
    done = subprocess.run((sys.executable, "-X", "importtime", *words), capture_output=True, text=True, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_help_loads_nothing_that_it_has_no_use_for() -> None:
    loaded = loaded_by("-m", "dispatch", "--help")
    assert {"typer", "dispatch.cli"} <= loaded
    assert not (HEAVY | {"pykka", "psycopg", "dispatch.machine", "dispatch.store", "harness.local"}) & loaded


def test_importing_the_library_loads_no_command_line() -> None:
    assert "dispatch.service" not in loaded_by("-c", "import dispatch"), "a program that starts waits for it"
    program = "import sys; from dispatch import DispatchService; print(*sys.modules)"
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "dispatch.service" in loaded
    assert not (HEAVY | {"typer", "dispatch.cli"}) & loaded


def test_the_service_itself_needs_no_graph_library() -> None:
    program = (
        "from dispatch import DispatchService, FixedCap, Slice\n"
        "class Host:\n"
        "    async def submit(self, assignment): pass\n"
        "    async def send(self, assignment_id, message): return ''\n"
        "    async def cancel(self, assignment_id): pass\n"
        "with DispatchService(Host(), measures=FixedCap(1)) as service:\n"
        "    service.enqueue_many([Slice('a'), Slice('b', depends_on=('a',))])\n"
        "    service.settle(30)\n"
    )
    assert "networkx" not in loaded_by("-c", program)
