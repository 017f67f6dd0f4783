"""The demo's throwaway repository, and an environment in which nobody's git settings reach it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import attrs

from dispatch.cli.ending import RefusedError
from harness.local.git import require_git
from harness.local.log import log_path

README = "# The shop\n\nA shop made of text files, by a dozen slices of work.\n\n"
CHECK = """\
# The verify command of the plan: no file of the shop is empty.
! find . -name '*.txt' -empty | grep .
"""


@attrs.frozen
class Playground:
    """Where a demo takes place: everything is in `folder`."""

    folder: Path

    @property
    def repository(self) -> Path:
        return self.folder / "shop"

    @property
    def plan(self) -> Path:
        return self.repository / "plan.toml"

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder / 'graph.db'}"

    def log(self, graph_id: str, slice_id: str, attempt: int) -> Path:
        """What an agent has printed."""
        return log_path(self.repository / ".git" / "dispatch", graph_id, slice_id, attempt)

    def git(self, *words: str) -> str:
        """What git prints, without the last line end."""
        done = subprocess.run(
            ("git", *words), cwd=self.repository, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        )
        return done.stdout.rstrip("\n")

    def make(self) -> None:
        """The repository with its first commit, and a `python3` for the agents: the one that runs us."""
        commands = self.folder / "bin"
        for folder in (self.repository, commands):
            folder.mkdir(parents=True)
        (commands / "python3").symlink_to(sys.executable)
        (self.repository / "README.md").write_text(README, "utf-8")
        (self.repository / "check.sh").write_text(CHECK, "utf-8")
        for name in ("plan.toml", "agent.py"):
            text = resources.files("dispatch.demo").joinpath(name).read_text("utf-8")
            (self.repository / name).write_text(text, "utf-8")
        self.git("init", "--quiet", "--initial-branch=main", "--template=")
        for setting in ("user.name=Demo agent", "user.email=agent@demo.invalid", "gc.auto=0"):
            self.git("config", *setting.split("=", 1))
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "An empty shop, a plan and an agent")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Within it git, also that of the agents, knows no settings but the repository's own."""
        before = dict(os.environ)
        for name in [name for name in before if name.startswith("GIT_")]:
            del os.environ[name]
        os.environ["GIT_CONFIG_GLOBAL"], os.environ["GIT_CONFIG_NOSYSTEM"] = os.devnull, "1"
        os.environ["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{before.get('PATH', os.defpath)}"
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextlib.contextmanager
def playground(keep: Path | None) -> Iterator[Playground]:
    """A playground, ready; in `keep` it stays, without one it is thrown away. Raises `RefusedError`,
    and `RepositoryError` without a git that is new enough."""
    require_git(Path(tempfile.gettempdir()))
    place = Playground(_kept(keep) if keep else Path(tempfile.mkdtemp(prefix="dispatch-demo-")).resolve())
    try:
        with place.alone():
            place.make()
            yield place
    finally:
        if keep is None:
            shutil.rmtree(place.folder)


def _kept(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise RefusedError(f"{folder} can't be used: {error.strerror}; name another folder with --keep") from error
    if taken:
        raise RefusedError(f"{folder} isn't empty; name a new folder with --keep")
    return folder.resolve()
