"""What `docs/cli.md` says is left in a repository is all that is left, and goes as the page says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

from tests.e2e.desk import Desk, until

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
PLAN = """
cap = 4
[slices.merges]
command = ["sh", "-c", "echo 1 > 1.txt"]
[slices.review]
command = ["sh", "-c", "echo 2 > 2; git add 2; git commit -qm two; echo https://x/1 > $DISPATCH_DIR/pull_request"]
[slices.fails]
max_attempts = 1
command = ["sh", "-c", "echo 3 > 3.txt; exit 1"]
[slices.nested]
max_attempts = 1
command = ["sh", "-c", "git init -q in && cd in && git commit -q --allow-empty -m in; exit 1"]
[slices.cut]
command = ["sh", "-c", "echo 4 > 4.txt; git add 4.txt; git commit -qm four; touch $MARKS/up; sleep 600"]
"""


def commands() -> str:
    section = PAGE.split("\n## What is left in your repository, and how to remove it\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return str(block)


def files(folder: Path) -> set[str]:
    """But for objects, which a gc takes, and reflogs of branches that are there."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name for name in found if not name.startswith(("objects/", "logs/"))}


def states(desk: Desk) -> dict[str, str]:
    return {each["id"]: each["state"] for each in desk.document("list")["slices"]}


def test_the_commands_of_the_page_remove_all_that_is_left(desk: Desk) -> None:
    desk.git("branch", "mine")
    desk.git("commit", "--allow-empty", "-q", "-m", "second")  # so that git has made all files of its own
    before, refs = files(desk.repo / ".git"), desk.git("for-each-ref", "--format=%(refname)").split()
    process = desk.start("run", desk.plan(PLAN))
    until(desk.mark("up").exists, process)
    ended = ["failed", "failed", "in_review", "merged", "running"]
    until(lambda: sorted(states(desk).values()) == ended, process)
    process.kill()
    process.wait()
    for agent in desk.agents():
        os.kill(agent, signal.SIGKILL)
    left = set(desk.git("for-each-ref", "--format=%(refname)").split()) - set(refs)
    assert {"refs/heads/dispatch/review/1", "refs/heads/dispatch/cut/1"} <= left
    assert any(name.startswith("refs/dispatch/keep/fails/") for name in left)

    done = subprocess.run(("sh", "-eu"), input=commands(), cwd=desk.repo, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "refs/dispatch/keep/fails/" in done.stdout, "what is to be deleted is shown before"
    assert desk.git("for-each-ref", "--format=%(refname)").split() == refs
    assert desk.git("worktree", "list").count("\n") == 0
    assert files(desk.repo / ".git") == before
    assert (desk.repo / "1.txt").exists()
    desk.check_clean()
