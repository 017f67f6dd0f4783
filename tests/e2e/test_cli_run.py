"""`run`, as it is typed."""

from __future__ import annotations

import json
import os
import pty
import re

import pytest

from tests.e2e.desk import Desk

CHAIN = """
cap = 2
[slices.one]
title = "Write one"
command = ["sh", "-c", "echo 1 > one.txt"]
[slices.two]
needs = "one"
command = ["sh", "-c", "test -f one.txt && echo 2 > two.txt"]
[slices.side]
command = ["sh", "-c", "echo side > side.txt"]
"""

MIXED = """
cap = 1
[slices.good]
command = ["true"]
urgency = "high"
[slices.bad]
command = ["sh", "-c", "printf '\\\\033]0;evil\\\\007[red]no luck[/red]\\\\n'; test -f $MARKS/luck"]
max_attempts = 1
[slices.behind]
needs = "bad"
command = ["true"]
[slices.absent]
command = ["no-such-agent"]
[slices.later]
hold = "after the release"
command = ["true"]
"""


def test_a_plan_is_run_into_main_and_run_again_has_nothing_to_do(desk: Desk) -> None:
    plan = desk.plan(CHAIN)
    done = desk.run("run", plan)
    assert (done.returncode, done.stderr) == (0, "")
    merged = desk.merged()
    assert sorted(merged) == ["one", "side", "two"]
    assert merged.index("one") < merged.index("two")
    assert (desk.repo / "two.txt").read_text() == "2\n"
    desk.check_clean()
    assert "\x1b" not in done.stdout
    for words in ("graph plan-", "3 slices, 3 new", "cap 2, set by hand", "started    one", "merged     two"):
        assert words in done.stdout
    assert "3 of 3 slices merged" in done.stdout

    again = desk.run("run", plan)
    assert again.returncode == 0
    assert "3 slices, 0 new" in again.stdout
    assert "no session was needed" in again.stdout

    longer = desk.plan(CHAIN + '[slices.three]\nneeds = ["two"]\ncommand = ["sh", "-c", "cp two.txt three.txt"]\n')
    third = desk.run("run", longer)
    assert third.returncode == 0
    assert "4 slices, 1 new" in third.stdout
    assert desk.merged()[-1] == "three"


def test_what_did_not_merge_is_told_with_its_reason_and_can_be_retried(desk: Desk) -> None:
    plan = desk.plan(MIXED)
    done = desk.run("run", plan)
    assert (done.returncode, done.stderr) == (1, "")
    assert "\x1b" not in done.stdout
    rows = [line.split() for line in done.stdout.split("merged in ")[1].splitlines()]
    told = {row[1]: row[0] for row in rows if len(row) > 1}
    assert told["good"] == "merged"
    assert (told["bad"], told["absent"], told["behind"], told["later"]) == ("failed", "failed", "stranded", "held")
    assert "exit 1: [red]no luck[/red]" in done.stdout
    assert "no-such-agent" in done.stdout
    assert "needs bad, which failed" in done.stdout
    assert "held: after the release" in done.stdout
    log = re.search(r"log: (\S+/logs/[0-9a-f]{16}/bad/1\.log)", done.stdout)
    assert log is not None
    assert desk.ask("log", "bad").stdout.endswith("[red]no luck[/red]\n")

    desk.mark("luck").touch()
    for words in (("retry", "bad"), ("cancel", "absent"), ("release", "later")):
        said = desk.ask(*words)
        assert (said.returncode, said.stderr) == (0, "")
    again = desk.run("run", plan)
    assert again.returncode == 1
    assert "4 of 5 slices merged" in again.stdout
    assert "canceled" in again.stdout
    desk.check_clean()


def test_json_goes_to_stdout_alone_and_progress_to_stderr(desk: Desk) -> None:
    done = desk.run("run", desk.plan(CHAIN), "--json", "--cap", "1")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["complete"] is True
    assert document["cap"] == {"places": 1, "derivation": "cap 1, set by hand"}
    assert (document["sessions"], document["peak"]) == (3, 1)
    assert [(each["id"], each["outcome"]) for each in document["slices"]] == [
        ("one", "merged"),
        ("two", "merged"),
        ("side", "merged"),
    ]
    assert document["predicted"]["makespan_s"] > 0
    assert "started    one" in done.stderr


