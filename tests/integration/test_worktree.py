"""The pool of worktrees, and that nothing an agent wrote is ever lost with one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from harness.local.errors import GitError, StrayedError
from harness.local.repository import Repository
from harness.local.settle import settle_in
from harness.local.work import finished_work, keep_work, status_of, worktree_commit
from harness.local.worktree import Note, Pool, Worktree
from tests.effort import examples
from tests.integration.git_faults import FaultyGit
from tests.integration.workshop import Repo, Workshop, make_repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo")


@pytest.fixture
def repository(repo: Repo) -> Repository:
    return Repository.open(repo.path)


@pytest.fixture
def pool(repository: Repository):
    pool = Pool(repository)
    yield pool
    pool.close()


def nothing_left(worktree: Worktree) -> None:
    raise AssertionError(f"{worktree.folder} was left by nobody")


def keep_left(repository: Repository) -> Callable[[Worktree], None]:
    """Saves what is in a worktree that another process left, as a session does."""

    def save(worktree: Worktree) -> None:
        keep_work(worktree, repository, "", "", f"worktree-{worktree.folder.name}", "Left in a worktree")

    return save


def begun(pool: Pool, repository: Repository, branch: str = "dispatch/s1/1") -> Worktree:
    worktree = pool.acquire(keep_left(repository))
    worktree.check_out(branch, repository.tip("refs/heads/main"))
    return worktree


def end(worktree: Worktree, repository: Repository, branch: str = "dispatch/s1/1") -> str:
    base = repository.tip("refs/heads/main")
    return keep_work(worktree, repository, branch, base, "s1/1", "Work in progress")


def test_32_threads_get_a_worktree_each_and_none_fails(pool: Pool, repository: Repository, repo: Repo) -> None:
    barrier = threading.Barrier(32)

    def work(number: int) -> Path:
        barrier.wait(30)
        worktree = begun(pool, repository, f"dispatch/s{number}/1")
        assert end(worktree, repository, f"dispatch/s{number}/1") == ""
        barrier.wait(60)
        pool.release(worktree)
        return worktree.folder

    with ThreadPoolExecutor(32) as threads:
        first = list(threads.map(work, range(32)))
        second = list(threads.map(work, range(32)))
    assert len(set(first)) == 32
    assert set(second) == set(first)
    assert repo.refs() == ["refs/heads/main"]
    assert len(repo.git("worktree", "list").splitlines()) == 33


def test_a_worktree_in_use_is_not_given_to_another_pool(pool: Pool, repository: Repository) -> None:
    first = begun(pool, repository)
    other = Pool(repository)
    second = other.acquire(nothing_left)
    assert second.folder != first.folder
    second.lock.release()
    end(first, repository)
    pool.release(first)


def test_a_pool_that_is_closed_leaves_its_worktrees_to_the_next(pool: Pool, repository: Repository) -> None:
    worktree = begun(pool, repository)
    end(worktree, repository)
    pool.release(worktree)
    pool.close()
    seen: list[Path] = []
    again = Pool(repository).acquire(lambda left: seen.append(left.folder))
    assert again.folder == worktree.folder
    assert seen == [worktree.folder]
    again.lock.release()


@pytest.mark.parametrize("step", ["worktree add", "checkout"])
def test_one_that_cannot_be_made_leaves_neither_branch_nor_folder(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    repository = Repository.open(repo.path)
    faulty = FaultyGit(tmp_path / "faulty")
    monkeypatch.setenv("PATH", f"{faulty.bin}:{os.environ['PATH']}")
    pool = Pool(repository)
    begun(pool, repository).lock.release()
    at = next(n for n, words in enumerate(faulty.calls(), 1) if step in words)
    other = Repository.open(make_repo(tmp_path / "other").path)
    faulty.arm(at, "fails")
    pool = Pool(other)
    with pytest.raises(GitError, match="injected fault"):
        begun(pool, other)
    faulty.arm(0, "fails")
    if step == "worktree add":
        assert list((other.root / "worktrees").iterdir()) == [other.root / "worktrees" / "1.lock"]
        assert other.git("worktree", "list").out.count("\n") == 1
    assert other.git("for-each-ref").out.count("\n") == 1


def test_a_registration_without_a_folder_is_no_hindrance(pool: Pool, repository: Repository, repo: Repo) -> None:
    folder = repository.root / "worktrees" / "1"
    repo.git("worktree", "add", "-q", "--detach", str(folder), "main")
    shutil.rmtree(folder)
    worktree = begun(pool, repository)
    assert worktree.folder == folder
    assert (folder / "a.txt").exists()
    assert len(repo.git("worktree", "list").splitlines()) == 2
    end(worktree, repository)
    pool.release(worktree)


def test_a_folder_that_nobody_noted_is_saved_before_it_is_used(pool: Pool, repository: Repository, repo: Repo) -> None:
    """The process was killed between `git worktree add` and its note; a person then worked there."""
    folder = repository.root / "worktrees" / "1"
    repo.git("worktree", "add", "-q", "--detach", str(folder), "main")
    (folder / "mine.txt").write_text("mine\n")
    worktree = begun(pool, repository)
    assert worktree.folder == folder
    assert not (folder / "mine.txt").exists()
    assert repo.show("refs/dispatch/keep/worktree-1", "mine.txt") == "mine"
    end(worktree, repository)
    pool.release(worktree)


@pytest.mark.parametrize("way", ["rm -rf", "git worktree remove --force"])
def test_an_idle_one_that_a_person_removed_is_made_anew(
    pool: Pool, repository: Repository, repo: Repo, way: str
) -> None:
    worktree = begun(pool, repository)
    end(worktree, repository)
    pool.release(worktree)
    subprocess.run((*way.split(), str(worktree.folder)), cwd=repo.path, check=True)
    again = begun(pool, repository)
    assert again.folder == worktree.folder
    assert (again.folder / "a.txt").exists()
    end(again, repository)
    pool.release(again)


def test_one_that_was_never_checked_out_has_no_work(pool: Pool, repository: Repository, repo: Repo) -> None:
    """The process was killed between `git worktree add --no-checkout` and the checkout."""
    worktree = pool.acquire(nothing_left)
    worktree.lock.release()
    again = begun(Pool(repository), repository)
    assert again.folder == worktree.folder
    assert repo.refs("refs/dispatch") == []
    end(again, repository)
    again.lock.release()


def test_one_set_aside_is_never_used_again(pool: Pool, repository: Repository) -> None:
    worktree = begun(pool, repository)
    (worktree.folder / "precious").write_text("x")
    worktree.unsavable = "precious"
    pool.release(worktree)
    for number in range(3):
        other = begun(pool, repository, f"dispatch/o/{number}")
        assert other.folder != worktree.folder
        end(other, repository, f"dispatch/o/{number}")
        pool.release(other)
    assert (worktree.folder / "precious").exists()


@pytest.mark.parametrize("text", ["", "{", '{"git_dir": "x"', '{"git_dir": 1}', "[]", "\0\0", '"x"'])
def test_a_note_cut_short_names_nothing(text: str) -> None:
    assert Note.parse(text).session == ""


def test_a_note_survives_its_own_overwriting() -> None:
    long, short = Note("/a" * 50, "g/s@1", "why").text(), Note("/b", "", "").text()
    assert Note.parse(short + long[len(short) :]) == Note("/b", "", "")


def test_a_persons_branch_is_kept_when_the_work_is(pool: Pool, repository: Repository, repo: Repo) -> None:
    """Work that main has needs no ref; the branch goes all the same."""
    worktree = begun(pool, repository)
    assert end(worktree, repository) == ""
    assert repo.refs() == ["refs/heads/main"]
    pool.release(worktree)


def test_kept_names_are_never_taken_over(pool: Pool, repository: Repository, repo: Repo) -> None:
    texts = ["one", "two", "three"]
    for text in texts:
        worktree = begun(pool, repository)
        (worktree.folder / "f").write_text(text)
        end(worktree, repository)
        pool.release(worktree)
    refs = repo.refs("refs/dispatch/keep")
    assert refs == [f"refs/dispatch/keep/s1/1{suffix}" for suffix in ("", "-2", "-3")]
    assert [repo.show(ref, "f") for ref in refs] == texts


NAMES = st.sampled_from(["a.txt", "b", "d/x", "d/e/y", "-z", "ü", "x y", "ignored.o"])
CONTENTS = st.binary(max_size=20)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, CONTENTS),
        st.tuples(st.just("remove"), NAMES, st.just(b"")),
        st.tuples(
            st.just("git"),
            st.sampled_from(["add -A", "commit -qam work", "checkout -q --detach", "rm -q --cached a.txt"]),
            st.just(b""),
        ),
        st.tuples(
            st.just("git"),
            st.sampled_from(["reset -q --hard", "stash -q", "checkout -q -B other", "reset -q HEAD~1"]),
            st.just(b""),
        ),
    ),
    max_size=8,
)


MOVES_BACK = [("git", "reset -q HEAD~1", b""), ("git", "add -A", b""), ("git", "reset -q --hard", b"")]
LEAVES_A_BRANCH = [
    ("write", "b", b"x"),
    ("git", "add -A", b""),
    ("git", "commit -qam work", b""),
    ("git", "checkout -q --detach", b""),
]


@settings(
    max_examples=examples(10),
    deadline=None,
    # an example is a dozen lines at most and takes some 60 processes: not worth shrinking
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, finished=st.booleans())
@example(steps=MOVES_BACK, finished=False)
@example(steps=LEAVES_A_BRANCH + MOVES_BACK, finished=False)
def test_no_byte_is_lost_whatever_was_done(
    steps: list[tuple[str, str, bytes]], finished: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every file as it lay there at the end, and every commit ever made, is reachable from some ref."""
    with tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as folder:
        repo = make_repo(Path(folder) / "repo")
        repo.commit(".gitignore", "*.o\n")
        repository = Repository.open(repo.path)
        pool = Pool(repository)
        worktree = begun(pool, repository)
        base = repository.tip("refs/heads/main")
        commits = play(worktree, steps)
        before = {
            str(path.relative_to(worktree.folder)): path.read_bytes()
            for path in worktree.folder.rglob("*")
            if path.is_file() and path.name != ".git" and path.suffix != ".o"
        }
        tip, finished = saved(worktree, repository, base, finished=finished)
        if not finished:
            assert tip in worktree.git("rev-list", "--all").out.split()
        listed = worktree.git("ls-tree", "-r", "-z", "--name-only", tip).out.split("\0")
        after = {name: worktree.git("cat-file", "blob", f"{tip}:{name}").out for name in listed if name}
        assert {name: os.fsencode(text) for name, text in after.items()} == before
        if not finished:
            pool.release(worktree)
        reachable = set(worktree.git("rev-list", "--all", "--reflog").out.split())
        assert commits <= reachable
        if not finished:
            again = begun(pool, repository, "dispatch/s2/1")
            assert {path.name for path in again.folder.iterdir()} == {".git", ".gitignore", "a.txt"}
            again.lock.release()
        else:
            worktree.lock.release()
        pool.close()


