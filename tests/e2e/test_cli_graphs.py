"""Whose graph is whose: a graph belongs to a branch of a repository, and commands mean the one of where they are."""

from __future__ import annotations

import os
import re
import shlex
import signal
from pathlib import Path

import pytest

from tests.e2e.desk import Desk, end, until

ONE = '[slices.a]\ncommand = ["sh", "-c", "echo a > a.new"]\n'
HELD = '[slices.a]\nhold = "x"\ncommand = ["true"]\n'
FAILS = '[slices.f]\nmax_attempts = 1\ncommand = ["sh", "-c", "echo from $PWD; exit 3"]\n'
TWO = """
[slices.first]
command = ["sh", "-c", "echo 1 > first.txt"]
[slices.second]
needs = "first"
command = ["sh", "-c", "touch $MARKS/up; until test -e $MARKS/go; do sleep 0.02; done; cp first.txt second.txt"]
"""
CHANGES = ("cancel", "retry", "hold", "release")


def refusal(desk: Desk, *arguments: str | Path) -> str:
    done = desk.ask(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    return done.stderr.removeprefix("error: ").rstrip()


def another_repository(desk: Desk, name: str = "other") -> Path:
    """A clone, which knows nothing of what was run in the original."""
    folder = desk.folder / name
    desk.git("clone", "-q", str(desk.repo), str(folder))
    return folder


def stand_in(desk: Desk, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    desk.repo = folder


def test_a_run_says_into_which_branch_of_which_repository_it_merges(desk: Desk) -> None:
    desk.git("checkout", "-q", "-b", "work/here")
    assert f"\nmerges into work/here in {desk.repo}\n" in desk.ask("run", desk.plan(HELD)).stdout
    desk.git("branch", "next")
    named = desk.ask("run", desk.plan(f'main = "next"\n{HELD}', "other.toml"))
    assert f"\nmerges into next in {desk.repo}\n" in named.stdout


def test_a_graph_goes_on_only_on_the_branch_on_which_it_was_begun(desk: Desk) -> None:
    desk.git("branch", "other")
    run = desk.start("run", desk.plan(TWO))
    until(desk.mark("up").exists, run)
    assert end(run, signal.SIGINT)[0] == 130
    assert desk.merged() == ["first"]

    desk.mark("go").touch()
    desk.git("checkout", "-q", "other")
    said = refusal(desk, "run", desk.folder / "plan.toml")
    assert re.fullmatch(
        r"graph 'plan-\w{8}' merges into 'main', not into 'other'; go on with it there after: git checkout main;"
        r" or start a new one with --graph",
        said,
    )
    assert desk.git("log", "--format=%s", "other") == "first"
    desk.git("checkout", "-q", "main")
    assert desk.run("run", desk.folder / "plan.toml").returncode == 0
    assert desk.merged() == ["first", "second"]
    desk.check_clean()


def test_a_graph_begun_in_one_repository_is_not_taken_for_done_in_another(desk: Desk) -> None:
    plan = desk.plan(ONE)
    other = another_repository(desk)
    assert desk.run("run", plan, "--graph", "g1").returncode == 0
    stand_in(desk, other)
    for more in ((), ("--take-over",)):
        assert refusal(desk, "run", plan, "--graph", "g1", *more) == (
            "graph 'g1' was begun in another repository; go on with it there, or start a new one with --graph"
        )
    assert desk.git("log", "--format=%s") == "first"
    assert desk.run("run", plan, "--graph", "g2").returncode == 0
    assert (desk.repo / "a.new").exists()


def test_a_run_from_elsewhere_disturbs_no_owner(desk: Desk) -> None:
    run = desk.start("run", desk.plan(TWO), "--graph", "g1")
    until(desk.mark("up").exists, run)
    home, other = desk.repo, another_repository(desk)
    stand_in(desk, other)
    said = refusal(desk, "run", desk.folder / "plan.toml", "--graph", "g1", "--take-over")
    assert "was begun in another repository" in said
    stand_in(desk, home)
    desk.mark("go").touch()
    assert end(run)[0] == 0


def test_a_graph_of_which_nothing_was_started_may_still_go_anywhere(desk: Desk) -> None:
    assert desk.ask("run", desk.plan(HELD), "--graph", "g1").returncode == 1
    stand_in(desk, another_repository(desk))
    assert desk.ask("run", desk.folder / "plan.toml", "--graph", "g1").returncode == 1
    assert [each["branch"] for each in desk.document("graphs")["graphs"]] == ["main"]


def test_a_work_tree_of_a_repository_has_its_graphs(desk: Desk) -> None:
    assert desk.ask("run", desk.plan(HELD), "--graph", "g1").returncode == 1
    desk.git("worktree", "add", "-q", str(desk.folder / "linked"), "-b", "side")
    stand_in(desk, desk.folder / "linked")
    assert desk.document("list")["graph"] == "g1"
    assert "merges into 'main', not into 'side'" in refusal(desk, "run", desk.folder / "plan.toml", "--graph", "g1")


def test_the_graph_of_where_one_stands_is_meant_whatever_its_name(desk: Desk) -> None:
    home, other = desk.repo, another_repository(desk)
    assert desk.ask("run", desk.plan(HELD), "--graph", "mine").returncode == 1
    assert desk.ask("run", desk.plan(HELD), "--graph", "theirs", "--repo", other).returncode == 1
    for folder, name in ((home, "mine"), (other, "theirs"), (other / ".git", "theirs")):
        stand_in(desk, folder)
        assert desk.document("list")["graph"] == name
        assert desk.document("explain", "a")["graph"] == name
    stand_in(desk, home)
    assert desk.ask("release", "a", "--repo", other).returncode == 0
    holds = [desk.document("explain", "a", "--graph", name)["slice"]["hold"] for name in ("mine", "theirs")]
    assert holds == ["x", None]


def test_where_no_graph_belongs_or_several_do_one_must_be_named(desk: Desk) -> None:
    home, other = desk.repo, another_repository(desk)
    plan = desk.plan(HELD)
    assert desk.ask("run", plan, "--graph", "one").returncode == 1
    stand_in(desk, other)
    for command in (("list",), *((each, "a") for each in ("explain", "log", *CHANGES))):
        said = refusal(desk, *command)
        assert said.startswith("no graph in sqlite:///")
        assert said.endswith(
            f" belongs to {other}: `run` a plan there, name another repository with --repo,"
            " or a graph with --graph: one"
        )
    stand_in(desk, home)
    assert desk.ask("run", plan, "--graph", "two").returncode == 1
    for command in (("list",), *((each, "a") for each in ("explain", "log", *CHANGES))):
        assert refusal(desk, *command) == f"{home} has several graphs; name one with --graph: one, two"
    assert desk.document("list", "--graph", "two")["graph"] == "two"


def test_outside_of_any_repository_the_only_graph_is_read_and_none_changed(desk: Desk) -> None:
    home = desk.repo
    plan = desk.plan(HELD)
    assert desk.ask("run", plan, "--graph", "one").returncode == 1
    stand_in(desk, desk.folder / "outside")
    assert desk.document("list")["graph"] == "one"
    assert desk.document("explain", "a")["graph"] == "one"
    wanted = (
        f"{desk.repo} is in no git repository: name the one that is meant with --repo, or the graph with --graph: one"
    )
    for command in CHANGES:
        assert refusal(desk, command, "a") == wanted
    assert desk.ask("release", "a", "--repo", home).stdout == "a is queued\n"
    assert desk.ask("hold", "a", "--graph", "one").returncode == 0
    assert desk.ask("run", plan, "--graph", "two", "--repo", home).returncode == 1
    assert refusal(desk, "list") == f"{wanted}, two"
    assert f"{desk.folder}/nowhere is no folder" in refusal(desk, "list", "--repo", desk.folder / "nowhere")
    assert "is not in a git repository" in refusal(desk, "list", "--repo", desk.repo)


def test_a_folder_that_is_gone_is_in_no_repository(desk: Desk) -> None:
    assert desk.ask("run", desk.plan(HELD), "--graph", "one").returncode == 1
    stand_in(desk, desk.folder / "gone")
    listed = desk.ask("list", "--repo", desk.folder / "repo")
    done = desk.start("list", preexec_fn=lambda: os.rmdir(desk.folder / "gone"))  # noqa: PTH106
    assert end(done) == (0, listed.stdout, "")


def test_a_repository_that_git_will_not_open_is_not_taken_for_none(desk: Desk) -> None:
    assert desk.ask("run", desk.plan(HELD), "--graph", "one").returncode == 1
    (desk.repo / ".git" / "config").write_text("[core\n")
    assert "bad config" in refusal(desk, "list")


def test_a_plans_name_is_short_for_its_graph_here(desk: Desk) -> None:
    home, other = desk.repo, another_repository(desk)
    plan = desk.plan(HELD, "two.toml")
    assert desk.ask("run", plan).returncode == 1
    assert desk.ask("run", desk.plan(HELD, "twofold.toml")).returncode == 1
    assert desk.ask("run", plan, "--repo", other).returncode == 1
    names = {}
    for folder in (home, other):
        stand_in(desk, folder)
        names[folder] = desk.document("list", "--graph", "two")["graph"]
        assert re.fullmatch(r"two-[0-9a-f]{8}", names[folder])
        assert desk.document("explain", "a", "--graph", "two")["graph"] == names[folder]
    assert len(set(names.values())) == 2
    assert desk.ask("release", "a", "--graph", "two").returncode == 0
    holds = [desk.document("explain", "a", "--graph", names[folder])["slice"]["hold"] for folder in (home, other)]
    assert holds == ["x", None]
    assert f"there is no graph 'tw' in {desk.document('graphs')['store']}; name one with" in refusal(
        desk, "list", "--graph", "tw"
    )
    assert desk.ask("run", plan, "--graph", "two").returncode == 1
    assert desk.document("list", "--graph", "two")["graph"] == "two", "the very name comes first"


def test_a_log_is_never_that_of_another_repository(desk: Desk) -> None:
    home, other = desk.repo, another_repository(desk)
    plan = desk.plan(FAILS)
    assert desk.run("run", plan, "--graph", "one").returncode == 1
    assert desk.run("run", plan, "--graph", "two", "--repo", other).returncode == 1
    assert desk.ask("log", "f").stdout.startswith(f"from {home}/.git/")
    assert refusal(desk, "log", "f", "--graph", "two") == (
        f"graph 'two' was not run in {home}; name its repository with --repo, or another graph with --graph"
    )
    assert desk.ask("log", "f", "--graph", "two", "--repo", other).stdout.startswith(f"from {other}/.git/")
    assert desk.ask("log", "f", "--repo", other).stdout.startswith(f"from {other}/.git/")
    stand_in(desk, desk.folder / "outside")
    assert refusal(desk, "log", "f", "--graph", "two") == (
        "the logs of graph 'two' are in the repository it was run in; name that one with --repo"
    )


NEEDS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    ((), ()),
    (("second graph",), ("--graph",)),
    (("another store",), ("--store",)),
    (("outside",), ("--repo",)),
    (("second graph", "another store", "outside"), ("--graph", "--store", "--repo")),
]


@pytest.mark.parametrize(("circumstances", "needed"), NEEDS)
def test_the_commands_that_a_run_advises_mean_its_graph(
    desk: Desk, circumstances: tuple[str, ...], needed: tuple[str, ...]
) -> None:
    home, plan = desk.repo, desk.plan(FAILS)
    options = ["--store", f"sqlite:///{desk.folder}/a store.db"] if "another store" in circumstances else []
    if "second graph" in circumstances:
        assert desk.ask("run", desk.plan(HELD), "--graph", "first", *options).returncode == 1
        plan = desk.plan(FAILS)
    if "outside" in circumstances:
        stand_in(desk, desk.folder / "out side")
        options += ["--repo", str(home)]
    told = desk.run("run", plan, "--graph", "it is", *options).stdout
    advised = re.search(
        r"see `(log f.*)`; mend the plan, or let `(retry f.*)` queue it again, and `run` goes on\n", told
    )
    assert advised is not None
    log, retry = (shlex.split(words) for words in advised.groups())
    assert tuple(word for word in log if word.startswith("--")) == needed
    assert desk.ask(*log).stdout.startswith(f"from {home}/.git/")
    assert desk.ask(*retry).stdout == "f is queued\n"


def test_a_store_that_the_environment_names_need_not_be_named_again(desk: Desk) -> None:
    url = f"sqlite:///{desk.folder}/other.db"
    told = desk.run("run", desk.plan(FAILS), DISPATCH_STORE=url)
    assert "see `log f`; mend the plan, or let `retry f` queue" in told.stdout


def test_no_command_is_advised_that_could_not_reach_the_graph(desk: Desk) -> None:
    told = desk.run("run", desk.plan(FAILS), "--store", "memory:").stdout
    assert "exit 3" in told
    assert "retry" not in told


def test_the_graphs_of_a_store_are_told_with_what_belongs_here(desk: Desk) -> None:
    home, other = desk.repo, another_repository(desk)
    assert desk.run("run", desk.plan(FAILS), "--graph", "done", "--repo", other).returncode == 1
    run = desk.start("run", desk.plan(TWO), "--graph", "under way")
    until(desk.mark("up").exists, run)

    told = desk.document("graphs")
    assert told["store"] == f"sqlite:///{desk.state}/slice-dispatch/graphs.db"
    assert told["repository"] == str(home)
    done, under_way = told["graphs"]
    assert done == {"graph": "done", "belongs_here": False, "branch": None, "owner": None, "states": {"failed": 1}}
    assert under_way["owner"]["epoch"] == 1
    assert {key: under_way[key] for key in ("graph", "belongs_here", "branch", "states")} == {
        "graph": "under way",
        "belongs_here": True,
        "branch": "main",
        "states": {"running": 1, "merged": 1},
    }
    lines = desk.ask("graphs").stdout.splitlines()
    assert lines[0] == f"2 graphs in {told['store']}, 1 of {home}"
    assert re.fullmatch(r" +done +1 failed", lines[1])
    assert re.fullmatch(r" +here under way +1 running  1 merged  into main  running since \S+Z", lines[2])

    desk.mark("go").touch()
    assert end(run)[0] == 0
    there = desk.document("graphs", "--repo", other)
    assert [each["graph"] for each in there["graphs"] if each["belongs_here"]] == ["done"]
    stand_in(desk, desk.folder / "outside")
    outside = desk.document("graphs")
    assert outside["repository"] is None
    assert not any(each["belongs_here"] for each in outside["graphs"])
    assert desk.ask("graphs").stdout.splitlines()[0] == f"2 graphs in {told['store']}"
