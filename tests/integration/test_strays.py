"""Agents that leave their worktree in a state nobody asked for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from harness.session import SessionPhase, SessionState
from tests.integration.workshop import Repo, Workshop, assignment, make_repo, workshop

MERGED, CLOSED = SessionPhase.MERGED, SessionPhase.CLOSED
COMMIT = "git add -A; git commit -qm work; "
DIVERGED = f"git checkout -q -b x; echo x > a.txt; {COMMIT} git checkout -q -; echo y > a.txt; {COMMIT}"


@pytest.fixture
def shop(tmp_path: Path):
    with workshop(make_repo(tmp_path / "repo")) as open_shop:
        yield open_shop
        open_shop.repo.check_sound()


def run(shop: Workshop, script: str, **options: object) -> SessionState:
    [state] = shop.run(assignment("s1", script, **options))
    return state


def next_is_as_new(shop: Workshop) -> None:
    """The next attempt, in whatever worktree, sees main and nothing else."""
    [state] = shop.run(
        assignment("next", "git status --porcelain --ignored; git ls-files; git symbolic-ref HEAD; exit 1")
    )
    assert shop.log("next") == "".join(f"{name}\n" for name in shop.repo.files()) + "refs/heads/dispatch/next/1\n"
    assert state.phase is CLOSED


def test_another_branch_that_goes_on_from_its_own(shop: Workshop) -> None:
    assert run(shop, f"echo 1 > 1.txt; {COMMIT} git checkout -q -b feature; echo 2 > 2.txt; {COMMIT}").phase is MERGED
    assert shop.repo.files() == ["1.txt", "2.txt", "a.txt"]
    assert shop.repo.refs("refs/heads") == ["refs/heads/feature", "refs/heads/main"]
    next_is_as_new(shop)


def test_a_detached_head_that_goes_on_from_its_branch(shop: Workshop) -> None:
    assert run(shop, "git checkout -q --detach; echo 1 > 1.txt").phase is MERGED
    assert shop.repo.files() == ["1.txt", "a.txt"]
    next_is_as_new(shop)


def test_a_head_left_behind_its_branch(shop: Workshop) -> None:
    assert run(shop, f"echo 1 > 1.txt; {COMMIT} git checkout -q --detach HEAD~1").phase is MERGED
    assert shop.repo.files() == ["1.txt", "a.txt"]


def test_commits_on_two_branches_close_and_both_are_kept(shop: Workshop) -> None:
    state = run(shop, f"echo 1 > 1.txt; {COMMIT} git checkout -q -b feature HEAD~1; echo 2 > 2.txt; {COMMIT}")
    assert (state.phase, state.detail) == (CLOSED, "commits were made both on dispatch/s1/1 and on feature")
    kept = [shop.repo.files(ref) for ref in shop.repo.refs("refs/dispatch/keep")]
    assert sorted(kept) == [["1.txt", "a.txt"], ["2.txt", "a.txt"]]
    assert shop.repo.files() == ["a.txt"]


def test_an_unresolved_conflict_closes_and_is_kept(shop: Workshop) -> None:
    state = run(shop, f"{DIVERGED} git merge x; exit 0")
    assert (state.phase, state.detail) == (CLOSED, "conflicts were left unresolved in a.txt")
    assert "<<<<<<<" in shop.repo.show("refs/dispatch/keep/s1/1", "a.txt")
    assert "<<<<<<<" not in shop.repo.show("main", "a.txt")
    next_is_as_new(shop)


def test_an_unfinished_rebase_does_not_reach_the_next(shop: Workshop) -> None:
    run(shop, f"{DIVERGED} git rebase x; exit 1")
    next_is_as_new(shop)


def test_its_own_branch_removed(shop: Workshop) -> None:
    assert run(shop, "echo 1 > 1.txt; git update-ref -d HEAD").phase is MERGED
    assert shop.repo.files() == ["1.txt", "a.txt"]
    next_is_as_new(shop)


def test_its_own_branch_renamed_stays_under_the_name_it_was_given(shop: Workshop) -> None:
    assert run(shop, f"echo 1 > 1.txt; {COMMIT} git branch -m mine; echo 2 > 2.txt").phase is MERGED
    assert shop.repo.files() == ["1.txt", "2.txt", "a.txt"]
    assert shop.repo.refs() == ["refs/heads/main", "refs/heads/mine"]
    next_is_as_new(shop)


def test_its_worktree_removed(shop: Workshop) -> None:
    assert run(shop, f"echo 1 > 1.txt; {COMMIT} rm -rf ../$(basename $PWD)").phase is MERGED
    assert shop.repo.files() == ["1.txt", "a.txt"]
    next_is_as_new(shop)


def test_its_worktree_unregistered(shop: Workshop) -> None:
    assert run(shop, f"echo 1 > 1.txt; {COMMIT} git worktree remove --force .").phase is MERGED
    assert shop.repo.files() == ["1.txt", "a.txt"]
    next_is_as_new(shop)


def test_its_git_file_removed_git_finds_no_repository_around_it(shop: Workshop) -> None:
    state = run(shop, "rm .git; echo 1 > 1.txt; git add -A; git commit -qm x; echo $?; exit 1")
    assert state.phase is CLOSED
    assert "not a git repository" in shop.log("s1")
    assert "1.txt" in shop.repo.files("refs/dispatch/keep/s1/1")
    next_is_as_new(shop)


def test_its_git_file_removed_and_done(shop: Workshop) -> None:
    assert run(shop, "rm .git; echo 1 > 1.txt", verify=("test", "-f", "1.txt")).phase is MERGED
    assert shop.repo.files() == ["1.txt", "a.txt"]
    next_is_as_new(shop)


def aside(shop: Workshop) -> dict[str, str]:
    """Why each worktree that was set aside was, by its folder's name."""
    notes = {path.stem: json.loads(path.read_text()) for path in (shop.repo.root / "worktrees").glob("*.lock")}
    return {name: note["aside"] for name, note in notes.items() if note["aside"]}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("rm .git; git init -q", "it was made a repository of its own"),
        ("rm -r $(git rev-parse --git-dir)", "it is not registered with git any more"),
    ],
)
def test_a_worktree_that_a_commit_cannot_save_is_set_aside(shop: Workshop, script: str, why: str) -> None:
    assert run(shop, f"{script}; echo 1 > 1.txt; exit 1").phase is CLOSED
    assert aside(shop) == {"1": why}
    next_is_as_new(shop)
    assert (shop.repo.root / "worktrees" / "1" / "1.txt").read_text() == "1\n"


