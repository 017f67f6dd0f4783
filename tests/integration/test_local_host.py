"""A session's life in `LocalSessionHost`: what it is given, how it ends, what becomes of its work."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import threading
from pathlib import Path

import attrs
import pytest
import trio

from harness.local import InvalidAssignmentError, LocalSessionHost, NoSessionError
from harness.session import HostClosedError, ReportingHost, SessionPhase
from tests.integration.workshop import (
    GRAPH,
    Repo,
    Reports,
    Workshop,
    alive,
    assignment,
    in_environment,
    make_repo,
    until,
    workshop,
)

MERGED, CLOSED, FAILED, CANCELED = (
    SessionPhase.MERGED,
    SessionPhase.CLOSED,
    SessionPhase.FAILED,
    SessionPhase.CANCELED,
)
# Tells that it runs, and goes on until it is told to stop.
WAITS = "trap 'exit 3' TERM; touch $DISPATCH_DIR/here; while :; do sleep 0.02; done"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo")


@pytest.fixture
def shop(repo: Repo):
    with workshop(repo) as open_shop:
        yield open_shop


def folder_of(shop: Workshop, assignment_id: str, graph: str = "graph1") -> Path:
    return shop.repo.root / "sessions" / graph / assignment_id


def wait_until_here(shop: Workshop, assignment_id: str) -> None:
    until((folder_of(shop, assignment_id) / "here").exists)


def test_what_an_agent_commits_is_merged_with_two_parents_and_trailers(shop: Workshop) -> None:
    before = shop.repo.git("rev-parse", "main")
    [state] = shop.run(
        assignment("s1", "echo hi > b.txt && git add . && git commit -qm 'by the agent'", title="Say hi")
    )
    assert state.phase is MERGED
    parents = shop.repo.git("log", "-1", "--format=%P", "main").split()
    assert parents[0] == before
    assert shop.repo.git("log", "-1", "--format=%s", parents[1]) == "by the agent"
    assert shop.repo.git("log", "-1", "--format=%B", "main") == (
        "Say hi\n\nDispatch-Slice: s1\nDispatch-Attempt: 1\nDispatch-Graph: graph1"
    )
    assert shop.repo.show("main", "b.txt") == "hi"


def test_the_users_checkout_of_main_follows(shop: Workshop) -> None:
    shop.run(assignment("s1", "echo hi > b.txt; rm a.txt"))
    assert (shop.repo.path / "b.txt").read_text() == "hi\n"
    assert not (shop.repo.path / "a.txt").exists()
    shop.repo.check_sound()


def test_what_an_agent_forgot_to_commit_is_committed_for_it(shop: Workshop) -> None:
    [state] = shop.run(assignment("s1", "echo new > dir.txt; echo changed > a.txt", title="Change things"))
    assert state.phase is MERGED
    assert shop.repo.git("log", "-1", "--format=%s", "main^2") == "Change things"
    assert shop.repo.show("main", "a.txt") == "changed"


def test_no_change_counts_as_merged_and_makes_no_commit(shop: Workshop) -> None:
    before = shop.repo.git("rev-parse", "main")
    [state] = shop.run(assignment("s1", "true"))
    assert (state.phase, state.detail) == (MERGED, "no change")
    assert shop.repo.git("rev-parse", "main") == before


def test_a_worktree_used_by_the_next_host_brings_no_second_ref_to_kept_work(repo: Repo) -> None:
    """Work that was closed is under its attempt's ref; work that waits for a review, on its branch too."""
    review = "echo 1 > 1.txt; git add .; git commit -qm 1; echo https://example.org/1 > $DISPATCH_DIR/pull_request"
    with workshop(repo) as shop:
        shop.run(assignment("s1", review), assignment("s2", "echo 2 > 2.txt; exit 1"))
    kept = ["refs/dispatch/keep/s1/1", "refs/dispatch/keep/s2/1", "refs/heads/dispatch/s1/1", "refs/heads/main"]
    assert repo.refs() == kept
    with workshop(repo) as shop:
        shop.run(assignment("s3", "true"), assignment("s4", "true"))
        assert repo.refs() == kept
    repo.check_sound()