def saved(worktree: Worktree, repository: Repository, base: str, *, finished: bool) -> tuple[str, bool]:
    """The commit that has all, and whether it is to be merged: one that strayed is kept like one that was stopped.

    What is kept is what main has not: where the agent went back to an older commit, that is nothing.
    """
    if finished:
        with contextlib.suppress(StrayedError):
            return finished_work(worktree, repository, "dispatch/s1/1", base, "work"), True
    end(worktree, repository)
    return worktree_commit(worktree), False


def play(worktree: Worktree, steps: list[tuple[str, str, bytes]]) -> set[str]:
    """Does the steps as an agent would; the commits made."""
    commits: set[str] = set()
    for what, name, data in steps:
        path = worktree.folder / name
        if what == "write" and not path.is_dir() and not any(p.is_file() for p in path.parents if p != worktree.folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        elif what == "remove" and path.is_file():
            path.unlink()
        elif what == "git":
            worktree.git(*name.split(" "), ok=range(256))
            commits |= set(worktree.git("rev-list", "HEAD").out.split())
    return commits


def test_a_status_tells_what_a_commit_would_take(pool: Pool, repository: Repository) -> None:
    worktree = begun(pool, repository)
    status = status_of(worktree)
    assert (status.branch, status.dirty) == ("refs/heads/dispatch/s1/1", False)
    (worktree.folder / "new file").write_text("x")
    assert status_of(worktree).dirty
    end(worktree, repository)
    pool.release(worktree)


def test_settling_needs_no_record(repo: Repo, repository: Repository, pool: Pool) -> None:
    """The note names a session whose record is gone, with the disk it was on."""
    worktree = begun(pool, repository)
    (worktree.folder / "f").write_text("work")
    worktree.note("graph1/s1@1")
    worktree.lock.release()
    shop = Workshop(repo)
    again = shop.host._site.pool.acquire(lambda left: settle_in(shop.host._site, left))
    assert again.folder == worktree.folder
    assert repo.show("refs/dispatch/keep/s1/1", "f") == "work"
    again.lock.release()
    shop.host.close()
