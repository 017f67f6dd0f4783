"""What follows from how an agent ended."""

from __future__ import annotations

import errno

import attrs
import pytest

from harness.local.errors import GitError, StrayedError, SupersededError
from harness.local.merge import CheckoutInTheWayError
from harness.local.message import AskOwner, Exited, LookAgain, Open, Stage, Start, Stop, Sweep, TryAgain, Turn
from harness.local.outcome import (
    LINE_LIMIT,
    STOPPED,
    Ending,
    agent_ending,
    checkpoint_of,
    closed,
    is_url,
    last_url,
    readable,
    spawn_ending,
    verify_ending,
    with_left_out,
)
from harness.local.process import Exit
from harness.local.session import HANDLERS, ending_of
from harness.session import Recipe, SessionPhase

MERGED, CLOSED, FAILED, CANCELED = (
    SessionPhase.MERGED,
    SessionPhase.CLOSED,
    SessionPhase.FAILED,
    SessionPhase.CANCELED,
)
RECIPE = Recipe(quiet_limit_s=60.0)
WELL = Exit(0, None, False, False, False, 0, 0, "", 1.0)


@pytest.mark.parametrize(
    ("changes", "phase", "detail", "resume"),
    [
        ({"code": 1}, CLOSED, "exit 1", False),
        ({"code": 1, "last_line": "no"}, CLOSED, "exit 1: no", False),
        ({"code": 75}, CLOSED, "exit 75", True),
        ({"code": None, "signal": 9}, CLOSED, "ended by SIGKILL", False),
        ({"code": None, "signal": 64, "last_line": "x"}, CLOSED, "ended by SIGRTMAX: x", False),
        ({"code": None, "signal": 99}, CLOSED, "ended by signal 99", False),
        ({"stopped": True}, CANCELED, "stopped at a safepoint", True),
        ({"stopped": True, "code": 1}, CANCELED, "stopped at a safepoint", True),
        ({"stopped": True, "code": None, "signal": 15, "killed": True}, CANCELED, "stopped at a safepoint", True),
        ({"quiet": True, "code": None, "signal": 15}, CLOSED, "no output for 60 s", False),
        ({"code": None}, CLOSED, "exit None", False),
    ],
)
def test_the_end_of_an_agent(changes: dict[str, object], phase: SessionPhase, detail: str, resume: bool) -> None:
    ending = agent_ending(attrs.evolve(WELL, **changes), RECIPE, "")
    assert ending == Ending(phase, detail=detail, resume=resume)


def test_exit_0_is_to_be_merged_unless_a_pull_request_waits() -> None:
    assert agent_ending(WELL, RECIPE, "") is None
    waiting = agent_ending(WELL, RECIPE, "https://x/1")
    assert waiting is not None
    assert (waiting.phase, waiting.pull_request_url) == (CLOSED, "https://x/1")


@pytest.mark.parametrize(
    ("changes", "phase", "detail"),
    [
        ({"code": 2, "last_line": "bad"}, CLOSED, "verify failed: exit 2: bad"),
        ({"quiet": True}, CLOSED, "verify failed: no output for 60 s"),
        ({"stopped": True}, CANCELED, "stopped at a safepoint"),
    ],
)
def test_the_end_of_a_verify_command(changes: dict[str, object], phase: SessionPhase, detail: str) -> None:
    ending = verify_ending(attrs.evolve(WELL, **changes), RECIPE)
    assert ending is not None
    assert (ending.phase, ending.detail) == (phase, detail)
    assert verify_ending(WELL, RECIPE) is None


@pytest.mark.parametrize(
    ("error", "phase", "words"),
    [
        (FileNotFoundError(errno.ENOENT, "x"), FAILED, "command not found: 'agent'"),
        (PermissionError(errno.EACCES, "x"), FAILED, "chmod +x"),
        (OSError(errno.E2BIG, "Argument list too long"), FAILED, "Argument list too long"),
        (OSError(errno.ENOEXEC, "Exec format error"), FAILED, "Exec format error"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), CLOSED, "temporarily unavailable"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), CLOSED, "Cannot allocate memory"),
        (OSError(errno.EMFILE, "Too many open files"), CLOSED, "Too many open files"),
        (OSError(errno.ENOSPC, "No space left on device"), CLOSED, "No space left"),
    ],
)
def test_a_command_that_cannot_be_started(error: OSError, phase: SessionPhase, words: str) -> None:
    ending = spawn_ending(error, "agent", "command")
    assert ending.phase is phase
    assert words in ending.detail + ending.error


