"""That no killpoint of the stores' code is forgotten by the tests that kill there."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import dispatch.store
import harness.database
from tests.integration.store_child import FATES

#: Passed by every exchange with the server, with either fate after it: `test_postgres_processes.py` kills at each.
AT_EVERY_EXCHANGE = {"postgres.after-send"}


def killpoints() -> list[str]:
    """Every name that is passed to `killpoint` in the stores' code, and in what they stand on."""
    found = []
    files = (Path(str(package.__file__)).parent.glob("*.py") for package in (dispatch.store, harness.database))
    for file in itertools.chain(*files):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "killpoint":
                (name,) = node.args
                found.append(ast.literal_eval(name))
    return found


def test_every_killpoint_of_the_code_is_tried() -> None:
    assert sorted(killpoints()) == sorted({name for name, _ in FATES} | AT_EVERY_EXCHANGE)
