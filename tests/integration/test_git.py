"""Running git: what reaches it, how long it may take, whom it waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.local import git as git_module
from harness.local import lock as locks
from harness.local.errors import GitError
from harness.local.git import Git, memory, scrubbed
from harness.local.lock import FileLock, LockTimeoutError
from tests.integration.workshop import ROOT_OF_TESTS, Repo, alive, make_repo, until


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo")


def alias(git: Git, script: str, given: str = "", ok: tuple[int, ...] = (0,)) -> str:
    """Runs a script as git's own child, where git would run a hook."""
    return git("-c", f"alias.run=!{script}", "run", given=given, ok=ok).out


def test_the_environment_is_scrubbed() -> None:
    assert scrubbed({"GIT_DIR": "x", "GIT_INDEX_FILE": "x", "HOME": "h", "GIT_CONFIG_COUNT": "0"}) == {
        "HOME": "h",
        "GIT_CONFIG_COUNT": "0",
    }


def test_it_speaks_english_and_never_asks(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    said = alias(Git(repo.path), 'echo "$LC_ALL $GIT_TERMINAL_PROMPT"; cat')
    assert said == "C 0\n"


def test_every_variable_that_binds_git_to_a_repository_is_scrubbed() -> None:
    """As git itself lists them, but for the settings that people pass by number."""
    local = subprocess.run(("git", "rev-parse", "--local-env-vars"), capture_output=True, text=True, check=True)
    assert set(local.stdout.split()) - {"GIT_CONFIG_COUNT"} <= git_module.LOCAL_VARIABLES


def test_file_names_that_are_no_utf8_come_through(repo: Repo) -> None:
    name = os.fsdecode(b"caf\xe9")
    (repo.path / name).write_text("x")
    git = Git(repo.path)
    git("add", "--", name)
    assert git("ls-files", "-z").out.split("\0")[1] == name
    assert alias(git, "cat", given=name) == name


def test_an_error_is_one_line_with_the_evidence(repo: Repo) -> None:
    with pytest.raises(GitError) as caught:
        Git(repo.path)("rev-parse", "--verify", "nothing")
    assert str(caught.value) == "git rev-parse: fatal: Needed a single revision"
    assert (caught.value.command, caught.value.code) == ("rev-parse", 128)


def test_a_folder_that_is_gone_is_a_git_error(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="is not there"):
        Git(tmp_path / "gone")("status")


def test_a_command_that_never_ends_is_ended_with_all_of_its_group(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_module, "LIMIT_S", 0.5)
    with pytest.raises(GitError, match="no end after"):
        alias(Git(repo.path), f"sh -c 'echo $$ > {tmp_path}/pid; sleep 60'")
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not alive(pid))


def test_no_descriptor_is_left_open(repo: Repo) -> None:
    git = Git(repo.path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        git("rev-parse", "HEAD", given="x")
        git("rev-parse", "--verify", "-q", "nothing", ok=(1,))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_megabyte_goes_in_and_out(repo: Repo) -> None:
    text = "x" * 1_000_000
    assert alias(Git(repo.path), "cat", given=text) == text
    descriptor = memory("abc")
    assert os.read(descriptor, 10) == b"abc"
    os.close(descriptor)


def test_a_lock_is_between_threads_too(tmp_path: Path) -> None:
    lock, inside, most = FileLock(tmp_path / "lock"), 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with lock.held():
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == 1


def test_who_waits_for_a_lock_is_told_who_holds_it_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "TELL_S", 0.0)
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom harness.local.lock import FileLock\n"
        f"with FileLock(Path({str(tmp_path / 'lock')!r})).held(): print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        (sys.executable, "-c", program), cwd=ROOT_OF_TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        other = FileLock(tmp_path / "lock")
        with pytest.raises(LockTimeoutError, match=f"process {child.pid} holds it; wait for it"), other.held(0.05):
            pass
        assert [record.getMessage() for record in caplog.records] == [
            f"waiting for {other.path}: process {child.pid} holds it; wait for it, or end it: kill {child.pid}"
        ]
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(LockTimeoutError, match=f"suspended; .*kill -CONT {child.pid}"), other.held(0.05):
            pass
        child.send_signal(signal.SIGCONT)
        child.communicate("")
    with other.held(10):
        assert locks.holder(other.path) == os.getpid()


def test_a_lock_is_held_until_the_last_child_that_inherited_it_ends(repo: Repo, tmp_path: Path) -> None:
    """The holder is killed in the middle of a git command, which goes on."""
    program = (
        "from pathlib import Path\nfrom harness.local.git import Git\nfrom harness.local.lock import FileLock\n"
        f"lock = FileLock(Path({str(tmp_path / 'lock')!r}))\n"
        f"with lock.held() as d: Git(Path({str(repo.path)!r})).holding(d)('-c', 'alias.run=!touch {tmp_path}/begun;"
        f" until [ -e {tmp_path}/go ]; do sleep 0.02; done', 'run')\n"
    )
    holder = subprocess.Popen((sys.executable, "-c", program), cwd=ROOT_OF_TESTS)
    until((tmp_path / "begun").exists)
    holder.kill()
    holder.wait()
    other = FileLock(tmp_path / "lock")
    assert not other.try_hold()
    with pytest.raises(LockTimeoutError, match="is held by another process"), other.held(0.05):
        pass
    (tmp_path / "go").touch()
    until(other.try_hold)
    other.release()
