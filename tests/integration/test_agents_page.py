"""`docs/agents.md` keeps its word: the wrapper on the page runs as it stands, and every variable is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.local.folder import SessionFolder
from harness.session import SessionPhase
from tests.integration.workshop import Repo, assignment, in_environment, make_repo, until, workshop

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
# Writes down what it is asked, and makes a file a turn. `wait` in the prompt: it takes its time.
AGENT = """#!/bin/sh
eval prompt=\\${$#}
echo "$prompt" >> prompts.txt
touch "$DISPATCH_DIR/turn-$(wc -l < prompts.txt)"
case "$prompt" in *wait*) until [ -e "$DISPATCH_DIR/go" ]; do sleep 0.02; done ;; esac
case "$prompt" in *fail*) exit 7 ;; esac
echo "agent says: done"
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo")


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, ...]:
    found = re.search(r"```sh\n(#!/bin/sh.*?)```", PAGE, re.DOTALL)
    assert found is not None
    for name, text in (("wrapper", found[1]), ("agent", AGENT)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return (str(tmp_path / "wrapper"), str(tmp_path / "agent"), "--prompt")


def test_the_wrapper_runs_a_turn_for_the_task_and_one_a_message(repo: Repo, command: tuple[str, ...]) -> None:
    with workshop(repo) as shop:
        shop.submit(assignment("s1", *command, title="Wait a bit", task="wait"))
        folder = repo.root / "sessions" / "graph1" / "s1@1"
        until(lambda: list(folder.glob("turn-*")))
        assert shop.send("s1@1", "and then this") == "turn-2"
        (folder / "go").touch()
        assert shop.reports.end("s1@1").phase is SessionPhase.MERGED
    assert '{"turn": "turn-2", "message": "and then this"}' in repo.show("main", "prompts.txt")
    subjects = repo.git("log", "--format=%s", "main").splitlines()
    assert {"Wait a bit, turn 1", "Wait a bit, turn 2"} <= set(subjects)


def test_the_wrapper_stops_at_a_safepoint(repo: Repo, command: tuple[str, ...]) -> None:
    with workshop(repo) as shop:
        shop.submit(assignment("s1", *command, task="wait"))
        until(lambda: list((repo.root / "sessions" / "graph1" / "s1@1").glob("turn-*")))
        shop.cancel("s1@1")
        state = shop.reports.end("s1@1")
    assert state.phase is SessionPhase.CANCELED
    assert "Stopped in turn 1, after: first" in state.checkpoint
    assert "wait" in repo.show("refs/dispatch/keep/s1/1", "prompts.txt")
    assert in_environment(f"DISPATCH_DIR={repo.root}") == []


def test_the_wrapper_passes_a_failure_on(repo: Repo, command: tuple[str, ...]) -> None:
    with workshop(repo) as shop:
        [state] = shop.run(assignment("s1", *command, task="fail"))
    assert (state.phase, state.detail) == (SessionPhase.CLOSED, "exit 7")


def test_the_wrapper_is_thirty_lines() -> None:
    found = re.search(r"```sh\n(#!/bin/sh.*?)```", PAGE, re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) <= 34


def test_every_variable_is_on_the_page() -> None:
    one = assignment("s1", "true")
    names = SessionFolder(Path("/x")).environment(one, "b", "t")
    assert set(re.findall(r"`(DISPATCH_[A-Z]+)`", PAGE)) == set(names)