def test_a_ref_goes_once_main_has_its_work_by_another_way(repo: Repo) -> None:
    with workshop(repo) as shop:
        shop.run(*(assignment(f"s{n}", f"echo {n} > {n}.txt; exit 1") for n in (1, 2)))
        shop.run(assignment("s3", "echo 3 > 3.txt; exit 75"))
    repo.git("update-ref", "refs/dispatch/keep/worktree-1", "refs/dispatch/keep/s1/1")
    for name in ("s1", "s3"):
        repo.git("merge", "-q", "-m", "by hand", f"refs/dispatch/keep/{name}/1")
    with workshop(repo):
        assert repo.refs("refs/dispatch") == [
            "refs/dispatch/keep/s2/1",
            "refs/dispatch/keep/s3/1",
        ]  # s3 goes on from it
    with workshop(repo) as shop:
        assert shop.run(assignment("s3", "cat 3.txt", attempt=2))[0].phase is MERGED
    LocalSessionHost(repo.path)
    assert repo.refs("refs/dispatch") == ["refs/dispatch/keep/s2/1"]


def test_what_a_kill_left_half_written_is_removed_at_the_start(repo: Repo) -> None:
    with workshop(repo) as shop:
        shop.host.bind(GRAPH)
        shop.run(assignment("s1", "echo hi > b.txt"))
    half = [
        repo.root / name for name in (f"records/{GRAPH}/.k.json.7.new", "graphs/.g.json.7.new", ".moving.json.7.new")
    ]
    for path in half:
        path.write_text("{")
    host = LocalSessionHost(repo.path)
    assert not any(path.exists() for path in half)
    assert host.bound(GRAPH) == "main"


def test_nothing_of_ours_is_left_beside_main_after_a_merge(shop: Workshop) -> None:
    shop.run(assignment("s1", "echo hi > b.txt"), assignment("s2", "true"))
    assert shop.repo.refs() == ["refs/heads/main"]
    assert list((shop.repo.root / "sessions").glob("*/*")) == []


@pytest.mark.parametrize(
    ("script", "phase", "detail"),
    [
        ("echo it broke; exit 1", CLOSED, "exit 1: it broke"),
        ("echo later; exit 75", CLOSED, "exit 75: later"),
        ("kill -SEGV $$", CLOSED, "ended by SIGSEGV"),
        ("exit 3", CLOSED, "exit 3"),
        ("printf '\\033[31mred\\033[0m\\007\\377bell'; exit 1", CLOSED, "exit 1: red\ufffd\ufffdbell"),
    ],
)
def test_an_exit_status_other_than_0_closes(shop: Workshop, script: str, phase: SessionPhase, detail: str) -> None:
    [state] = shop.run(assignment("s1", script))
    assert (state.phase, state.detail) == (phase, detail)
    assert detail in state.checkpoint


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("no-such-agent",), "command not found: 'no-such-agent'; it is looked for on PATH: install it"),
        (
            ("./no-such-agent",),
            "command not found: './no-such-agent'; it is looked for in the worktree, where only committed files are",
        ),
        (("~/bin/agent",), "command not found: '~/bin/agent'; ~ is not expanded"),
        (("/no/such/agent",), "command not found: '/no/such/agent'; install it there"),
        (("./a.txt",), "command can't be executed: './a.txt'; make it executable with: chmod +x, and commit that"),
        ((), "the recipe has no command"),
        (("sh", "\0"), "command can't be started: 'sh'"),
    ],
)
def test_a_command_that_can_never_run_fails(shop: Workshop, command: tuple[str, ...], words: str) -> None:
    one = assignment("s1", "true")
    one = attrs.evolve(one, recipe=attrs.evolve(one.recipe, command=command))
    [state] = shop.run(one)
    assert state.phase is FAILED
    assert words in state.error
    assert "\n" not in state.error
    assert shop.repo.refs() == ["refs/heads/main"]
    assert not command or shop.host.log_path(one.graph_id, "s1", 1).read_text() == f"[dispatch] {state.error}\n"


def test_the_childs_contract(shop: Workshop, tmp_path: Path) -> None:
    script = """
    env > $DISPATCH_DIR/env; cp $DISPATCH_DIR/env $OUT/env
    cat $DISPATCH_TASK > $OUT/task; git symbolic-ref --short HEAD > $OUT/branch; pwd -P > $OUT/pwd
    readlink /proc/self/fd/0 > $OUT/stdin; git rev-parse --show-toplevel > $OUT/top
    wc -c < $DISPATCH_INBOX > $OUT/inbox
    """
    shop.run(
        assignment("s1", script, title="A title", task="Do {this} $HOME.", env=(("OUT", str(tmp_path)), ("PLAN", "x")))
    )
    out = {name: (tmp_path / name).read_text() for name in ("env", "task", "branch", "pwd", "stdin", "top", "inbox")}
    env = dict(line.split("=", 1) for line in out["env"].splitlines() if "=" in line)
    assert env["DISPATCH_SLICE"] == "s1"
    assert env["DISPATCH_ATTEMPT"] == "1"
    assert env["DISPATCH_TITLE"] == "A title"
    assert env["DISPATCH_BRANCH"] == "dispatch/s1/1" == out["branch"].strip()
    assert env["PLAN"] == "x"
    assert len(env["DISPATCH_SESSION"]) == 32
    assert out["task"] == "A title\n\nDo {this} $HOME.\n"
    assert out["pwd"] == out["top"]
    assert out["pwd"].startswith(str(shop.repo.root / "worktrees"))
    assert out["stdin"].strip() == "/dev/null"
    assert out["inbox"].strip() == "0"
    for name in ("TASK", "INBOX", "CHECKPOINT"):
        assert Path(env[f"DISPATCH_{name}"]).parent == Path(env["DISPATCH_DIR"])


