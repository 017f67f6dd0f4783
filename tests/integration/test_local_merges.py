"""Merging beside people, hooks, locks and a gc: main stays whole, nobody's files are harmed, no merge is lost."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from harness.local import git as git_module
from harness.local import passing as passing_module
from harness.local import session as session_module
from harness.session import Assignment, SessionPhase, SessionState
from tests.integration.workshop import Repo, Workshop, assignment, install_hook, make_repo, until, workshop

MERGED, CLOSED, FAILED = SessionPhase.MERGED, SessionPhase.CLOSED, SessionPhase.FAILED


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo")


@pytest.fixture
def shop(repo: Repo):
    with workshop(repo) as open_shop:
        yield open_shop


def run(shop: Workshop, script: str, **options: object) -> SessionState:
    [state] = shop.run(assignment("s1", script, **options))
    return state


def test_the_log_has_the_verify_command_as_a_shell_would_take_it(shop: Workshop) -> None:
    verify = ("sh", "-c", "test -e b.txt || { echo gone; exit 1; }")
    assert run(shop, "echo hi > b.txt", verify=verify).phase is MERGED
    assert "[dispatch] verify: sh -c 'test -e b.txt || { echo gone; exit 1; }'\n" in shop.log("s1")


def test_32_at_once_all_merge_and_leave_nothing(shop: Workshop) -> None:
    states = shop.run(*(assignment(f"s{n}", f"echo {n} > {n}.txt; git add .; git commit -qm {n}") for n in range(32)))
    assert {state.phase for state in states} == {MERGED}
    assert sorted(shop.repo.merges()) == sorted(f"s{n}" for n in range(32))
    assert len(shop.repo.files()) == 33
    assert shop.repo.refs() == ["refs/heads/main"]
    shop.repo.check_sound()


def test_no_merge_is_lost_among_a_persons_commits_in_their_checkout(shop: Workshop) -> None:
    """They commit some twenty times a second; one that git refuses because main moved is tried again, as people do."""
    stop, made, pace = threading.Event(), [], random.Random(3)

    def person() -> None:
        while not stop.wait(pace.uniform(0.0, 0.1)):
            name = f"by-hand-{len(made)}.txt"
            shop.repo.write(name, "mine\n")
            shop.repo.git("add", "--", name, ok=False)
            shop.repo.git("commit", "-q", "-m", name, ok=False)
            if name in shop.repo.git("ls-tree", "--name-only", "HEAD").splitlines():
                made.append(name)

    thread = threading.Thread(target=person)
    thread.start()
    try:
        ended = [state for n in range(4) for state in shop.run(*edits(n, 3))]
    finally:
        stop.set()
        thread.join()
    assert len(made) > 3
    merged = {state.assignment_id.removesuffix("@1") for state in ended if state.phase is MERGED}
    assert len(merged) > 9
    assert sorted(shop.repo.merges()) == sorted(merged)
    assert set(shop.repo.files()) >= set(made)
    for state in ended:
        assert state.phase is MERGED or "index.lock" in state.detail
    shop.repo.git("fsck", "--strict", "--no-dangling")


def test_no_merge_is_lost_among_commits_that_others_push(repo: Repo, tmp_path: Path) -> None:
    bare = Repo(tmp_path / "bare.git", bare=True)
    repo.git("push", "-q", str(bare.path), "main")
    repo.git("remote", "add", "origin", str(bare.path))
    stop, pushed = threading.Event(), []

    def person() -> None:
        while not stop.is_set():
            repo.git("fetch", "-q", "origin")
            repo.git("reset", "-q", "--hard", "origin/main")
            name = f"by-hand-{len(pushed)}.txt"
            repo.commit(name, "mine\n")
            repo.git("push", "-q", "origin", "main", ok=False)  # refused if a merge was quicker
            pushed.append(name)

    thread = threading.Thread(target=person)
    thread.start()
    try:
        with workshop(bare) as shop:
            ended = [state for n in range(4) for state in shop.run(*edits(n, 4))]
    finally:
        stop.set()
        thread.join()
    assert {state.phase for state in ended} == {MERGED}
    assert len(bare.merges()) == 16
    assert set(bare.files()) >= {f"{n}-{m}.txt" for n in range(4) for m in range(4)}
    assert any(name in bare.files() for name in pushed)
    bare.git("fsck", "--strict", "--no-dangling")


def edits(batch: int, count: int) -> list[Assignment]:
    return [assignment(f"s{batch}-{n}", f"echo x > {batch}-{n}.txt") for n in range(count)]


def test_a_merge_that_a_commit_was_quicker_than_leaves_nothing_in_the_checkout(shop: Workshop) -> None:
    """The commit had read the index before the merge's files came in; they are taken back out, and brought in again.

    `reference-transaction` runs when the merge has prepared to move main: there the commit is made, by its parts.
    """
    git_dir = shop.repo.path / ".git"
    shop.repo.commit("b.txt", "b\n")
    shop.repo.write("by-hand.txt", "mine\n")
    shop.repo.git("add", "by-hand.txt")
    stale, begun = git_dir / "stale", git_dir / "begun"
    stale.write_bytes((git_dir / "index").read_bytes())
    commit = (
        f"GIT_INDEX_FILE={stale} git write-tree | xargs -I{{}} git commit-tree {{}} -p refs/heads/main -m by-hand"
        f" > {git_dir}/made && cp {stale} {git_dir}/index && echo $(cat {git_dir}/made) > {git_dir}/refs/heads/main"
    )
    first = f'test "$1" = prepared && grep -q refs/heads/main && test ! -e {begun} && touch {begun}'
    install_hook(shop.repo, "reference-transaction", f"{first} && {{ {commit}; exit 1; }}; exit 0")
    assert run(shop, "echo new > c.txt; echo changed > a.txt; rm b.txt").phase is MERGED
    assert begun.exists()
    assert shop.repo.files() == ["a.txt", "by-hand.txt", "c.txt"]
    assert shop.repo.git("status", "--porcelain") == ""


def test_an_index_that_is_overwritten_in_the_middle_of_a_merge_is_mended(shop: Workshop) -> None:
    """As by a `git commit` that read it before and writes it after. The hook runs between files and main."""
    shop.repo.commit("b.txt", "b\n")
    shop.repo.write("staged.txt", "mine\n")
    shop.repo.git("add", "staged.txt")
    index = shop.repo.path / ".git" / "index"
    (shop.repo.path / ".git" / "stale").write_bytes(index.read_bytes())
    put_back = f'test "$1" = prepared && grep -q refs/heads/main && cp {index.parent}/stale {index}; exit 0'
    install_hook(shop.repo, "reference-transaction", put_back)
    assert run(shop, "echo new > c.txt; echo changed > a.txt; rm b.txt").phase is MERGED
    assert shop.repo.git("status", "--porcelain") == "A  staged.txt"
    assert (shop.repo.path / "a.txt").read_text() == "changed\n"


def test_two_hosts_on_one_repository_lose_no_merge(repo: Repo) -> None:
    with workshop(repo) as one, workshop(repo) as two:
        ones = [assignment(f"a{n}", f"echo {n} > a{n}.txt", graph="g1") for n in range(10)]
        twos = [assignment(f"b{n}", f"echo {n} > b{n}.txt", graph="g2") for n in range(10)]
        one.submit(*ones)
        two.submit(*twos)
        states = [one.reports.end(a.assignment_id) for a in ones] + [two.reports.end(a.assignment_id) for a in twos]
    assert {state.phase for state in states} == {MERGED}
    assert len(repo.files()) == 21
    repo.check_sound()


def test_a_persons_changes_elsewhere_stay_in_their_files(shop: Workshop) -> None:
    shop.repo.write("a.txt", "being edited\n")
    shop.repo.write("notes.txt", "untracked\n")
    assert run(shop, "echo hi > b.txt").phase is MERGED
    assert (shop.repo.path / "b.txt").read_text() == "hi\n"
    assert (shop.repo.path / "a.txt").read_text() == "being edited\n"
    assert shop.repo.git("status", "--porcelain") == " M a.txt\n?? notes.txt"


IN_THE_WAY = {
    "changed": ("echo theirs > a.txt", "a.txt", "a.txt in your checkout has uncommitted changes"),
    "removed by the merge": ("rm a.txt", "a.txt", "a.txt in your checkout has uncommitted changes"),
    "not tracked": (
        "echo hi > notes.txt",
        "notes.txt",
        "notes.txt is in your checkout, not committed, and the merge brings one",
    ),
}


def waiting(shop: Workshop, assignment_id: str) -> SessionState:
    """Its report that something in the user's checkout is in the way."""
    return shop.reports.wait(lambda state: state.assignment_id == assignment_id and state.detail.startswith("waits: "))


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "LOOK_AGAIN_S", 0.05)


