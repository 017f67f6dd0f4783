"""Which repositories are refused, and in what words; which are worked with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.local import LocalSessionHost, RepositoryError
from harness.session import SessionPhase
from tests.integration.workshop import Repo, assignment, install_hook, make_repo, workshop


def refusal(folder: Path, **options: str) -> str:
    with pytest.raises(RepositoryError) as caught:
        LocalSessionHost(folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "is no folder; name a git repository" in refusal(tmp_path / "nowhere")


def test_a_folder_without_a_repository(tmp_path: Path) -> None:
    assert "make one with: git init" in refusal(tmp_path)


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "repo")
    assert "has no commit yet; make one with: git commit" in refusal(repo.path)
    assert "has no commit yet" in refusal(repo.path, main="main")


def test_a_branch_that_is_not_there(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    assert "there is no branch 'trunk'" in refusal(repo.path, main="trunk")


def test_a_detached_head_with_no_main_named(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    repo.git("checkout", "-q", "--detach")
    assert "HEAD is detached" in refusal(repo.path)
    with workshop(repo, main="main") as shop:
        assert shop.run(assignment("s1", "echo hi > b.txt"))[0].phase is SessionPhase.MERGED
    assert repo.files("main") == ["a.txt", "b.txt"]
    assert repo.files("HEAD") == ["a.txt"]


def unfinished_merge(repo: Repo) -> None:
    repo.git("checkout", "-q", "-b", "side")
    repo.commit("a.txt", "side\n")
    repo.git("checkout", "-q", "main")
    repo.commit("a.txt", "main\n")
    repo.git("merge", "side", ok=False)


def unfinished_cherry_pick(repo: Repo) -> None:
    unfinished_merge(repo)
    repo.git("merge", "--abort")
    repo.git("cherry-pick", "side", ok=False)


def unfinished_rebase(repo: Repo) -> None:
    unfinished_merge(repo)
    repo.git("merge", "--abort")
    repo.git("rebase", "side", ok=False)


@pytest.mark.parametrize(
    ("begin", "word"),
    [(unfinished_merge, "merge"), (unfinished_cherry_pick, "cherry-pick"), (unfinished_rebase, "rebase")],
)
def test_something_unfinished_on_main(tmp_path: Path, begin: Callable[[Repo], None], word: str) -> None:
    repo = make_repo(tmp_path / "repo")
    begin(repo)
    before = repo.git("status")
    assert f"a {word} is unfinished in {repo.path}" in refusal(repo.path, main="main")
    assert f"git {word} --abort" in refusal(repo.path, main="main")
    assert repo.git("status") == before


def test_a_dirty_checkout_of_main(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    repo.write("a.txt", "changed\n")
    assert "main is checked out in" in refusal(repo.path)
    assert "uncommitted changes to a.txt" in refusal(repo.path)
    assert (repo.path / "a.txt").read_text() == "changed\n"


def test_a_dirty_checkout_of_main_elsewhere(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    repo.git("checkout", "-q", "-b", "feature")
    repo.git("worktree", "add", "-q", str(tmp_path / "second"), "main")
    (tmp_path / "second" / "a.txt").write_text("changed\n")
    assert f"{tmp_path / 'second'} with uncommitted changes to a.txt" in refusal(repo.path, main="main")


def test_untracked_files_and_other_branches_dirt_are_no_hindrance(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    repo.git("checkout", "-q", "-b", "feature")
    repo.write("a.txt", "changed\n")
    repo.write("notes.txt", "mine\n")
    with workshop(repo, main="main") as shop:
        assert shop.run(assignment("s1", "echo hi > b.txt"))[0].phase is SessionPhase.MERGED
    assert repo.git("status", "--porcelain") == " M a.txt\n?? notes.txt"
    assert repo.files("main") == ["a.txt", "b.txt"]


def test_git_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo(tmp_path / "repo")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git is not installed" in refusal(repo.path)


@pytest.mark.parametrize(("version", "fits"), [("2.37.9", False), ("1.9", False), ("2.38.0", True), ("3.0", True)])
def test_git_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fits: bool) -> None:
    repo = make_repo(tmp_path / "repo")
    real = subprocess.run(("sh", "-c", "command -v git"), capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) echo git version {version};; *) exec {real} "$@";; esac\n'
    )
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if fits:
        assert LocalSessionHost(repo.path).main == "main"
    else:
        assert "git 2.38 or newer is needed" in refusal(repo.path)


def test_main_is_the_branch_checked_out_unless_named(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    repo.git("checkout", "-q", "-b", "trunk")
    assert LocalSessionHost(repo.path).main == "trunk"
    assert LocalSessionHost(repo.path, main="main").main == "main"


@pytest.mark.parametrize("where", ["repo ü", "repo ü/sub/deep", "second", "link", "repo ü/.git"])
def test_any_folder_in_it_will_do(tmp_path: Path, where: str) -> None:
    repo = make_repo(tmp_path / "repo ü")
    repo.commit("sub/deep/x.txt", "x\n")
    repo.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "second"))
    (tmp_path / "link").symlink_to(repo.path)
    with workshop(repo, folder=tmp_path / where, main="main") as shop:
        [state] = shop.run(assignment("s1", "echo hi > b.txt; pwd"))
    assert state.phase is SessionPhase.MERGED
    assert shop.log("s1").startswith(f"{repo.path}/.git/dispatch/worktrees/")
    assert (repo.path / "b.txt").read_text() == "hi\n"
    repo.check_sound()


def test_a_worktree_on_main_whose_folder_is_gone_is_no_hindrance(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    repo.git("checkout", "-q", "-b", "feature")
    repo.git("worktree", "add", "-q", str(tmp_path / "second"), "main")
    shutil.rmtree(tmp_path / "second")
    with workshop(repo, main="main") as shop:
        assert shop.run(assignment("s1", "echo hi > b.txt"))[0].phase is SessionPhase.MERGED


def with_submodule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    for name, value in (("COUNT", "1"), ("KEY_0", "protocol.file.allow"), ("VALUE_0", "always")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    repo, library = make_repo(tmp_path / "repo"), make_repo(tmp_path / "library")
    repo.git("submodule", "add", "-q", str(library.path), "lib")
    repo.git("commit", "-q", "-m", "with a library")
    return repo


def test_a_repository_with_a_submodule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It isn't checked out in a worktree; an agent that does so has a copy of its own, and leaves none to the next."""
    repo = with_submodule(tmp_path, monkeypatch)
    with workshop(repo) as shop:
        [one] = shop.run(assignment("s1", "ls lib; echo hi > b.txt"))
        [two] = shop.run(assignment("s2", "git submodule -q update --init && cat lib/a.txt && echo x > c.txt"))
        [three] = shop.run(assignment("s3", "git status --porcelain; ls lib; exit 1"))
        assert shop.log("s3") == ""
    assert (one.phase, two.phase) == (SessionPhase.MERGED, SessionPhase.MERGED)
    assert three.detail == "exit 1"
    assert (repo.path / "lib" / "a.txt").exists()
    repo.check_sound()