def test_what_ties_the_scheduler_to_another_repository_reaches_no_agent(
    shop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = make_repo(tmp_path / "elsewhere")
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.setenv(name, str(elsewhere.path / ".git" / "index"))
    monkeypatch.setenv("DISPATCH_SESSION", "of-the-outer-one")
    shop.submit(
        assignment("s1", 'echo "$DISPATCH_SESSION" > token; echo hi > b.txt', env=(("DISPATCH_SESSION", "mine"),))
    )
    state = shop.reports.end("s1@1")
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name)
    assert state.phase is MERGED
    assert shop.repo.show("main", "token") not in ("mine", "of-the-outer-one")
    assert elsewhere.files() == ["a.txt"]


def test_the_output_is_in_the_log_of_the_attempt_alone(shop: Workshop) -> None:
    shop.run(assignment("s1", "echo out; echo err >&2; exit 1"))
    shop.run(assignment("s1", "echo again", attempt=2))
    assert shop.log("s1", 1) == "out\nerr\n"
    assert shop.log("s1", 2) == "again\n"


def test_two_graphs_with_the_same_slice_keep_their_logs_apart(shop: Workshop) -> None:
    for graph in ("graph1", "graph2"):
        shop.run(assignment("s1", f"echo {graph}", graph=graph))
        shop.reports.all.clear()
    assert [shop.log("s1", graph=graph) for graph in ("graph1", "graph2")] == ["graph1\n", "graph2\n"]


def test_a_merge_is_known_from_main_once_its_record_has_been_pruned(repo: Repo) -> None:
    with workshop(repo) as shop:
        assert [end.phase for end in shop.run(assignment("s1", "echo hi > b.txt"), assignment("s2", "true"))] == [
            MERGED,
            MERGED,
        ]
    records = {name: repo.root / "records" / GRAPH / f"{name}.json" for name in ("s1", "s2")}
    for path in records.values():
        os.utime(path, (1.0, 1.0))
    with workshop(repo) as shop:
        assert {name for name, path in records.items() if path.exists()} == {"s2"}
        again = [assignment(name, "echo twice >> b.txt", attempt=2) for name in records]
        assert [end.phase for end in shop.run(*again)] == [MERGED, MERGED]
    assert repo.show("main", "b.txt") == "hi"


def test_a_title_that_is_no_line_cannot_forge_trailers(shop: Workshop) -> None:
    shop.run(assignment("s1", "echo hi > b.txt", title="One\n\nDispatch-Slice: other\x1b[31m"))
    assert shop.repo.merges() == ["s1"]
    assert shop.repo.git("log", "-1", "--format=%s", "main") == "One  Dispatch-Slice: other"


def test_logs_go_to_the_state_folder_that_is_named(repo: Repo, tmp_path: Path) -> None:
    with workshop(repo, state_dir=tmp_path / "state") as shop:
        shop.run(assignment("s1", "echo hello"))
        assert (tmp_path / "state" / "logs" / GRAPH / "s1" / "1.log").read_text() == "hello\n"


def test_a_conflict_closes_and_the_next_attempt_begins_from_fresh_main(shop: Workshop) -> None:
    held = "until [ -e $DISPATCH_DIR/go ]; do sleep 0.01; done; "
    shop.submit(assignment("s1", held + "echo mine > a.txt; echo mine > sub.txt"))
    until(lambda: shop.host.running()[0].stage == "running")
    shop.repo.commit("a.txt", "theirs\n")
    (folder_of(shop, "s1@1") / "go").touch()
    state = shop.reports.end("s1@1")
    assert (state.phase, state.detail) == (CLOSED, "merge conflict in a.txt")
    assert "merge conflict in a.txt" in state.checkpoint
    assert "refs/dispatch/keep/s1/1" in state.checkpoint
    assert shop.repo.show("refs/dispatch/keep/s1/1", "a.txt") == "mine"
    [second] = shop.run(assignment("s1", "cat a.txt > seen.txt; ls > list.txt", attempt=2))
    assert second.phase is MERGED
    assert shop.repo.show("main", "seen.txt") == "theirs"
    assert "sub.txt" not in shop.repo.show("main", "list.txt")
    shop.repo.check_sound()


