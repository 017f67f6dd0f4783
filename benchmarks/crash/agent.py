"""What the campaign's slices run, as a session's command and as its verify command: real work, and a ledger of it.

Stands alone, so that it starts fast: `python -I -S agent.py FOLDER work|verify`. Everything it knows is in FOLDER,
which lies outside of the repository and of the store: `jobs.json`, what each slice is to do; `ledger`, one JSON object
a line, appended and synced; `locks/<slice>`, locked for as long as anything of that slice runs, the kernel's word for
who is alive; `bell`, a FIFO that wakes the campaign; `marks/`, what has happened once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

LOCK = "hhqqi4x"  #: struct flock: type, whence, start, length, pid
LINGER_S = "60"  #: how long what an agent leaves behind would go on
CALLER = b"\0dispatch\0run\0"


def take(folder: Path, slice_id: str) -> tuple[int, bool]:
    """The slice's lock, held until the last process that inherits the descriptor is gone; and whether it was free."""
    descriptor = os.open(folder / "locks" / slice_id, os.O_RDWR)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(LOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
    except OSError:
        return descriptor, False
    return descriptor, True


def alive(folder: Path, but: str = "") -> list[str]:
    """The slices whose locks are held right now, by the kernel's word. Looking takes no lock."""
    return [path.name for path in sorted((folder / "locks").iterdir()) if path.name != but and _held(path)]


def _held(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        asked = struct.pack(LOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    finally:
        os.close(descriptor)
    return bool(struct.unpack(LOCK, answer)[0] != fcntl.F_UNLCK)


def blob_id(text: str) -> str:
    """What git will call a file with this text."""
    data = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def head(worktree: Path) -> str:
    """The commit checked out, read from git's files: no process, no lock."""
    git_dir = Path((worktree / ".git").read_text().removeprefix("gitdir: ").strip())
    text = (git_dir / "HEAD").read_text().strip()
    if text.startswith("ref: "):
        text = (git_dir / (git_dir / "commondir").read_text().strip() / text.removeprefix("ref: ")).read_text().strip()
    return text


class Ledger:
    """What this process did, one line each, on the disk before it goes on."""

    def __init__(self, folder: Path, role: str) -> None:
        self._folder = folder
        self._who = {
            "slice": os.environ["DISPATCH_SLICE"],
            "attempt": int(os.environ["DISPATCH_ATTEMPT"]),
            "token": os.environ["DISPATCH_SESSION"],
            "pid": os.getpid(),
            "parent": os.getppid(),
            "role": role,
        }

    def note(self, kind: str, **facts: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic(), **self._who, **facts}) + "\n"
        descriptor = os.open(self._folder / "ledger", os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, line.encode())
        os.fsync(descriptor)
        os.close(descriptor)
        bell = os.open(self._folder / "bell", os.O_RDWR | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):  # it is ringing already
            os.write(bell, b"!")
        os.close(bell)


def first_time(mark: Path) -> bool:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def killing(place: str) -> None:
    """Kills the run that started us if it is to die at this passage of `place`: `CRASH_AGENT=<run> <place> <n>`."""
    run, wanted, count = os.environ.get("CRASH_AGENT", "- - 0").split()
    if place != wanted:
        return
    marks = Path(os.environ["CRASH_FOLDER"]) / "marks"
    passage = next(n for n in range(1, 1000) if first_time(marks / f"{run}-{place}-{n}"))
    parent = os.getppid()
    if passage == int(count) and CALLER in Path(f"/proc/{parent}/cmdline").read_bytes():
        os.kill(parent, signal.SIGKILL)


def work(folder: Path, job: dict[str, Any]) -> int:
    """One attempt. Its files say the same whatever was done of it before, but for the note, which is its own."""
    name, marks = os.environ["DISPATCH_SLICE"], folder / "marks"
    ledger = Ledger(folder, "agent")
    flavour = job["flavour"]

    def stop(number: int, frame: FrameType | None) -> None:
        Path(os.environ["DISPATCH_CHECKPOINT"]).write_text("stopped at a safepoint\n")
        ledger.note("stop", how="asked")
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if flavour == "stubborn" else stop)
    lock, free = take(folder, name)
    ledger.note("start", free=free, alive=alive(folder, but=name), head=head(Path.cwd()))
    killing("spawn")
    if flavour.startswith("leaves"):
        leave_behind(lock, flavour)
    note = f"{name} {os.environ['DISPATCH_ATTEMPT']} {os.environ['DISPATCH_SESSION']}\n"
    write(f"notes/{name}-{os.environ['DISPATCH_ATTEMPT']}.txt", note)
    ledger.note("wrote", object=blob_id(note))
    write(f"out/{name}.txt", job["body"][: len(job["body"]) // 2])
    if flavour == "commits":
        subprocess.run(["git", "add", "-A"], check=True)
        subprocess.run(["git", "commit", "-q", "-m", f"half of {name}"], check=True)
        ledger.note("wrote", object=head(Path.cwd()))
    time.sleep(job["length_s"])
    for path, line in job["lines"].items():
        add_line(path, line)
    broken = flavour == "breaks" and not (marks / f"broke-{name}").exists()
    write(f"out/{name}.txt", "BROKEN\n" if broken else job["body"])
    failing = flavour == "fails" and first_time(marks / f"failed-{name}")
    failing = failing or (flavour == "doomed" and not (marks / f"luck-{name}").exists())
    killing("exit")
    ledger.note("stop", how="failed" if failing else "done")
    return 1 if failing else 0


def leave_behind(lock: int, flavour: str) -> None:
    """A child that goes on when we are gone, holding the slice's lock; one kind has left our group and session."""
    deaf = ["sh", "-c", f'trap "" TERM; sleep {LINGER_S} & sleep {LINGER_S}']
    subprocess.Popen(
        deaf if flavour == "leaves-deaf" else ["sleep", LINGER_S],
        pass_fds=(lock,),
        start_new_session=flavour == "leaves-away",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def verify(folder: Path, job: dict[str, Any]) -> int:
    """Judges the merged tree that is checked out here."""
    name = os.environ["DISPATCH_SLICE"]
    ledger = Ledger(folder, "verify")
    _, free = take(folder, name)
    commit = head(Path.cwd())
    ledger.note("start", free=free, alive=alive(folder, but=name), head=commit)
    killing("verify")
    time.sleep(job["verify_s"])
    good = Path(f"out/{name}.txt").read_text() == job["body"]
    if not good:
        first_time(folder / "marks" / f"broke-{name}")
    ledger.note("stop", how="good" if good else "bad", head=commit)
    killing("verified")
    return 0 if good else 1


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def add_line(name: str, line: str) -> None:
    """At the end, unless an attempt before has added it."""
    text = Path(name).read_text()
    if line not in text.splitlines():
        Path(name).write_text(f"{text}{line}\n")


def main() -> int:
    folder, role = Path(sys.argv[1]), sys.argv[2]
    job = json.loads((folder / "jobs.json").read_text())[os.environ["DISPATCH_SLICE"]]
    return work(folder, job) if role == "work" else verify(folder, job)


if __name__ == "__main__":
    sys.exit(main())
