"""What a beginner does wrong: each mistake is one line on stderr that says the way out, and exit status 2."""

from __future__ import annotations

import contextlib
import os
import pty
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.text import TERMINAL_SEQUENCE
from tests.e2e.desk import Desk, end

GOOD = '[slices.lexer]\ncommand = ["true"]\nhold = "x"\n'


def refusal(desk: Desk, *arguments: str | Path) -> str:
    """The one line that a command refuses with."""
    done = desk.ask(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1
    assert done.stderr[:-1].isprintable()
    return done.stderr.removeprefix("error: ").rstrip()


def elsewhere(desk: Desk) -> None:
    desk.repo = desk.folder / "plain"
    desk.repo.mkdir()


def unborn(desk: Desk) -> None:
    elsewhere(desk)
    desk.git("init", "-q", "-b", "main")


def detached(desk: Desk) -> None:
    desk.git("checkout", "-q", "--detach")


def dirty(desk: Desk) -> None:
    (desk.repo / "a.txt").write_text("changed\n")


REPOSITORIES: list[tuple[Callable[[Desk], None], str]] = [
    (elsewhere, "is not in a git repository; make one with: git init"),
    (unborn, "has no commit yet; make one with: git commit --allow-empty"),
    (detached, "HEAD is detached"),
    (dirty, "with uncommitted changes to a.txt; commit them, or put them aside with: git stash"),
]


@pytest.mark.parametrize(("spoil", "words"), REPOSITORIES)
def test_a_repository_that_cannot_be_worked_with(desk: Desk, spoil: Callable[[Desk], None], words: str) -> None:
    plan = desk.plan(GOOD)
    spoil(desk)
    assert words in refusal(desk, "run", plan)


PLANS = [
    ("plan.toml", "[slices.a\n", "plan.toml:1:10: "),
    ("plan.yaml", "slices:\n  a:\n   command: [true\n", "plan.yaml:"),
    ("plan.toml", '[slices.lex]\ncommand = ["x"]\n[slices.b]\ncommand = ["x"]\nneeds = "lxe"\n', "did you mean 'lex'?"),
    ("plan.toml", '[defaults]\ncommand = "x"\n[slices.a]\nneeds = "b"\n[slices.b]\nneeds = "a"\n', "a -> b -> a"),
    ("plan.toml", '[slices.a]\ncommand = ["x"]\ntouchs = "x"\n', "plan.toml:3: slices.a.touchs: "),
    ("plan.toml", "", "no slices"),
    ("plan.txt", GOOD, "a plan is a .toml, .yaml or .yml file"),
]


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(("name", "text", "words"), PLANS)
def test_a_plan_that_cannot_be_read(desk: Desk, command: str, name: str, text: str, words: str) -> None:
    assert words in refusal(desk, command, desk.plan(text, name))


def test_a_folder_that_was_removed_with_somebody_in_it(desk: Desk) -> None:
    plan = desk.plan(GOOD)
    assert desk.ask("run", plan).returncode == 1
    desk.repo = desk.repo / "gone"
    for words in (("run", plan), ("hold", "lexer")):
        desk.repo.mkdir()
        code, out, err = end(desk.start(*words, preexec_fn=desk.repo.rmdir))
        assert (code, out) == (2, "")
        assert err == "error: the folder you are in is not there any more; go to one that is with: cd\n"


def test_a_plan_that_is_not_there_or_a_folder(desk: Desk) -> None:
    assert "there is no such file" in refusal(desk, "run", desk.folder / "plan.toml")
    (desk.folder / "folder.toml").mkdir()
    assert "is a folder" in refusal(desk, "plan", desk.folder / "folder.toml")


def test_all_that_is_wrong_with_a_plan_is_told_up_to_a_point(desk: Desk) -> None:
    done = desk.ask("plan", desk.plan("".join(f"[slices.s{n}]\n" for n in range(22))))
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert [":1: slices.s0: has no command" in lines[0], ":20: slices.s19: " in lines[19]] == [True, True]
    assert lines[20:] == [f"error: {desk.folder}/plan.toml: and 2 more"]


def no_database(path: Path) -> None:
    path.write_text("hello, hello, hello, hello, hello\n" * 10)


def strangers(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE t (x)")
    database.close()


def newer(path: Path) -> None:
    from dispatch.store import SqliteStore

    store = SqliteStore(path)
    store.claim("g")
    store.release()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 999")
    database.close()


STORES: list[tuple[Callable[[Path], None], str]] = [
    (no_database, "is not a SQLite database; move it away, or name another store"),
    (strangers, "is a SQLite database of another program; name another store"),
    (newer, "was written by a newer version"),
    (Path.mkdir, "is a folder; name a file in it"),
]


@pytest.mark.parametrize(("spoil", "words"), STORES)
def test_a_store_that_cannot_be_used(desk: Desk, spoil: Callable[[Path], None], words: str) -> None:
    path = desk.folder / "graphs.db"
    spoil(path)
    url = f"sqlite:///{path}"
    assert words in refusal(desk, "run", desk.plan(GOOD), "--store", url)
    assert words in refusal(desk, "list", "--store", url)
    desk.check_clean()


def test_a_store_where_none_can_be_made(desk: Desk) -> None:
    path = desk.folder / "file"
    path.touch()
    assert "is not a folder" in refusal(desk, "run", desk.plan(GOOD), "--store", f"sqlite:///{path}/graphs.db")


def test_a_store_that_is_not_there_or_ends_with_its_process(desk: Desk) -> None:
    assert "`run` a plan first" in refusal(desk, "list")
    assert "ends with the process" in refusal(desk, "list", "--store", "memory:")
    assert "no store is of the kind" in refusal(desk, "list", "--store", "mongodb://x")


MISUSES = [
    ((), "", 0),
    (("run",), "Missing argument 'PLAN'", 2),
    (("run", "plan.toml", "--cap", "0"), "Invalid value for '--cap'", 2),
    (("run", "plan.toml", "--cap", "x"), "Invalid value for '--cap'", 2),
    (("plan", "plan.toml", "--cap", "-3"), "Invalid value for '--cap'", 2),
    (("list", "--jsn"), "--jsn", 2),
    (("list", "--graph", ""), "Invalid value for '--graph': it is empty", 2),
    (("run", "plan.toml", "--graph", ""), "Invalid value for '--graph': it is empty", 2),
    (("run", "plan.toml", "--store", ""), "Invalid value for '--store': it is empty", 2),
    (("lst",), "No such command 'lst'", 2),
    (("log", "a", "--attempt", "0"), "Invalid value for '--attempt'", 2),
]


@pytest.mark.parametrize(("arguments", "words", "status"), MISUSES)
def test_a_command_line_that_is_none(desk: Desk, arguments: tuple[str, ...], words: str, status: int) -> None:
    if status:
        line = refusal(desk, *arguments)
        assert words in line
        assert "--help" in line
    else:
        done = desk.ask(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Run a plan" in done.stdout


def test_a_slice_or_graph_that_is_not_known(desk: Desk) -> None:
    assert desk.ask("run", desk.plan(GOOD)).returncode == 1
    for command in ("explain", "log", "cancel", "retry", "hold", "release"):
        line = refusal(desk, command, "lexxer")
        assert "no slice 'lexxer' in graph 'plan-" in line
        assert line.endswith("did you mean 'lexer'?")
    assert "`list` shows them all" in refusal(desk, "explain", "\x1b]0;evil\x07\u202e")
    assert "has not been started yet" in refusal(desk, "log", "lexer")
    assert "there is no graph 'nope'" in refusal(desk, "list", "--graph", "nope")
    assert "cannot retry 'lexer': it is queued" in refusal(desk, "retry", "lexer")


def test_a_defect_is_one_line_and_its_traceback_is_kept(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> None:
        raise ZeroDivisionError("a \x1b[31mdefect")

    monkeypatch.setattr("dispatch.plans.read_plan", broken)
    done = desk.ask("plan", desk.plan(GOOD))
    assert (done.returncode, done.stdout) == (70, "")
    assert done.stderr.startswith("error: ZeroDivisionError: a defect; this is a defect; its traceback is in ")
    assert done.stderr.count("\n") == 1
    kept = Path(done.stderr.rstrip().rpartition(" ")[2])
    assert desk.state in kept.parents
    assert "ZeroDivisionError" in kept.read_text()


@pytest.mark.parametrize("words", [("run", "--plain"), ("run", "--json"), ("plan",), ("plan", "--json")])
def test_an_output_that_is_full_is_one_line(desk: Desk, words: tuple[str, ...]) -> None:
    command, *options = words
    plan = desk.plan('[slices.a]\ncommand = ["true"]\n')
    with Path("/dev/full").open("w") as full:
        process = desk.start(command, plan, *options, stdout=full)
        code, _, err = end(process)
    line = "error: the output can't be written: No space left on device; make room there\n"
    assert (code, err.endswith(line)) == (2, True), err
    assert "json" in words[-1] or err == line
    desk.check_clean()


@pytest.mark.parametrize("env", [{"TERM": "xterm"}, {"TERM": "xterm", "NO_COLOR": "1"}])
def test_a_command_that_is_not_found_is_told_in_full_on_a_narrow_terminal(desk: Desk, env: dict[str, str]) -> None:
    desk.env |= env | {"COLUMNS": "80"}
    process, shown = on_a_terminal(desk, "run", desk.plan('[slices.a]\ncommand = ["no-such-agent"]\n'), "--cap", "2")
    assert process.wait(60) == 1
    reason = "not found: 'no-such-agent'; it is looked for on PATH: install it, or name it by its full path\nlog: "
    head = f"in sqlite:///{desk.state}/slice-dispatch/graphs.db: 1 slice, 1 new\nmerges into main in {desk.repo}\n"
    for words in (reason, head):
        assert "".join(words.split()) in "".join(shown.split())


def on_a_terminal(desk: Desk, *arguments: str | Path) -> tuple[subprocess.Popen[str], str]:
    """The program to the end of its output, and that, without what moves the cursor or colours."""
    ours, theirs = pty.openpty()
    process = desk.start(*arguments, stdout=theirs, stderr=theirs, stdin=theirs, start_new_session=True)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: nobody has the terminal open any more
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    return process, TERMINAL_SEQUENCE.sub("", shown.decode())