def test_verify_runs_on_the_merged_tree_alone(shop: Workshop) -> None:
    held = "until [ -e $DISPATCH_DIR/go ]; do sleep 0.01; done; "
    verify = ("sh", "-c", 'ls | tr "\\n" " "; git status --porcelain --ignored; test -f theirs.txt')
    shop.repo.commit(".gitignore", "*.log\n")
    shop.submit(assignment("s1", held + "echo mine > mine.txt; echo junk > x.log", verify=verify))
    until(lambda: shop.host.running()[0].stage == "running")
    shop.repo.commit("theirs.txt", "theirs\n")
    (folder_of(shop, "s1@1") / "go").touch()
    assert shop.reports.end("s1@1").phase is MERGED
    assert shop.log("s1").splitlines()[-1] == "a.txt mine.txt theirs.txt "


def test_main_never_holds_a_merge_whose_verify_failed(shop: Workshop) -> None:
    before = shop.repo.git("rev-parse", "main")
    [state] = shop.run(assignment("s1", "echo hi > b.txt", verify=("sh", "-c", "echo 2 tests failed; exit 4")))
    assert (state.phase, state.detail) == (CLOSED, "verify failed: exit 4: 2 tests failed")
    assert shop.repo.git("rev-parse", "main") == before
    assert shop.repo.git("reflog", "show", "main").count("\n") == 0
    assert shop.repo.show("refs/dispatch/keep/s1/1", "b.txt") == "hi"


def test_a_verify_command_that_is_not_there_fails(shop: Workshop) -> None:
    [state] = shop.run(assignment("s1", "echo hi > b.txt", verify=("no-such-check",)))
    assert state.phase is FAILED
    assert "verify command not found: 'no-such-check'" in state.error
    assert shop.repo.show("refs/dispatch/keep/s1/1", "b.txt") == "hi"


def test_main_that_moves_during_verify_is_merged_and_verified_again(shop: Workshop, tmp_path: Path) -> None:
    count = tmp_path / "count"
    check = (
        f'echo x >> {count}; if [ "$(wc -l < {count})" = 1 ]; then until [ -e {tmp_path}/go ]; do sleep 0.01; done; fi'
    )
    shop.submit(assignment("s1", "echo hi > b.txt", verify=("sh", "-c", f"{check}; ls")))
    until(count.exists)
    shop.repo.commit("by-hand.txt", "meanwhile\n")
    (tmp_path / "go").touch()
    assert shop.reports.end("s1@1").phase is MERGED
    assert count.read_text() == "x\nx\n"
    assert shop.repo.files() == ["a.txt", "b.txt", "by-hand.txt"]
    assert "by-hand.txt" in shop.log("s1")
    shop.repo.check_sound()