@pytest.mark.parametrize("change", ["echo mine > a.txt", "git commit -q --allow-empty -m mine"])
def test_work_in_a_submodule_that_was_not_pushed_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    repo = with_submodule(tmp_path, monkeypatch)
    who = "git config user.name x; git config user.email x@y"
    with workshop(repo) as shop:
        shop.run(assignment("s1", f"git submodule -q update --init; cd lib; {who}; {change}; exit 1"))
        notes = [path.read_text() for path in (repo.root / "worktrees").glob("*.lock")]
        assert len(notes) == 1
        assert "submodule" in notes[0]
        [state] = shop.run(assignment("s2", "ls lib; exit 1"))
        assert state.detail == "exit 1"
    assert (repo.root / "worktrees" / "1" / "lib" / ".git").exists()


def test_a_bare_repository(tmp_path: Path) -> None:
    source = make_repo(tmp_path / "source")
    repo = Repo(tmp_path / "bare.git", bare=True)
    source.git("push", "-q", str(repo.path), "main")
    with workshop(repo) as shop:
        [state] = shop.run(assignment("s1", "echo hi > b.txt", verify=("test", "-f", "a.txt")))
    assert state.phase is SessionPhase.MERGED
    assert repo.files() == ["a.txt", "b.txt"]


def test_a_repository_whose_git_directory_lies_elsewhere(tmp_path: Path) -> None:
    make_repo(tmp_path / "first")
    subprocess.run(
        (
            "git",
            "clone",
            "-q",
            "--separate-git-dir",
            str(tmp_path / "apart"),
            str(tmp_path / "first"),
            str(tmp_path / "repo"),
        ),
        check=True,
    )
    with workshop(make_existing(tmp_path / "repo")) as shop:
        [state] = shop.run(assignment("s1", "echo hi > b.txt"))
    assert state.phase is SessionPhase.MERGED
    assert (tmp_path / "repo" / "b.txt").exists()


