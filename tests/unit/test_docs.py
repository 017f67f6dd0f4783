"""What the pages say of the code is what the code says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatch.machine import TRANSITIONS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGES = ("listsched", "harness", "dispatch")
STEP = 2  #: blanks by which what is inside of a folder is indented


def test_the_drawn_states_are_the_table() -> None:
    page = (DOCS / "architecture.md").read_text()
    drawn = page.split("stateDiagram-v2\n", 1)[1].split("```", 1)[0].split("\n")
    table = [f"{before.value} --> {after.value}" for before, afters in TRANSITIONS.items() for after in afters]
    assert {line.strip() for line in drawn if line.strip()} == {"[*] --> queued", *table}


def test_the_floor_plan_has_every_module_once_and_no_other() -> None:
    page = (DOCS / "architecture.md").read_text()
    drawn = next(block for block in page.split("```text\n")[1:] if block.startswith("listsched/")).split("```", 1)[0]
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.name != "__init__.py")
    named, there = list(on_the_plan(drawn)), {path.relative_to(ROOT).as_posix() for path in paths}
    missing, gone = sorted(there - set(named)), sorted(set(named) - there)
    assert (missing, gone) == ([], []), "draw what is missing on the floor plan of docs/architecture.md"
    assert len(named) == len(there)


def on_the_plan(drawn: str) -> Iterator[str]:
    """The modules that a floor plan names: after its floor's letter, each in the folder that stands above it."""
    folders: list[str] = []
    for line in drawn.splitlines():
        depth = (len(line) - len(line.lstrip())) // STEP
        del folders[depth:]
        if folder := re.match(r"\s*(\w+/)", line):
            folders.append(folder[1])
            continue
        modules = re.match(r"\s*[pas]((?: \w+\.py)+)  ", line)
        assert modules is not None, f"neither a folder nor modules: {line}"
        yield from ("".join(folders) + name for name in modules[1].split())


@pytest.mark.parametrize(
    ("drawn", "modules"),
    [
        ("a/  x\n  p b.py c.py  y\n", ["a/b.py", "a/c.py"]),
        ("a/\n  b/\n    s c.py  x, d.py: not one\n  s e.py  x\nf/\n  p g.py  x\n", ["a/b/c.py", "a/e.py", "f/g.py"]),
    ],
)
def test_a_floor_plan_is_read_line_by_line(drawn: str, modules: list[str]) -> None:
    assert list(on_the_plan(drawn)) == modules