def test_an_index_beyond_reading(shop: Workshop) -> None:
    run(shop, "echo 1 > 1.txt; echo junk > $(git rev-parse --git-dir)/index; exit 1")
    assert shop.repo.files("refs/dispatch/keep/s1/1") == ["1.txt", "a.txt"]
    next_is_as_new(shop)


def test_a_head_beyond_reading(shop: Workshop) -> None:
    """Nothing can be said about it at its end; it is settled with the next attempt, and stays as it is."""
    state = run(shop, f"echo 1 > 1.txt; {COMMIT} echo 2 > 2.txt; echo junk > $(git rev-parse --git-dir)/HEAD; exit 1")
    assert state.phase is CLOSED
    assert "could not be made safe yet" in state.detail
    [again] = shop.run(assignment("s1", "true", attempt=2))
    assert again.phase is MERGED
    assert list(aside(shop)) == ["1"]
    assert (shop.repo.root / "worktrees" / "1" / "2.txt").read_text() == "2\n"
    assert "1.txt" in shop.repo.files()
    (shop.repo.path / ".git" / "worktrees" / "1" / "HEAD").write_text(shop.repo.git("rev-parse", "main") + "\n")


def test_its_worktree_replaced_by_a_link_to_the_users_checkout(shop: Workshop) -> None:
    user = shop.repo.path
    shop.repo.write("notes.txt", "not to be cleaned away\n")
    run(shop, f"here=$PWD; cd /; mv $here $here.moved; ln -s {user} $here; exit 1")
    next_is_as_new(shop)
    assert (user / "notes.txt").read_text() == "not to be cleaned away\n"
    assert (user / "a.txt").exists()
    (user / "notes.txt").unlink()