def test_one_merge_at_a_time_first_come_first_served(shop: Workshop, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    check = ("sh", "-c", f"echo in $DISPATCH_SLICE >> {trace}; sleep 0.05; echo out $DISPATCH_SLICE >> {trace}")
    states = shop.run(*(assignment(f"s{n}", f"echo hi > {n}.txt", verify=check) for n in range(5)))
    assert {state.phase for state in states} == {MERGED}
    lines = trace.read_text().splitlines()
    assert len(lines) == 10
    assert all(a.split()[1] == b.split()[1] for a, b in zip(lines[::2], lines[1::2], strict=True))


def test_a_pull_request_is_reported_and_nothing_merged(shop: Workshop) -> None:
    script = (
        "echo hi > b.txt; git add .; git commit -qm work; echo https://example.org/pr/7 > $DISPATCH_DIR/pull_request"
    )
    [state] = shop.run(assignment("s1", script))
    assert (state.phase, state.pull_request_url) == (CLOSED, "https://example.org/pr/7")
    assert shop.repo.files() == ["a.txt"]
    assert shop.repo.show("dispatch/s1/1", "b.txt") == "hi"
    assert state.branch == "dispatch/s1/1"


def test_the_address_is_found_in_all_that_a_program_says(shop: Workshop) -> None:
    said = r"Creating pull request for a into main in o/r\n\nhttps://github.com/o/r/pull/1\n"
    [state] = shop.run(assignment("s1", f"echo hi > b.txt; printf '{said}' > $DISPATCH_DIR/pull_request"))
    assert (state.phase, state.pull_request_url) == (CLOSED, "https://github.com/o/r/pull/1")
    assert shop.repo.files() == ["a.txt"]


NO_ADDRESS = {
    "words": "printf 'no address' > $DISPATCH_DIR/pull_request",
    "a line end": "echo > $DISPATCH_DIR/pull_request",
    "two words": "echo 'https://a b' > $DISPATCH_DIR/pull_request",
    "another scheme": "echo file:///etc/passwd > $DISPATCH_DIR/pull_request",
    "a folder": "mkdir $DISPATCH_DIR/pull_request",
    "a pipe": "mkfifo $DISPATCH_DIR/pull_request",
    "a link to nowhere": "ln -s nowhere $DISPATCH_DIR/pull_request",
}


@pytest.mark.parametrize("script", NO_ADDRESS.values(), ids=NO_ADDRESS)
def test_work_that_is_to_be_reviewed_is_never_merged_for_want_of_an_address(shop: Workshop, script: str) -> None:
    [state] = shop.run(assignment("s1", f"echo hi > b.txt; {script}"))
    assert (state.phase, state.detail, state.pull_request_url) == (CLOSED, "pull_request holds no address", "")
    assert shop.repo.files() == ["a.txt"]
    assert shop.repo.show("refs/dispatch/keep/s1/1", "b.txt") == "hi"


def test_an_exit_status_counts_for_more_than_an_address_that_is_missing(shop: Workshop) -> None:
    [state] = shop.run(assignment("s1", "echo no > $DISPATCH_DIR/pull_request; exit 1"))
    assert (state.phase, state.detail, state.pull_request_url) == (CLOSED, "exit 1", "")


def test_an_empty_pull_request_file_is_as_good_as_none(shop: Workshop) -> None:
    [state] = shop.run(assignment("s1", "echo hi > b.txt; : > $DISPATCH_DIR/pull_request"))
    assert state.phase is MERGED


def test_messages_reach_the_inbox_in_order(shop: Workshop, tmp_path: Path) -> None:
    both = "until [ $(wc -l < $DISPATCH_INBOX) -ge 2 ]; do sleep 0.01; done"
    script = f"touch $DISPATCH_DIR/here; {both}; cp $DISPATCH_INBOX {tmp_path}/inbox"
    shop.submit(assignment("s1", script))
    wait_until_here(shop, "s1@1")
    assert shop.send("s1@1", "first\nline two ü") == "turn-2"
    assert shop.send("s1@1", "second") == "turn-3"
    state = shop.reports.end("s1@1")
    assert state.turns == 3
    assert [json.loads(line) for line in (tmp_path / "inbox").read_text().splitlines()] == [
        {"turn": "turn-2", "message": "first\nline two ü"},
        {"turn": "turn-3", "message": "second"},
    ]
    assert [s.turns for s in shop.reports.all] == [2, 3, 3]


def test_a_message_to_a_session_that_does_not_run_is_refused(shop: Workshop) -> None:
    with pytest.raises(NoSessionError, match="'s1@1' has no running session"):
        shop.send("s1@1", "hello")
    shop.run(assignment("s1", "true"))
    with pytest.raises(NoSessionError):
        shop.send("s1@1", "hello")


def test_a_preempted_session_goes_on_with_its_work(shop: Workshop) -> None:
    script = "echo 1 > one.txt; git add .; git commit -qm one; echo 2 > two.txt; echo note > $DISPATCH_CHECKPOINT; "
    shop.submit(assignment("s1", script + WAITS))
    wait_until_here(shop, "s1@1")
    shop.cancel("s1@1")
    state = shop.reports.end("s1@1")
    assert state.phase is CANCELED
    assert "refs/dispatch/keep/s1/1" in state.checkpoint
    assert state.checkpoint.endswith("It left this note:\nnote")
    assert shop.repo.refs("refs/heads") == ["refs/heads/main"]
    shop.repo.commit("other.txt", "main went on\n")
    [second] = shop.run(assignment("s1", "cat one.txt two.txt other.txt > all.txt", attempt=2))
    assert second.phase is MERGED
    assert shop.repo.show("main", "all.txt") == "1\n2\nmain went on"
    assert shop.repo.refs() == ["refs/heads/main"]  # main has what was kept
    shop.repo.check_sound()


def test_kept_work_that_the_next_attempt_throws_away_stays_kept(shop: Workshop) -> None:
    shop.run(assignment("s1", "echo 1 > b.txt; exit 75"))
    [state] = shop.run(assignment("s1", "git reset -q --hard main && echo 2 > c.txt", attempt=2))
    assert state.phase is SessionPhase.MERGED
    assert shop.repo.show("refs/dispatch/keep/s1/1", "b.txt") == "1"


def test_kept_work_that_conflicts_with_main_stays_kept_and_the_task_says_so(shop: Workshop, tmp_path: Path) -> None:
    shop.submit(assignment("s1", "echo mine > a.txt; " + WAITS))
    wait_until_here(shop, "s1@1")
    shop.cancel("s1@1")
    shop.reports.end("s1@1")
    shop.repo.commit("a.txt", "theirs\n")
    [second] = shop.run(assignment("s1", f"cp $DISPATCH_TASK {tmp_path}/task; cp a.txt {tmp_path}/a", attempt=2))
    assert second.phase is MERGED
    assert (tmp_path / "a").read_text() == "theirs\n"
    assert "git diff main...refs/dispatch/keep/s1/1" in (tmp_path / "task").read_text()
    assert shop.repo.show("refs/dispatch/keep/s1/1", "a.txt") == "mine"


def test_exit_0_after_being_asked_to_stop_is_not_done(shop: Workshop) -> None:
    shop.submit(assignment("s1", WAITS.replace("exit 3", "exit 0")))
    wait_until_here(shop, "s1@1")
    shop.cancel("s1@1")
    assert shop.reports.end("s1@1").phase is CANCELED


def test_an_agent_deaf_to_sigterm_is_killed_after_its_grace(shop: Workshop) -> None:
    shop.submit(assignment("s1", WAITS.replace("exit 3", ":"), grace_s=0.2))
    wait_until_here(shop, "s1@1")
    shop.cancel("s1@1")
    assert shop.reports.end("s1@1", 10.0).phase is CANCELED
    assert in_environment(f"DISPATCH_DIR={shop.repo.root}") == []


def test_a_stop_while_it_waits_for_its_turn_to_merge_keeps_its_work(shop: Workshop, tmp_path: Path) -> None:
    gate = ("sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.01; done")
    shop.submit(assignment("s1", "echo 1 > one.txt", verify=gate))
    until(lambda: [s.stage for s in shop.host.running()] == ["verifying"])
    shop.submit(assignment("s2", "echo 2 > two.txt"))
    until(lambda: [s.stage for s in shop.host.running()] == ["verifying", "waiting to merge"])
    shop.cancel("s2@1")
    assert shop.reports.end("s2@1").phase is CANCELED
    assert shop.repo.show("refs/dispatch/keep/s2/1", "two.txt") == "2"
    shop.submit(assignment("s3", "echo 3 > three.txt"))
    (tmp_path / "go").touch()
    assert shop.reports.end("s1@1").phase is MERGED
    assert shop.reports.end("s3@1").phase is MERGED


def test_a_stop_while_verify_runs_ends_it_and_keeps_the_work(shop: Workshop) -> None:
    shop.submit(assignment("s1", "echo 1 > one.txt", verify=("sh", "-c", "echo litter > one.txt; sleep 60")))
    until(lambda: [s.stage for s in shop.host.running()] == ["verifying"])
    shop.cancel("s1@1")
    assert shop.reports.end("s1@1").phase is CANCELED
    assert shop.repo.show("refs/dispatch/keep/s1/1", "one.txt") == "1"
    assert shop.repo.files() == ["a.txt"]
    [again] = shop.run(assignment("s1", "cat one.txt", attempt=2))
    assert again.phase is MERGED
    assert shop.repo.show("main", "one.txt") == "1"


def test_a_cancel_of_nothing_does_nothing(shop: Workshop) -> None:
    shop.cancel("nobody@1")
    shop.run(assignment("s1", "true"))
    shop.cancel("s1@1")
    assert len(shop.reports.all) == 1


def test_an_agent_that_says_nothing_for_too_long_is_closed(shop: Workshop) -> None:
    [state] = shop.run(assignment("s1", "echo begun; sleep 60", quiet_limit_s=0.3))
    assert (state.phase, state.detail) == (CLOSED, "no output for 0.3 s")


def test_twenty_megabytes_of_anything_are_no_problem(shop: Workshop) -> None:
    [state] = shop.run(assignment("s1", "head -c 20000000 /dev/urandom; echo; echo done; exit 9"))
    assert state.detail == "exit 9: done"


def test_submitting_again_is_harmless(shop: Workshop, tmp_path: Path) -> None:
    one = assignment("s1", f"echo x >> {tmp_path}/runs; " + WAITS.replace("exit 3", "exit 0"))
    shop.submit(one, one)
    wait_until_here(shop, "s1@1")
    shop.submit(one)
    shop.cancel("s1@1")
    shop.reports.end("s1@1")
    assert (tmp_path / "runs").read_text() == "x\n"
    assert len(shop.reports.all) == 1


def test_submitting_a_merged_attempt_again_reports_it_merged_and_runs_nothing(shop: Workshop, tmp_path: Path) -> None:
    one = assignment("s1", f"echo x >> {tmp_path}/runs; echo hi > b.txt")
    shop.run(one)
    shop.reports.all.clear()
    [state] = shop.run(one)
    assert state.phase is MERGED
    assert (tmp_path / "runs").read_text() == "x\n"
    assert shop.repo.merges() == ["s1"]


def test_a_later_attempt_waits_for_the_earlier_one_to_stop(shop: Workshop, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    shop.submit(
        assignment(
            "s1",
            WAITS.replace("exit 3", f"sleep 0.1; echo 1 out >> {trace}; exit 3"),
        )
    )
    wait_until_here(shop, "s1@1")
    shop.submit(assignment("s1", f"echo 2 in >> {trace}", attempt=2))
    assert shop.reports.end("s1@2").phase is MERGED
    assert trace.read_text() == "1 out\n2 in\n"
    assert shop.reports.end("s1@1").phase is CANCELED


def test_a_waiting_attempt_can_be_canceled(shop: Workshop, tmp_path: Path) -> None:
    shop.submit(
        assignment(
            "s1",
            WAITS.replace("exit 3", f"until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 3"),
        )
    )
    wait_until_here(shop, "s1@1")
    shop.submit(assignment("s1", f"touch {tmp_path}/ran", attempt=2))
    shop.cancel("s1@2")
    (tmp_path / "go").touch()
    assert shop.reports.end("s1@2").phase is CANCELED
    assert not (tmp_path / "ran").exists()


def test_the_same_slice_of_two_graphs_is_two_sessions(shop: Workshop) -> None:
    script = "touch $DISPATCH_DIR/here; until [ -e $DISPATCH_DIR/go ]; do sleep 0.01; done; "
    shop.submit(assignment("s1", script + "echo 1 > one.txt", graph="g1"))
    until((folder_of(shop, "s1@1", "g1") / "here").exists)
    # The ids differ for a host by graph; the assignment id does not, so one host runs one of them at a time.
    with workshop(shop.repo) as other:
        other.submit(assignment("s1", script + "echo 2 > two.txt", graph="g2"))
        until((folder_of(shop, "s1@1", "g2") / "here").exists)
        for graph in ("g1", "g2"):
            (folder_of(shop, "s1@1", graph) / "go").touch()
        assert other.reports.end("s1@1").phase is MERGED
        assert other.reports.end("s1@1").branch == "dispatch/s1/1-2"
        assert shop.reports.end("s1@1").phase is MERGED
    assert shop.repo.files() == ["a.txt", "one.txt", "two.txt"]
    assert shop.repo.refs() == ["refs/heads/main"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slice_id", "../../etc"),
        ("slice_id", "-x"),
        ("slice_id", "a..b"),
        ("slice_id", "a.lock"),
        ("slice_id", "a/b"),
        ("slice_id", "a\n"),
        ("slice_id", "x" * 81),
        ("graph_id", "../g"),
        ("graph_id", ""),
        ("branch", "-b"),
        ("branch", "dispatch/../x"),
        ("branch", "dispatch//x"),
        ("branch", "a b"),
        ("branch", "x.lock"),
        ("branch", "@{-1}"),
        ("assignment_id", "other@1"),
    ],
)
def test_ids_that_could_name_another_place_are_refused(shop: Workshop, field: str, value: str) -> None:
    one = attrs.evolve(assignment("s1", "true"), **{field: value})
    if field == "slice_id":
        one = attrs.evolve(one, assignment_id=f"{value}@1")
    with pytest.raises(InvalidAssignmentError):
        shop.submit(one)
    assert shop.host.running() == ()


def test_running_shows_what_is_under_way(shop: Workshop) -> None:
    shop.submit(assignment("s1", "echo a line; " + WAITS, title="A title"))
    wait_until_here(shop, "s1@1")
    until(lambda: shop.host.running()[0].last_line == "a line")
    [view] = shop.host.running()
    assert (view.assignment_id, view.slice_id, view.title, view.stage, view.turn) == (
        "s1@1",
        "s1",
        "A title",
        "running",
        1,
    )
    assert view.log == shop.host.log_path(GRAPH, "s1", 1)
    assert alive(view.pid)
    assert shop.host.groups() == (view.pid,)
    assert os.getpgid(view.pid) == view.pid
    shop.cancel("s1@1")
    shop.reports.end("s1@1")
    assert shop.host.running() == ()
    assert shop.host.groups() == ()


def test_actors_and_worktrees_are_used_again(shop: Workshop) -> None:
    for n in range(6):
        shop.run(assignment(f"s{n}", f"echo {n} > {n}.txt"))
    assert len([t for t in threading.enumerate() if t.name.startswith("SessionActor")]) == 1
    assert len(shop.repo.git("worktree", "list").splitlines()) == 2


def test_an_agent_finds_its_worktree_as_new_whatever_the_one_before_left(shop: Workshop, tmp_path: Path) -> None:
    shop.repo.commit(".gitignore", "*.o\n")
    shop.run(assignment("s1", "mkdir -p d/e empty; echo x > d/e/x.o; echo y > y.o; echo z > z.txt; ln -s / r; exit 1"))
    shop.run(assignment("s2", f"ls -A > {tmp_path}/list; git status --porcelain --ignored >> {tmp_path}/list"))
    assert (tmp_path / "list").read_text() == ".git\n.gitignore\na.txt\n"


def test_close_stops_all_keeps_their_work_and_reports_nothing(repo: Repo) -> None:
    shop = Workshop(repo)
    shop.submit(*(assignment(f"s{n}", f"echo {n} > {n}.txt; " + WAITS) for n in range(3)))
    for n in range(3):
        wait_until_here(shop, f"s{n}@1")
    assert shop.host.close(20.0)
    assert shop.host.close(1.0)
    assert in_environment(f"DISPATCH_DIR={repo.root}") == []
    assert shop.reports.all == []
    with pytest.raises(HostClosedError):
        shop.submit(assignment("s9", "true"))
    with workshop(repo) as again:
        [state] = again.run(assignment("s1", "cat 1.txt > seen.txt", attempt=2))
        assert state.phase is MERGED
        assert repo.show("main", "seen.txt") == "1"


def test_a_host_that_was_closed_leaves_no_descriptor_and_no_thread(repo: Repo) -> None:
    def use() -> None:
        with workshop(repo) as shop:
            assert shop.run(assignment("s1", "true", graph=f"g{next(numbers)}"))[0].phase is MERGED

    def held() -> tuple[int, int]:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir())), len(threading.enumerate())

    numbers = itertools.count()
    use()
    before = held()
    for _ in range(5):
        use()
    until(lambda: held() <= before)