def test_without_a_cap_the_host_is_measured(desk: Desk) -> None:
    done = desk.run("run", desk.plan('[slices.a]\ncommand = ["true"]\n'))
    assert done.returncode == 0
    assert re.search(r"cores .* = cap \d+", done.stdout)


def test_the_urgent_slice_starts_first(desk: Desk) -> None:
    plan = '[defaults]\ncommand = ["true"]\n[slices.a]\n[slices.b]\nurgency = "urgent"\n[slices.c]\nurgency = "low"\n'
    done = desk.run("run", desk.plan(plan), "--cap", "1")
    assert re.findall(r"started +(\w)", done.stdout) == ["b", "c", "a"]


def test_two_repositories_never_share_a_graph_by_accident(desk: Desk) -> None:
    plan = desk.plan('[slices.a]\ncommand = ["true"]\n')
    assert desk.run("run", plan).returncode == 0
    other = desk.folder / "other"
    desk.git("clone", "-q", str(desk.repo), str(other))
    there = desk.run("run", plan, "--repo", other)
    assert "1 slice, 1 new" in there.stdout
    refused = desk.ask("list", "--store", f"sqlite:///{desk.state}/slice-dispatch/graphs.db")
    assert refused.returncode == 0, "the graph of the repository we are in is the one that is meant"
    names = {line.split()[1] for line in (refused.stdout.splitlines()[0], there.stdout.splitlines()[0])}
    assert len(names) == 2


def test_a_review_ends_the_run_and_excludes_its_contender(desk: Desk) -> None:
    plan = """
    cap = 2
    [defaults]
    hotspots = ["db"]
    [slices.first]
    command = ["sh", "-c", "echo https://example.org/pull/7 > $DISPATCH_DIR/pull_request"]
    urgency = "high"
    [slices.second]
    command = ["true"]
    """
    done = desk.run("run", desk.plan(plan))
    assert done.returncode == 1
    assert re.search(r"in review +first .*https://example.org/pull/7", done.stdout)
    assert re.search(r"excluded +second .*contends with first, which is in review", done.stdout)


def test_a_mended_plan_gives_what_failed_another_chance(desk: Desk) -> None:
    plan = '[slices.a]\nmax_attempts = 1\ncommand = ["{}"]\n[slices.b]\nneeds = ["a"]\ncommand = ["{}"]\n'
    assert desk.run("run", desk.plan(plan.format("false", "false"))).returncode == 1
    done = desk.run("run", desk.plan(plan.format("true", "true")))
    assert (done.returncode, done.stderr) == (0, "")
    assert "mended, and queued: a, b" in done.stdout
    assert "2 of 2 slices merged" in done.stdout


def test_a_plan_with_other_edges_is_refused_for_what_is_unfinished(desk: Desk) -> None:
    plan = '[slices.a]\ncommand = ["true"]\n[slices.b]\nhold = "x"\n{}command = ["true"]\n'
    assert desk.run("run", desk.plan(plan.format(""))).returncode == 1
    done = desk.run("run", desk.plan(plan.format('needs = ["a"]\n')))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: slice 'b' is in the graph already with another depends_on, ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("variables", "styled"), [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)]
)
def test_a_terminal_gets_a_live_view_unless_it_wants_none(desk: Desk, variables: dict[str, str], styled: bool) -> None:
    desk.env |= {"TERM": "xterm"} | variables
    ours, theirs = pty.openpty()
    process = desk.start("run", desk.plan(CHAIN), stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=60) == 0
    text = shown.decode()
    assert "3 of 3 slices merged" in text
    assert ("\x1b[?25l" in text, "\x1b[?25h" in text) == (styled, styled), "the cursor is hidden, and comes back"
    assert ("\x1b" in text) == styled