def make_existing(path: Path) -> Repo:
    repo = Repo.__new__(Repo)
    repo.path = path
    return repo


def test_packed_refs_are_read(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    repo.git("pack-refs", "--all")
    with workshop(repo) as shop:
        [state] = shop.run(assignment("s1", "echo hi > b.txt"))
    assert state.phase is SessionPhase.MERGED


def test_nobody_configured_commits_as_dispatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo(tmp_path / "repo")
    repo.git("config", "--unset", "user.name")
    repo.git("config", "--unset", "user.email")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    with workshop(repo) as shop:
        [state] = shop.run(assignment("s1", "echo 1 > 1.txt; git add .; git commit -qm one; echo 2 > 2.txt"))
    assert state.phase is SessionPhase.MERGED
    assert set(repo.git("log", "-3", "--format=%an <%ae> %cn <%ce>", "main").splitlines()) >= {
        "dispatch <dispatch@localhost> dispatch <dispatch@localhost>"
    }


def test_whoever_is_configured_is_the_author(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    with workshop(repo) as shop:
        shop.run(assignment("s1", "echo 1 > 1.txt"))
    assert re.fullmatch(r"(Person\n?)+", repo.git("log", "--format=%cn", "main"))


def test_opening_writes_nothing_that_git_status_shows(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    install_hook(repo, "reference-transaction", "exit 1")
    LocalSessionHost(repo.path)
    repo.check_sound()
    assert sorted(path.name for path in repo.path.iterdir()) == [".git", "a.txt"]


PLACES = {
    "a newline": b"new\nline",
    "a newline at the end": b"newline\n",
    "no UTF-8": b"bad\xff",
    "a space": b"sp ace",
    "an escape": b"esc\x1b[31m",
}


@pytest.mark.parametrize("name", PLACES.values(), ids=PLACES)
def test_a_repository_works_wherever_it_is(tmp_path: Path, name: bytes) -> None:
    """Also with worktrees that the next host finds, and a linked worktree of the user's beside it."""
    repo = make_repo(tmp_path / os.fsdecode(name))
    repo.git("branch", "side")
    linked = tmp_path / ("linked " + os.fsdecode(name))
    repo.git("worktree", "add", "-q", str(linked), "side")
    check = ("sh", "-c", "test -e $DISPATCH_SLICE.txt")
    for slice_id in ("s1", "s2"):
        with workshop(repo) as shop:
            [state] = shop.run(assignment(slice_id, "echo hi > $DISPATCH_SLICE.txt", verify=check))
            assert (state.phase, state.detail) == (SessionPhase.MERGED, "")
    repo.check_sound()
    assert (repo.path / "s2.txt").exists()
    assert len(list((repo.root / "worktrees").glob("*.lock"))) == 1
    with workshop(repo, folder=linked) as shop:
        assert shop.run(assignment("s3", "echo hi > s3.txt"))[0].phase is SessionPhase.MERGED
    assert (linked / "s3.txt").exists()
    assert repo.git("-C", str(linked), "status", "--porcelain") == ""