@pytest.mark.parametrize(
    ("error", "opened", "phase", "resume"),
    [
        (SupersededError("x"), True, CLOSED, True),
        (StrayedError("x"), True, CLOSED, False),
        (CheckoutInTheWayError("x"), True, CLOSED, True),
        (GitError("commit", 1, "no"), True, CLOSED, True),
        (GitError("worktree", 1, "no"), False, CLOSED, False),
        (
            GitError("checkout", 128, "fatal: 'refs/heads/a' exists; cannot create 'refs/heads/a/b'"),
            True,
            FAILED,
            False,
        ),
        (OSError(errno.ENOSPC, "No space left on device"), True, CLOSED, False),
        (ZeroDivisionError("a fault of ours"), True, CLOSED, False),
    ],
)
def test_an_error_ends_the_session(error: Exception, opened: bool, phase: SessionPhase, resume: bool) -> None:
    ending = ending_of(error, opened=opened)
    assert (ending.phase, ending.resume) == (phase, resume)
    assert "\n" not in ending.detail + ending.error


def test_details_are_one_printable_line_of_limited_length() -> None:
    detail = closed("a\nb\x1b[31mc" + "x" * 10_000).detail
    assert detail.isprintable()
    assert len(detail) == LINE_LIMIT


def test_a_checkpoint_says_how_it_ended_and_where_the_work_is() -> None:
    assert checkpoint_of(Ending(MERGED), "ref", "note") == ""
    assert checkpoint_of(closed("exit 1"), "", "") == "The previous attempt ended: exit 1."
    assert "begins from main without it" in checkpoint_of(closed("exit 1"), "ref", "")
    assert "begins with it" in checkpoint_of(STOPPED, "ref", "")
    assert checkpoint_of(STOPPED, "", "one\ntwo").endswith("It left this note:\none\ntwo")
    assert "\nOf its work was left out: x.\n" in checkpoint_of(STOPPED, "", "one", "left out: x")


def test_a_merge_says_what_it_left_out() -> None:
    assert with_left_out(Ending(MERGED), "") == ""
    assert with_left_out(Ending(MERGED), "left out: x") == "left out: x"
    assert with_left_out(Ending(MERGED, detail="no change"), "left out: x") == "no change; left out: x"
    assert with_left_out(closed("exit 1"), "left out: x") == "exit 1"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("agent", "it is looked for on PATH"),
        ("./agent", "it is looked for in the worktree, where only committed files are"),
        ("tools/agent", "it is looked for in the worktree, where only committed files are"),
        ("~/agent", "~ is not expanded"),
        ("~", "~ is not expanded"),
        ("/opt/agent", "install it there"),
    ],
)
def test_where_a_missing_command_was_looked_for(command: str, words: str) -> None:
    error = spawn_ending(FileNotFoundError(errno.ENOENT, "x"), command, "command").error
    assert error.startswith(f"command not found: {command!r}; {words}")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", ""),
        (b"a\nb\n", "a\nb"),
        (b"\n\na\n\n", "a"),
        (b"tab\there\x00\xff", "tab here\ufffd\ufffd"),
        ("\u202e\ud800".encode("utf-8", "surrogatepass"), "\ufffd" * 4),
        (b"x" * 20_000, "x" * 16_384),
    ],
)
def test_what_an_agent_says_is_made_fit_to_store(raw: bytes, text: str) -> None:
    assert readable(raw) == text
    readable(raw).encode()


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("https://example.org/pr/1", True),
        ("http://localhost:1/x?y#z", True),
        ("ftp://x", False),
        ("javascript:x", False),
        ("https://x y", False),
        ("https://x\ty", False),
        ("https://" + "x" * 3000, False),
        ("https://", False),
        ("https:///x", False),
        ("", False),
    ],
)
def test_what_counts_as_the_address_of_a_pull_request(text: str, fits: bool) -> None:
    assert is_url(text) is fits


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://a/1", "https://a/1"),
        ("Creating...\r\n\r\n  https://a/1  \r\n", "https://a/1"),
        ("https://a/1\nhttps://a/2\ndone\n", "https://a/2"),
        ("see https://a/1", ""),
        ("", ""),
    ],
)
def test_the_last_line_that_is_an_address_counts(text: str, url: str) -> None:
    assert last_url(text) == url


def test_every_stage_heeds_what_can_happen_in_it() -> None:
    """A stop is heeded wherever a session lives, an exit wherever something runs; opening and sweeping need none."""
    living = set(Stage) - {Stage.IDLE}
    assert {stage for stage, message in HANDLERS if message is Stop} == living
    assert {stage for stage, message in HANDLERS if message is Exited} == {Stage.RUNNING, Stage.VERIFYING}
    assert {message for _, message in HANDLERS} == {Start, Stop, Exited, Turn, LookAgain, AskOwner, TryAgain}
    assert not {Open, Sweep} & {message for _, message in HANDLERS}
