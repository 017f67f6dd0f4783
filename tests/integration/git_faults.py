"""A `git` that goes wrong at its n-th call: it fails, or its caller is killed before, during or after it.

Put in front of PATH. It counts right as long as one call is made at a time.
"""

from __future__ import annotations

import shutil
from pathlib import Path

MODES = ("fails", "killed-before", "killed-during", "killed-after")
SHIM = """#!/bin/sh
echo "$*" >> "{calls}/words"
read -r at mode < "{calls}/fault"
[ "$(wc -l < "{calls}/words")" = "$at" ] || exec {git} "$@"
case "$mode" in
    fails) echo "fatal: injected fault" >&2; exit 128 ;;
    killed-before) kill -9 $PPID; exit 1 ;;
    killed-during) kill -9 $PPID; sleep 0.2; exec {git} "$@" ;;
    killed-after) {git} "$@"; code=$?; kill -9 $PPID; exit $code ;;
esac
"""


class FaultyGit:
    """The folder to put in front of PATH, and the fault that is armed."""

    def __init__(self, folder: Path) -> None:
        real = shutil.which("git")
        assert real is not None
        self.real, self.bin, self._calls = real, folder / "bin", folder / "calls"
        self.bin.mkdir(parents=True)
        self._calls.mkdir()
        self.arm(0, "fails")
        (self.bin / "git").write_text(SHIM.format(calls=self._calls, git=real))
        (self.bin / "git").chmod(0o755)

    def arm(self, at: int, mode: str) -> None:
        """The `at`-th call from now on goes wrong; 0 for none."""
        (self._calls / "words").write_text("")
        (self._calls / "fault").write_text(f"{at} {mode}\n")

    def calls(self) -> list[str]:
        """What was called since, in order."""
        return (self._calls / "words").read_text().splitlines()