def test_its_git_file_pointed_at_the_users_checkout(shop: Workshop) -> None:
    before = fingerprint(shop.repo)
    state = run(shop, f"echo 'gitdir: {shop.repo.path}/.git' > .git; rm a.txt; exit 1")
    assert state.phase is CLOSED
    next_is_as_new(shop)
    assert fingerprint(shop.repo) == before


def test_a_commit_on_main_itself(shop: Workshop) -> None:
    """main moves under the user's checkout, as by any push to it; what they see is not touched."""
    shop.repo.git("checkout", "-q", "--detach")
    state = run(shop, f"echo 1 > 1.txt; {COMMIT} git update-ref refs/heads/main HEAD")
    assert state.phase is MERGED
    assert shop.repo.files() == ["1.txt", "a.txt"]


@pytest.mark.parametrize("hide", ["update-index --assume-unchanged", "update-index --skip-worktree"])
def test_files_that_git_was_told_to_look_away_from_do_not_reach_the_next(shop: Workshop, hide: str) -> None:
    run(shop, f"git {hide} a.txt; echo changed > a.txt; exit 1")
    [state] = shop.run(assignment("next", "cat a.txt; exit 1"))
    assert state.detail == "exit 1: three"


def test_a_sparse_checkout_does_not_reach_the_next(shop: Workshop) -> None:
    shop.repo.commit("d/x.txt", "x\n")
    run(shop, "git sparse-checkout set --no-cone /a.txt; ls; exit 1")
    next_is_as_new(shop)
    [state] = shop.run(assignment("more", "cat d/x.txt; exit 1"))
    assert state.detail == "exit 1: x"


def test_locks_of_a_git_that_was_killed_are_no_hindrance(shop: Workshop) -> None:
    script = "g=$(git rev-parse --git-dir); touch $g/index.lock $g/HEAD.lock; echo 1 > 1.txt"
    assert run(shop, script).phase is MERGED
    next_is_as_new(shop)


def test_a_repository_inside_is_neither_merged_nor_lost(shop: Workshop) -> None:
    script = "git init -q dep; cd dep; echo d > d.txt; git add .; git -c user.name=x -c user.email=x@y commit -qm d; "
    assert run(shop, script + "cd ..; echo 1 > 1.txt", verify=("sh", "-c", "test ! -e dep")).phase is MERGED
    assert shop.repo.files() == ["1.txt", "a.txt"]
    aside = list((shop.repo.root / "worktrees").glob("*/dep/d.txt"))
    assert [path.read_text() for path in aside] == ["d\n"]
    note = json.loads((shop.repo.root / "worktrees" / f"{aside[0].parents[1].name}.lock").read_text())
    assert "dep: a repository of its own" in note["aside"]
    next_is_as_new(shop)
    assert aside[0].exists()


MAKE_INNER = (
    "git init -q inner; cd inner; echo i > i.txt; git add .; git -c user.name=x -c user.email=x@y commit -qm i; cd ..; "
)


