"""A scheduler to be killed: `python scheduler.py` forks a child for each line it reads, which runs a host.

A line is `{"repo": folder, "path": PATH, "out": file, "slices": [[id, attempt, script, verify], ...]}`; the child
appends a line to `out` for each report and ends when every slice has one. For each child, `pid N` is printed at once
and `exit N` at the end. Forking saves the time that an interpreter takes to start; the parent has no threads.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from harness.local import LocalSessionHost
from tests.integration.workshop import Reports, assignment


def run(order: dict[str, Any]) -> None:
    os.environ["PATH"] = order["path"]
    host, reports = LocalSessionHost(order["repo"]), Reports()
    host.connect(reports)
    ones = [
        assignment(slice_id, script, attempt=attempt, verify=tuple(verify))
        for slice_id, attempt, script, verify in order["slices"]
    ]

    async def submit() -> None:
        for one in ones:
            await host.submit(one)

    asyncio.run(submit())
    for one in ones:
        state = reports.end(one.assignment_id)
        with Path(order["out"]).open("a") as file:
            file.write(json.dumps([state.assignment_id, state.phase.value, state.detail or state.error]) + "\n")
    if order.get("close", True):
        host.close(10.0)


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run(json.loads(line))
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(f"pid {child}", flush=True)
        _, status = os.waitpid(child, 0)
        print(f"exit {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