def test_close_kills_who_will_not_stop(repo: Repo) -> None:
    shop = Workshop(repo)
    shop.submit(assignment("s1", "trap '' TERM; touch $DISPATCH_DIR/here; while :; do sleep 0.05; done", grace_s=60.0))
    wait_until_here(shop, "s1@1")
    assert shop.host.close(0.2) is False
    assert in_environment(f"DISPATCH_DIR={repo.root}") == []


def test_it_works_under_trio(repo: Repo) -> None:
    host, reports = LocalSessionHost(repo.path), Reports()
    assert isinstance(host, ReportingHost)
    host.connect(reports)
    script = "touch $DISPATCH_DIR/here; until [ -s $DISPATCH_INBOX ]; do sleep 0.01; done; while :; do sleep 0.01; done"

    async def main() -> str:
        await host.submit(assignment("s1", script))
        with trio.fail_after(20):
            while not (repo.root / "sessions" / "graph1" / "s1@1" / "here").exists():
                await trio.sleep(0.01)
        turn = await host.send("s1@1", "hello")
        await host.cancel("s1@1")
        return turn

    assert trio.run(main) == "turn-2"
    assert reports.end("s1@1").phase is CANCELED
    assert host.close(10.0)


def test_submit_does_not_wait_for_git(repo: Repo) -> None:
    """A post-checkout hook that blocks until the loop is seen to go on."""
    hooks = Path(repo.git("rev-parse", "--absolute-git-dir")) / "hooks"
    hooks.mkdir(exist_ok=True)
    gate = repo.path.parent / "gate"
    (hooks / "post-checkout").write_text(f"#!/bin/sh\nuntil [ -e {gate} ]; do sleep 0.01; done\n")
    (hooks / "post-checkout").chmod(0o755)
    with workshop(repo) as shop:

        async def main() -> None:
            await asyncio.wait_for(shop.host.submit(assignment("s1", "true")), 5.0)
            await asyncio.wait_for(shop.host.submit(assignment("s2", "true")), 5.0)
            gate.touch()

        asyncio.run(main())
        assert shop.reports.end("s1@1").phase is MERGED
        assert shop.reports.end("s2@1").phase is MERGED
