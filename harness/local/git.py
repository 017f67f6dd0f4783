"""Running git: a scrubbed environment, a time limit, and patience with another git's locks.

The output goes to memory files rather than pipes, so that a hook that leaves something running in the background can't
keep a command from being seen to end. Each command has a process group of its own: ctrl-C at a terminal doesn't tear
a merge in two, and a killed scheduler doesn't take its git along.
"""

from __future__ import annotations

import os
import random
import re
import select
import signal
import subprocess
import time
from collections.abc import Container, Mapping
from pathlib import Path

import attrs

from harness.local.errors import GitError, RepositoryError

LIMIT_S = 600.0  #: a checkout of a very large tree ends within it; a hook that waits for an answer doesn't
PATIENCE_S = 10.0  #: how long another git may hold a lock that ours needs
OLDEST = (2, 38)  #: the first that merges without a work tree (merge-tree --write-tree)

# What a surrounding git (a hook, an alias) sets for its own children. GIT_CONFIG_COUNT stays: people configure by it.
LOCAL_VARIABLES = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CONFIG_PARAMETERS",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NAMESPACE",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_QUARANTINE_PATH",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
SETTINGS = tuple(
    word
    for setting in (
        "gc.auto=0",
        "maintenance.auto=false",
        "commit.gpgSign=false",
        "core.fsmonitor=false",
        "core.quotePath=false",
        "worktree.useRelativePaths=false",
    )
    for word in ("-c", setting)
)
LOCKED = re.compile(
    r"Unable to create '[^']*\.lock': File exists"
    r"|could not lock config file"
    r"|cannot lock ref '[^']*': Unable to create"
    r"|Unable to write new index file"
)


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without what binds git to some other repository."""
    return {name: value for name, value in environment.items() if name not in LOCAL_VARIABLES}


@attrs.frozen
class Output:
    """What a git command answered. File names that are no UTF-8 carry lone surrogates (`os.fsdecode`)."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The output without the line ends around it."""
        return self.out.strip("\n")


@attrs.frozen
class Git:
    """Runs git in one folder. `extra` is added to the environment; `hold` are descriptors every command inherits.

    A lock taken with flock on an inherited descriptor is held until the command ends too, even if this process is
    killed before.
    """

    folder: Path
    extra: Mapping[str, str] = attrs.field(factory=dict)
    hold: tuple[int, ...] = ()

    def __call__(self, *words: str, given: str = "", ok: Container[int] = (0,)) -> Output:
        """Runs `git words`, with `given` on its standard input. Raises `GitError` for an exit status not in `ok`.

        A command that met another git's lock is run again until `PATIENCE_S` are over; no lock is ever removed.
        """
        give_up_at = time.monotonic() + PATIENCE_S
        pause_s = 0.01
        while True:
            output = self._run(words, given)
            if output.code in ok:
                return output
            if not LOCKED.search(output.err) or time.monotonic() >= give_up_at:
                raise GitError(command_of(words), output.code, output.err or output.out)
            time.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, 0.5)

    def holding(self, *descriptors: int) -> Git:
        """The same, whose commands inherit these descriptors too."""
        return attrs.evolve(self, hold=(*self.hold, *descriptors))

    def _run(self, words: tuple[str, ...], given: str) -> Output:
        out, err = os.memfd_create("git-out"), os.memfd_create("git-err")
        source = memory(given) if given else subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                ("git", *SETTINGS, *words),
                cwd=self.folder,
                env=self._environment(),
                stdin=source,
                stdout=out,
                stderr=err,
                pass_fds=self.hold,
                process_group=0,
            )
            code = wait(process, command_of(words))
            return Output(code, contents(out), contents(err))
        except FileNotFoundError as error:
            if error.filename == "git":
                raise RepositoryError("git is not installed, or not on PATH; install git 2.38 or newer") from error
            raise GitError(command_of(words), None, f"fatal: {self.folder} is not there") from error
        except NotADirectoryError as error:
            raise GitError(command_of(words), None, f"fatal: {self.folder} is no folder") from error
        finally:
            for descriptor in (out, err, source):
                if descriptor >= 0:
                    os.close(descriptor)

    def _environment(self) -> dict[str, str]:
        fixed = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_OPTIONAL_LOCKS": "0"}
        return scrubbed(os.environ) | fixed | dict(self.extra)


def command_of(words: tuple[str, ...]) -> str:
    """The first word that is no option: what people call the command."""
    return next((word for word in words if not word.startswith("-")), "")


def memory(text: str) -> int:
    """A descriptor that reads as `text`."""
    descriptor = os.memfd_create("git-in")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(os.fsencode(text))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def contents(descriptor: int) -> str:
    """All that was written to the memory file."""
    size = os.fstat(descriptor).st_size
    return os.fsdecode(os.pread(descriptor, size, 0)) if size else ""


def wait(process: subprocess.Popen[bytes], command: str) -> int:
    """The exit status; one that takes longer than `LIMIT_S` is ended with its whole group, and a `GitError`."""
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(LIMIT_S * 1000):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise GitError(command, None, f"fatal: no end after {LIMIT_S:.0f} s (a hook that waits for something?)")
    finally:
        os.close(descriptor)
    return process.wait()


def require_git(folder: Path) -> None:
    """Raises `RepositoryError` unless git is there and new enough."""
    said = Git(folder)("--version").line
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise RepositoryError(f"git 2.38 or newer is needed and this is {said!r}; install a newer git")
