"""A slice in review goes on when its branch has come to main, by whatever way, or when somebody says so."""

from __future__ import annotations

import signal

from tests.e2e.desk import Desk, end, until

PLAN = """
cap = 1
[slices.first]
command = ["sh", "-c", "{work}echo https://example.org/pull/7 > $DISPATCH_DIR/pull_request"]
[slices.second]
needs = "first"
command = ["sh", "-c", "echo 2 > 2.txt"]
"""
OWN = "echo 1 > 1.txt; git add 1.txt; git commit -qm one; "


def states(desk: Desk) -> dict[str, str]:
    return {each["id"]: each["state"] for each in desk.document("list")["slices"]}


def test_who_waits_for_a_review_goes_on_once_main_has_its_branch(desk: Desk) -> None:
    process = desk.start("run", desk.plan(PLAN.format(work=OWN)), "--wait")
    until(lambda: "first" in desk.git("branch", "--list", "dispatch/first/1"), process)
    until(lambda: states(desk)["first"] == "in_review", process)
    desk.git("merge", "-q", "--no-ff", "-m", "Merge the review", "dispatch/first/1")
    code, out, err = end(process)
    assert (code, err) == (0, "")
    assert "2 of 2 slices merged" in out
    assert states(desk) == {"first": "merged", "second": "merged"}
    desk.check_clean()


def test_the_next_run_finds_what_was_merged_between_two(desk: Desk) -> None:
    plan = desk.plan(PLAN.format(work=OWN))
    first = desk.run("run", plan)
    assert first.returncode == 1
    assert "`run --wait`" in first.stdout
    assert "`merged first`" in first.stdout
    desk.git("merge", "-q", "--ff-only", "dispatch/first/1")
    assert desk.run("run", plan).returncode == 0
    assert states(desk) == {"first": "merged", "second": "merged"}


def test_a_branch_without_work_of_its_own_says_nothing_but_a_person_may(desk: Desk) -> None:
    """The work of such a review is elsewhere; its branch has been on main from the beginning."""
    plan = desk.plan(PLAN.format(work=""))
    assert desk.run("run", plan).returncode == 1
    assert desk.run("run", plan).returncode == 1
    assert states(desk)["first"] == "in_review"
    url = "https://example.org/pull/8"
    said = desk.ask("merged", "first", "--pull-request", url)
    assert (said.returncode, said.stdout) == (0, "first is merged\n")
    assert desk.document("explain", "first")["slice"]["pull_request_url"] == url
    again = desk.ask("merged", "first")
    assert (again.returncode, again.stdout) == (0, "first is merged\n")
    assert desk.run("run", plan).returncode == 0
    assert desk.merged() == ["second"]


def test_while_a_process_runs_the_graph_nobody_else_says_so(desk: Desk) -> None:
    process = desk.start("run", desk.plan(PLAN.format(work="")), "--wait")
    until(lambda: "first" in desk.git("branch", "--list", "dispatch/first/1"), process)
    until(lambda: states(desk)["first"] == "in_review", process)
    refused = desk.ask("merged", "first")
    assert refused.returncode == 2
    assert f"is run by pid {process.pid}" in refused.stderr
    assert end(process, signal.SIGINT)[0] == 130
