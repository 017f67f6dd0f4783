"""Stands in for a coding agent: keeps to the contract of one (docs/agents.md of slice-dispatch), and can write lines.

Of its task it understands lines that begin with these words; the rest is for people:

    file: shop/cart.txt      where it writes, one line a turn; it commits after each turn
    turns: 0.8 0.8           how many seconds it thinks in each turn
    question: Which colour?  it asks first, and waits for the answer
    fails: no connection     its first attempt ends with this error

A safepoint is the end of a turn. When it is asked to stop it brings its turn to an early end.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE_S = 30.0  #: how long it waits for an answer
LOOK_AGAIN_S = 0.05  #: between two looks into the inbox
WINDING_UP_S = 1.2  #: what an early end of a turn takes
NOT_NOW = 75  #: the exit status that asks for another attempt, which goes on from the work so far


def main() -> int:
    """One attempt."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # heeded while thinking: no commit is torn in two
    say(f"begins at {time.time():.3f}")
    status, last_words = attempt(Path(os.environ["DISPATCH_TASK"]).read_text("utf-8"))
    say(f"ends at {time.time():.3f}")
    say(last_words)
    return status


def attempt(task: str) -> tuple[int, str]:
    """Its exit status, and what it says at the end."""
    orders = dict(re.findall(r"^(file|turns|question|fails): (.+)$", task, re.MULTILINE))
    turns = [float(seconds) for seconds in orders["turns"].split()]
    if "fails" in orders and os.environ["DISPATCH_ATTEMPT"] == "1":
        think(turns[0])
        return 1, orders["fails"]
    told = answer(orders["question"]) if "question" in orders else ""
    if "question" in orders and not told:
        return NOT_NOW, "has got no answer"
    return work(Path(orders["file"]), turns, f" ({told})" if told else "")


def work(file: Path, turns: list[float], remark: str) -> tuple[int, str]:
    """All turns that are left, or as many as it is given time for."""
    title, parts = os.environ["DISPATCH_TITLE"], len(turns)
    file.parent.mkdir(parents=True, exist_ok=True)
    for part in range(parts_done(file, title) + 1, parts + 1):
        say(f"thinks about part {part} of {parts}")
        stopped = think(turns[part - 1])
        if stopped:
            time.sleep(WINDING_UP_S)
        write(file, f"{title}: part {part} of {parts}{remark}")
        say(f"has committed part {part} of {parts}")
        if stopped:
            Path(os.environ["DISPATCH_CHECKPOINT"]).write_text(f"Part {part} of {parts} is done.\n", "utf-8")
            return NOT_NOW, "was asked to stop, and stops at a safepoint"
    return 0, "is done"


def parts_done(file: Path, title: str) -> int:
    """How far an earlier attempt got, if its work was carried over."""
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return sum(line.startswith(f"{title}: part ") for line in lines)


def think(seconds: float) -> bool:
    """Takes its time; True at once when it is asked to stop."""
    return signal.sigtimedwait({signal.SIGTERM}, seconds) is not None


def answer(question: str) -> str:
    """What the operator says to a question; empty if it is asked to stop, or if nobody answers."""
    say(f"asks: {question}")
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at and not think(LOOK_AGAIN_S):
        for line in Path(os.environ["DISPATCH_INBOX"]).read_text("utf-8").splitlines():
            return str(json.loads(line)["message"])
    return ""


def write(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write(line + "\n")
    subprocess.run(("git", "add", str(file)), check=True)
    subprocess.run(("git", "commit", "--quiet", "--message", line), check=True)


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
