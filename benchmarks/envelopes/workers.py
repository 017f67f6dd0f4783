"""Worker processes, as a user starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from benchmarks.envelopes.chore import KINDS, LEDGER, MORNING

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0


@attrs.define
class Workers:
    """Some processes, of so many slots each, that write their logs into the folder."""

    folder: Path
    environ: Mapping[str, str]
    slots: int
    running: list[subprocess.Popen[bytes]] = attrs.field(factory=list)

    def start(self) -> None:
        environ = {
            **os.environ,
            **self.environ,
            LEDGER: str(self.folder / "ledger"),
            MORNING: str(self.folder / "morning"),
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "dispatch", "worker", "--workers", str(self.slots), "--drain-s", "5"]
        for kind in KINDS:
            command += ["--executor", f"{kind}=benchmarks.envelopes.chore:run"]
        with (self.folder / f"worker-{len(self.running)}.log").open("wb") as log:
            self.running.append(
                subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def end(self) -> list[int]:
        """As an operator does; their exit statuses."""
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        return [process.wait(LIMIT_S) for process in self.running]

    def kill(self) -> None:
        """Those that are there yet."""
        for process in self.running:
            process.kill()
            process.wait(LIMIT_S)
