"""Worker processes, as a user starts them, and what befalls them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import attrs

from benchmarks.fencing.chore import KIND, LEDGER
from benchmarks.fencing.notes import Note, read

ROOT = Path(__file__).parents[2]
SKEWS_S = (0.0, 3600.0, 0.0, -3600.0)  #: of every four workers, two have a wrong clock
SLOTS = 3
LIMIT_S = 30.0


@attrs.define
class Workers:
    """Some processes. `suspended`: in which spans each stood still, by the monotonic clock."""

    folder: Path
    environ: Mapping[str, str]
    running: list[subprocess.Popen[bytes]] = attrs.field(factory=list)
    suspended: dict[int, list[tuple[float, float]]] = attrs.field(factory=lambda: defaultdict(list))
    started: int = 0

    def start(self) -> None:
        skew_s = SKEWS_S[self.started % len(SKEWS_S)]
        path = [str(ROOT), *([str(Path(__file__).parent / "skew")] if skew_s else [])]
        environ = {
            **os.environ,
            **self.environ,
            LEDGER: str(self.folder / "ledger"),
            "PYTHONPATH": os.pathsep.join(path),
            "FENCING_SKEW_S": str(skew_s),
        }
        command = [sys.executable, "-m", "dispatch", "worker", "--workers", str(SLOTS)]
        command += ["--executor", f"{KIND}=benchmarks.fencing.chore:run", "--drain-s", "5"]
        with (self.folder / f"worker-{self.started}.log").open("wb") as log:
            self.running.append(
                subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )
        self.started += 1

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(LIMIT_S)
        self.running.remove(process)

    def suspend(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """For so long; it may have ended by then."""
        began = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.suspended[process.pid].append((began, time.monotonic()))
        process.send_signal(signal.SIGCONT)

    def drain(self, process: subprocess.Popen[bytes]) -> None:
        """As an operator does: it ends by itself."""
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)
        self.running.remove(process)

    def mind(self) -> list[int]:
        """Start what is missing again; the exit statuses of those that ended by themselves."""
        ended = [process for process in self.running if process.poll() is not None]
        for process in ended:
            self.running.remove(process)
            self.start()
        return [process.returncode for process in ended]

    def notes(self) -> list[Note]:
        """What they have written so far, all of them."""
        ledger = self.folder / "ledger"
        return read(ledger) if ledger.exists() else []

    def end(self) -> None:
        for process in list(self.running):
            self.kill(process)