@pytest.mark.parametrize(
    ("script", "verify", "before"),
    [
        (MAKE_INNER, (), "no change; "),
        (MAKE_INNER + "echo 1 > 1.txt", (), ""),
        (MAKE_INNER + "echo 1 > 1.txt", ("test", "-e", "1.txt"), ""),
    ],
    ids=["nothing else", "beside other work", "verified in another worktree"],
)
def test_what_a_merge_leaves_out_is_told_with_its_place(
    shop: Workshop, script: str, verify: tuple[str, ...], before: str
) -> None:
    state = run(shop, script, verify=verify)
    [inner] = (shop.repo.root / "worktrees").glob("*/inner/i.txt")
    words = f"left out, and set aside in {inner.parents[1]}: inner: a repository of its own, or a submodule"
    assert state.phase is MERGED
    assert state.detail.startswith(before + words)
    assert state.detail.isprintable()
    assert f"[dispatch] {words}" in shop.log("s1")
    [again] = shop.run(assignment("s1", "true", attempt=2))
    assert again.detail.startswith(f"an earlier attempt had merged; {words}")


def test_what_a_closed_attempt_leaves_out_is_told_to_the_next(shop: Workshop) -> None:
    state = run(shop, MAKE_INNER + "exit 1")
    folder = shop.repo.root / "worktrees" / "1"
    assert (state.phase, state.detail) == (CLOSED, "exit 1")
    assert f"Of its work was left out, and set aside in {folder}: inner: a repository" in state.checkpoint
    assert f"left out, and set aside in {folder}" in shop.log("s1")


def test_a_stash_is_kept(shop: Workshop) -> None:
    run(shop, "echo changed > a.txt; git stash -q; exit 1")
    next_is_as_new(shop)
    assert shop.repo.show("stash@{0}", "a.txt") == "changed"


def test_odd_names_are_merged_as_they_are(shop: Workshop) -> None:
    script = (
        r"""printf x > "$(printf 'caf\351')"; printf x > "$(printf 'a\nb')"; printf x > ' -x'; printf x > ':(top)y'"""
    )
    assert run(shop, script + "; mkdir d; ln -s ../a.txt d/l").phase is MERGED
    names = shop.repo.git("ls-tree", "-r", "--name-only", "main").splitlines()
    assert len(names) == 6


def test_a_symlink_out_of_the_worktree_is_not_followed_when_it_is_cleaned(shop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("mine")
    shop.repo.commit(".gitignore", "link\n")
    run(shop, f"ln -s {tmp_path}/outside link; exit 1")
    next_is_as_new(shop)
    assert (tmp_path / "outside" / "f").read_text() == "mine"


def test_history_of_its_own_closes_and_is_kept(shop: Workshop) -> None:
    state = run(
        shop,
        f"git checkout -q --orphan new; git rm -rqf .; echo 1 > 1.txt; {COMMIT}"
        "git branch -f dispatch/s1/1 HEAD; git checkout -q dispatch/s1/1",
    )
    assert state.phase is CLOSED
    assert "unrelated histories" in state.detail
    assert "1.txt" in shop.repo.files("refs/dispatch/keep/s1/1")


def test_the_checkpoint_of_an_agent_is_made_fit_to_store(shop: Workshop) -> None:
    state = run(shop, r"printf 'one\n\033[31mtwo\000\377\n' > $DISPATCH_CHECKPOINT; exit 1")
    assert state.checkpoint.endswith("one\ntwo\ufffd\ufffd")


@pytest.mark.parametrize("make", ["mkdir", "mkfifo", "ln -s /dev/zero"])
def test_a_checkpoint_that_is_no_file_is_none(shop: Workshop, make: str) -> None:
    state = run(shop, f"{make} $DISPATCH_CHECKPOINT; {make} $DISPATCH_DIR/pull_request; exit 1")
    assert state.checkpoint == "The previous attempt ended: exit 1."
    assert state.pull_request_url == ""


def fingerprint(repo: Repo) -> tuple[str, str, list[tuple[str, str]]]:
    """HEAD, index and files of the user's checkout."""
    index = hashlib.sha256((repo.path / ".git" / "index").read_bytes()).hexdigest()
    files = [
        (str(path), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(repo.path.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    ]
    return repo.git("rev-parse", "HEAD"), index, files