@pytest.mark.usefixtures("looks_often")
@pytest.mark.parametrize("verify", [(), ("sh", "-c", "echo verified")], ids=["plain", "verified"])
@pytest.mark.parametrize(("script", "name", "words"), IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_a_merge_waits_for_a_persons_changes_to_get_out_of_its_way(
    shop: Workshop, script: str, name: str, words: str, verify: tuple[str, ...]
) -> None:
    """Nothing is touched meanwhile, the agent is not asked again, and nothing is verified that could not be merged."""
    before = shop.repo.git("rev-parse", "main")
    shop.repo.write("other.txt", "staged\n")
    shop.repo.git("add", "other.txt")
    shop.repo.write(name, "being edited\n")
    status = shop.repo.git("status", "--porcelain")
    shop.submit(assignment("s1", f"echo agent; {script}", verify=verify))
    state = waiting(shop, "s1@1")
    assert (state.phase, state.turns, state.detail) == (SessionPhase.RUNNING, 1, f"waits: {words}")
    until(lambda: [view.stage for view in shop.host.running()] == [f"waits: {words}"])
    assert "verified" not in shop.log("s1")
    assert shop.repo.git("rev-parse", "main") == before
    assert (shop.repo.path / name).read_text() == "being edited\n"
    assert shop.repo.git("status", "--porcelain") == status
    shop.repo.git("checkout", "-q", "-f", "main")
    (shop.repo.path / "notes.txt").unlink(missing_ok=True)
    shop.repo.git("reset", "-q", "--hard")
    assert shop.reports.end("s1@1").phase is MERGED
    assert len(shop.reports.all) == 2
    lines = [line for line in shop.log("s1").splitlines() if line in ("agent", "verified")]
    assert lines == ["agent", "verified"][: 1 + bool(verify)]
    assert f"[dispatch] waits: {words}\n" in shop.log("s1")
    assert shop.repo.merges() == ["s1"]
    assert not (shop.repo.root / "probe.index").exists()
    shop.repo.check_sound()


@pytest.mark.usefixtures("looks_often")
def test_others_merge_while_one_waits_for_a_checkout(shop: Workshop) -> None:
    shop.repo.write("a.txt", "being edited\n")
    shop.submit(assignment("s1", "echo theirs > a.txt", verify=("test", "-e", "2.txt")))
    waiting(shop, "s1@1")
    assert shop.run(assignment("s2", "echo 2 > 2.txt; sleep 0.3"))[0].phase is MERGED
    shop.repo.git("checkout", "-q", "a.txt")
    assert shop.reports.end("s1@1").phase is MERGED
    assert [state.phase for state in shop.reports.all] == [SessionPhase.RUNNING, MERGED, MERGED]  # told once
    assert shop.repo.merges() == ["s2", "s1"]


@pytest.mark.usefixtures("looks_often")
def test_what_gets_in_the_way_during_verify_is_waited_for_too(shop: Workshop, tmp_path: Path) -> None:
    check = f"echo verified; touch {tmp_path}/here; until [ -e {tmp_path}/go ]; do sleep 0.01; done"
    shop.submit(assignment("s1", "echo theirs > a.txt", verify=("sh", "-c", check)))
    until((tmp_path / "here").exists)
    shop.repo.write("a.txt", "being edited\n")
    (tmp_path / "go").touch()
    waiting(shop, "s1@1")
    shop.repo.git("checkout", "-q", "a.txt")
    assert shop.reports.end("s1@1").phase is MERGED
    assert shop.log("s1").count("verified\n") == 1
    shop.repo.check_sound()


@pytest.mark.usefixtures("looks_often")
def test_a_change_that_a_person_commits_makes_the_merge_anew(shop: Workshop) -> None:
    shop.repo.write("a.txt", "being edited\n")
    shop.submit(assignment("s1", "echo theirs > a.txt"))
    waiting(shop, "s1@1")
    shop.repo.git("commit", "-q", "-a", "-m", "mine")
    state = shop.reports.end("s1@1")
    assert (state.phase, state.detail) == (CLOSED, "merge conflict in a.txt")
    assert shop.repo.show("main", "a.txt") == "being edited"


def test_a_wait_for_a_checkout_that_takes_too_long_closes_and_keeps_the_work(shop: Workshop) -> None:
    shop.repo.write("a.txt", "being edited\n")
    state = run(shop, "echo theirs > a.txt", quiet_limit_s=2.0)
    assert state.phase is CLOSED
    assert waiting(shop, "s1@1").detail == "waits: a.txt in your checkout has uncommitted changes"
    assert state.detail.startswith("the checkout of main in ")
    assert state.detail.endswith("commit, stash or remove what is in the way there")
    assert shop.repo.show("refs/dispatch/keep/s1/1", "a.txt") == "theirs"
    shop.repo.git("checkout", "-q", "a.txt")
    [again] = shop.run(assignment("s1", "cat a.txt", attempt=2))
    assert (again.phase, shop.log("s1", 2)) == (MERGED, "theirs\n")
    shop.repo.check_sound()


def test_a_session_that_waits_for_a_checkout_heeds_a_cancel(shop: Workshop) -> None:
    shop.repo.write("a.txt", "being edited\n")
    shop.submit(assignment("s1", "echo theirs > a.txt"))
    waiting(shop, "s1@1")
    shop.cancel("s1@1")
    assert shop.reports.end("s1@1", 5.0).phase is SessionPhase.CANCELED
    assert shop.repo.show("refs/dispatch/keep/s1/1", "a.txt") == "theirs"
    assert shop.run(assignment("s2", "echo 2 > 2.txt"))[0].phase is MERGED


def test_a_session_that_waits_for_a_checkout_keeps_no_host_from_closing(repo: Repo) -> None:
    shop = Workshop(repo)
    repo.write("a.txt", "being edited\n")
    shop.submit(assignment("s1", "echo theirs > a.txt", quiet_limit_s=0.0))
    waiting(shop, "s1@1")
    assert shop.host.close(5.0)
    assert [state.phase for state in shop.reports.all] == [SessionPhase.RUNNING]
    assert repo.show("refs/dispatch/keep/s1/1", "a.txt") == "theirs"


def test_a_file_that_only_looks_changed_is_no_hindrance(shop: Workshop) -> None:
    (shop.repo.path / "a.txt").touch()
    assert run(shop, "echo changed > a.txt").phase is MERGED
    shop.repo.check_sound()


def test_every_checkout_of_main_follows(repo: Repo, tmp_path: Path) -> None:
    repo.git("checkout", "-q", "-b", "feature")
    repo.git("worktree", "add", "-q", str(tmp_path / "second"), "main")
    with workshop(repo, main="main") as shop:
        assert run(shop, "echo hi > b.txt").phase is MERGED
    assert (tmp_path / "second" / "b.txt").exists()
    assert not (repo.path / "b.txt").exists()
    assert repo.git("-C", str(tmp_path / "second"), "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("hook", "script"),
    [
        ("pre-commit", "echo not like this >&2; exit 1"),
        ("commit-msg", "echo no such message >&2; exit 1"),
    ],
)
def test_a_hook_that_refuses_the_commit_closes_and_the_work_is_kept(shop: Workshop, hook: str, script: str) -> None:
    """And what it refused doesn't come to main by the next attempt's going on from it."""
    installed = install_hook(shop.repo, hook, script)
    state = run(shop, "echo hi > b.txt")
    assert state.phase is CLOSED
    assert "refused by a hook: git commit: no" in state.detail
    assert shop.repo.show("refs/dispatch/keep/s1/1", "b.txt") == "hi"
    installed.unlink()
    [again] = shop.run(assignment("s1", "test ! -e b.txt && echo better > b.txt", attempt=2))
    assert again.phase is MERGED
    assert shop.repo.show("main", "b.txt") == "better"
    assert shop.repo.show("refs/dispatch/keep/s1/1", "b.txt") == "hi"
    shop.repo.check_sound()


def test_a_hook_that_refuses_main_to_move_closes_and_the_users_files_stay(shop: Workshop) -> None:
    before = shop.repo.git("rev-parse", "main")
    refuse = 'test "$1" = prepared || exit 0; ! grep -q refs/heads/main'
    installed = install_hook(shop.repo, "reference-transaction", refuse)
    state = run(shop, "echo hi > b.txt; rm a.txt")
    assert state.phase is CLOSED
    assert "git update-ref: fatal: ref updates aborted by hook" in state.detail
    assert shop.repo.git("rev-parse", "main") == before
    assert (shop.repo.path / "a.txt").exists()
    shop.repo.check_sound()
    installed.unlink()
    [again] = shop.run(assignment("s1", "true", attempt=2))
    assert again.phase is MERGED
    assert shop.repo.files() == ["b.txt"]


def test_a_hook_that_refuses_the_checkout_closes_and_leaves_no_branch(shop: Workshop) -> None:
    installed = install_hook(shop.repo, "post-checkout", "echo no >&2; exit 1")
    state = run(shop, "true")
    assert state.phase is CLOSED
    assert "git checkout: no" in state.detail
    assert shop.repo.refs() == ["refs/heads/main"]
    installed.unlink()
    assert shop.run(assignment("s1", "true", attempt=2))[0].phase is MERGED


def test_a_hook_that_leaves_something_in_the_background_is_not_waited_for(shop: Workshop) -> None:
    install_hook(shop.repo, "post-checkout", "sleep 600 & echo $! > ../hook.pid")
    assert run(shop, "true").phase is MERGED
    for path in (shop.repo.root / "worktrees").glob("hook.pid"):
        shop.repo.git("-c", f"alias.end=!kill {path.read_text().strip()}", "end")


def test_a_hook_that_never_ends_is_ended(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_module, "LIMIT_S", 0.5)
    install_hook(shop.repo, "post-checkout", "sleep 600")
    state = run(shop, "true")
    assert state.phase is CLOSED
    assert "no end after 0 s" in state.detail


@pytest.mark.parametrize("lock", ["index.lock", "refs/heads/main.lock", "packed-refs.lock"])
def test_a_lock_that_goes_away_is_waited_for(shop: Workshop, lock: str) -> None:
    shop.repo.git("pack-refs", "--all")
    path = shop.repo.path / ".git" / lock
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    timer = threading.Timer(2.0, path.unlink)
    timer.start()
    try:
        assert run(shop, "echo hi > b.txt").phase is MERGED
    finally:
        timer.join()
    shop.repo.check_sound()


@pytest.mark.parametrize("lock", ["index.lock", "refs/heads/main.lock"])
def test_a_lock_that_stays_is_left_alone_and_named(shop: Workshop, lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_module, "PATIENCE_S", 0.3)
    path = shop.repo.path / ".git" / lock
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    before = shop.repo.git("rev-parse", "main")
    state = run(shop, "echo hi > b.txt")
    assert state.phase is CLOSED
    assert lock in state.detail
    assert path.exists()
    assert shop.repo.git("rev-parse", "main") == before
    assert shop.repo.show("refs/dispatch/keep/s1/1", "b.txt") == "hi"
    path.unlink()
    shop.repo.check_sound()
    assert shop.run(assignment("s1", "true", attempt=2))[0].phase is MERGED


def test_a_branch_that_exists_is_left_alone(shop: Workshop) -> None:
    shop.repo.git("branch", "dispatch/s1/1")
    before = shop.repo.git("rev-parse", "dispatch/s1/1")
    state = run(shop, "echo hi > b.txt; git symbolic-ref --short HEAD; echo $DISPATCH_BRANCH")
    assert (state.phase, state.branch) == (MERGED, "dispatch/s1/1-2")
    assert shop.log("s1") == "dispatch/s1/1-2\ndispatch/s1/1-2\n"
    assert shop.repo.git("rev-parse", "dispatch/s1/1") == before


def test_a_branch_in_the_way_of_all_of_ours_fails_and_says_so(shop: Workshop) -> None:
    shop.repo.git("branch", "dispatch")
    state = run(shop, "true")
    assert state.phase is FAILED
    assert state.error.startswith("branch 'dispatch' is in the way")
    assert "git branch -m dispatch" in state.error


def test_a_branch_that_a_person_looks_at_stays(shop: Workshop, tmp_path: Path) -> None:
    """They checked the attempt's branch out, by force, in a worktree of their own."""
    script = "touch $DISPATCH_DIR/here; until [ -e $DISPATCH_DIR/go ]; do sleep 0.01; done; echo hi > b.txt"
    shop.submit(assignment("s1", script))
    folder = shop.repo.root / "sessions" / "graph1" / "s1@1"
    until((folder / "here").exists)
    shop.repo.git("worktree", "add", "-q", "-f", str(tmp_path / "look"), "dispatch/s1/1")
    (folder / "go").touch()
    assert shop.reports.end("s1@1").phase is MERGED
    assert "refs/heads/dispatch/s1/1" in shop.repo.refs()
    assert shop.repo.git("-C", str(tmp_path / "look"), "symbolic-ref", "HEAD") == "refs/heads/dispatch/s1/1"


def test_main_gone_for_good_closes_and_says_so(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing_module, "MAIN_LIMIT_S", 0.2)
    repo.git("branch", "trunk")
    with workshop(repo, main="trunk") as shop:
        repo.git("branch", "-D", "trunk")
        state = run(shop, "true")
        assert state.phase is CLOSED
        assert "branch 'trunk' is gone" in state.detail


def test_a_gc_takes_nothing_of_ours(shop: Workshop) -> None:
    shop.run(assignment("k", "echo kept > kept.txt; exit 1"))
    stop = threading.Event()

    def collect() -> None:
        while not stop.is_set():
            shop.repo.git("gc", "-q", ok=False)

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        check = ("git", "rev-list", "--objects", "--quiet", "HEAD")  # fsck stumbles over packs that gc is replacing
        ended = [shop.run(assignment(f"s{n}", f"echo {n} > {n}.txt", verify=check))[0] for n in range(4)]
    finally:
        stop.set()
        thread.join()
    assert {state.phase for state in ended} == {MERGED}
    shop.repo.git("gc", "-q", "--prune=now")
    assert shop.repo.show("refs/dispatch/keep/k/1", "kept.txt") == "kept"
    shop.repo.check_sound()


def test_a_gc_in_the_middle_of_verify_leaves_the_merge(shop: Workshop) -> None:
    check = ("sh", "-c", "git gc -q --prune=now && git fsck --connectivity-only HEAD")
    assert run(shop, "echo hi > b.txt", verify=check).phase is MERGED
    shop.repo.check_sound()


def test_random_edits_of_one_file_either_merge_or_conflict(repo: Repo) -> None:
    """The file on main is, after all of them, what applying the merged ones in order gives."""
    lines = [f"line {n}" for n in range(40)]
    repo.commit("f.txt", "\n".join(lines) + "\n")
    dice = random.Random(7)
    edits = {f"s{n}": dice.randrange(40) for n in range(12)}
    with workshop(repo) as shop:
        gate = repo.root / "go"
        scripts = [
            assignment(
                slice_id,
                f"until [ -e {gate} ]; do sleep 0.01; done; sed -i 's/^line {at}$/line {at} by {slice_id}/' f.txt",
            )
            for slice_id, at in edits.items()
        ]
        shop.submit(*scripts)
        until(lambda: [view.stage for view in shop.host.running()] == ["running"] * 12)
        gate.touch()
        ended = {one.slice_id: shop.reports.end(one.assignment_id) for one in scripts}
    for slice_id in repo.merges():
        lines[edits[slice_id]] += f" by {slice_id}"
    assert repo.show("main", "f.txt").splitlines() == lines
    closed = {slice_id for slice_id, state in ended.items() if state.phase is CLOSED}
    assert closed.isdisjoint(repo.merges())
    assert len(closed) + len(repo.merges()) == 12
    assert all(ended[slice_id].detail == "merge conflict in f.txt" for slice_id in closed)
    repo.check_sound()


def in_the_middle_of_a_merge(repo: Repo, hook: str, when: str, command: str) -> None:
    """The user's git command runs once between their files and main."""
    install_hook(
        repo,
        hook,
        f'{when} && mkdir "{repo.path}/.git/once" 2> /dev/null || exit 0\n'
        f"unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE; cd {repo.path} && git {command}; exit 0",
    )


def test_a_checkout_that_comes_to_main_in_the_middle_of_a_merge_goes_along(repo: Repo) -> None:
    repo.git("checkout", "-q", "--detach")
    repo.write("mine.txt", "mine\n")
    repo.git("add", "mine.txt")
    in_the_middle_of_a_merge(
        repo, "reference-transaction", 'test "$1" = prepared && grep -q refs/heads/main', "checkout -q main"
    )
    with workshop(repo, main="main") as shop:
        assert run(shop, "echo hi > b.txt; echo changed > a.txt").phase is MERGED
        assert repo.git("symbolic-ref", "HEAD") == "refs/heads/main"
        assert repo.git("status", "--porcelain") == "A  mine.txt"
        assert (repo.path / "a.txt").read_text() == "changed\n"


def finish_a_checkout_of(repo: Repo, old: str) -> None:
    """The last step of a `git checkout main` that looked main up when it was `old`."""
    entry = f"{old} {old} Person <person@example.org> 1700000000 +0000\tcheckout: moving from {old} to main\n"
    with (repo.path / ".git" / "logs" / "HEAD").open("a") as log:
        log.write(entry)
    (repo.path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


@pytest.mark.parametrize("when", ["merge", "close", "start"])
@pytest.mark.parametrize("merges", [1, 2])
def test_a_checkout_that_merges_outran_is_brought_along(repo: Repo, when: str, merges: int) -> None:
    """At the next merge, when the host closes, or when the next one starts, which else would call it dirty."""
    old = repo.git("rev-parse", "main")
    repo.git("checkout", "-q", "--detach")
    with workshop(repo, main="main") as shop:
        for n in range(merges):
            assert shop.run(assignment(f"s{n}", f"echo hi > {n}.txt; echo {n} > a.txt"))[0].phase is MERGED
        if when != "start":
            finish_a_checkout_of(repo, old)
            assert repo.git("status", "--porcelain") != ""
        if when == "merge":
            assert shop.run(assignment("next", "echo next > next.txt"))[0].phase is MERGED
            repo.check_sound()
    if when == "start":
        finish_a_checkout_of(repo, old)
        with workshop(repo):
            repo.check_sound()
    repo.check_sound()
    assert (repo.path / "a.txt").read_text() == f"{merges - 1}\n"


def test_what_a_person_takes_back_in_their_checkout_is_not_taken_for_a_merge_that_outran_it(repo: Repo) -> None:
    """They came to main when it had the merge, or were brought along, and staged its opposite."""
    old = repo.git("rev-parse", "main")
    repo.git("checkout", "-q", "--detach")
    with workshop(repo, main="main") as shop:
        assert shop.run(assignment("s1", "echo hi > b.txt"))[0].phase is MERGED
        repo.git("checkout", "-q", "main")
        repo.git("rm", "-q", "b.txt")
        assert shop.run(assignment("s2", "echo 2 > 2.txt"))[0].phase is MERGED
        assert repo.git("status", "--porcelain") == "D  b.txt"
        repo.git("checkout", "-q", "-f", "--detach", old)
        assert shop.run(assignment("s3", "echo 3 > 3.txt"))[0].phase is MERGED
        repo.git("checkout", "-q", "main~1")
        repo.git("checkout", "-q", old)
        repo.git("checkout", "-q", "main")
        repo.git("rm", "-q", "3.txt")
    assert repo.git("status", "--porcelain") == "D  3.txt"
