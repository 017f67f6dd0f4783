"""Looking at a stored graph, and operating on it: while a process runs it, and while none does."""

from __future__ import annotations

import json
import signal

from tests.e2e.desk import Desk, end, until

BUSY = """
cap = 1
[slices.works]
title = "It works"
urgency = "high"
hotspots = ["db"]
command = ["sh", "-c", "touch $MARKS/up; until test -e $MARKS/go; do sleep 0.05; done"]
[slices.waits]
hotspots = ["db"]
command = ["true"]
[slices.behind]
needs = ["works", "waits"]
command = ["true"]
"""


def test_an_owned_graph_is_read_undisturbed_and_not_operated_on(desk: Desk) -> None:
    process = desk.start("run", desk.plan(BUSY))
    until(desk.mark("up").exists, process)

    listed = desk.document("list")
    assert {each["id"]: each["state"] for each in listed["slices"]} == {
        "works": "running",
        "waits": "queued",
        "behind": "queued",
    }
    assert (listed["states"], listed["frontier"], listed["paused"]) == ({"queued": 2, "running": 1}, ["waits"], None)
    assert listed["owner"]["epoch"] == 1
    assert [each["id"] for each in listed["intents"]] == ["plan.works"]

    told = desk.document("explain", "waits")
    assert [(reason["code"], reason["slice"], reason["pattern"]) for reason in told["reasons"]] == [
        ("contends", "works", "db"),
        ("cap", None, None),
    ]
    assert told["cap"] == "the cap is measured by the process that runs the graph"
    assert desk.document("explain", "behind")["reasons"] == [
        {
            "code": "depends_on",
            "text": f"depends on {name}, which {does}",
            "slice": name,
            "pattern": None,
            "witness": None,
        }
        for name, does in (("works", "runs"), ("waits", "is queued"))
    ]
    words = desk.ask("explain", "works").stdout
    assert words.startswith("works is running  It works\n")
    assert "attempt 1: runs" in words
    assert "run by another process since" in desk.ask("list").stdout

    for command in ("cancel", "retry", "hold", "release"):
        refused = desk.ask(command, "waits")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"is run by pid {process.pid} since " in refused.stderr
        assert refused.stderr.count("\n") == 1
    second = desk.run("run", desk.folder / "plan.toml")
    assert (second.returncode, second.stdout) == (2, "")
    assert f"owned by another process (pid {process.pid}) since" in second.stderr

    desk.mark("go").touch()
    assert end(process)[0] == 0
    assert desk.document("list")["owner"] is None
    desk.check_clean()


def test_take_over_fences_the_run_that_owned_the_graph(desk: Desk) -> None:
    first = desk.start("run", desk.plan(BUSY))
    until(desk.mark("up").exists, first)
    second = desk.start("run", desk.folder / "plan.toml", "--take-over")
    code, _, err = end(first)
    assert (code, err.count("\n")) == (2, 1), err
    assert "was taken over by another process, which runs it now; the sessions of this one were stopped" in err
    desk.mark("go").touch()
    code, _, err = end(second)
    assert code == 0, err
    assert {each["state"] for each in desk.document("list")["slices"]} == {"merged"}
    desk.check_clean()


def test_a_graph_at_rest_is_operated_on_and_nothing_starts(desk: Desk) -> None:
    plan = desk.plan(
        '[defaults]\ncommand = ["true"]\n[slices.a]\nhold = "x"\n[slices.b]\nneeds = "a"\n[slices.bad]\n'
        'command = ["sh", "-c", "exit 9"]\nmax_attempts = 1\n'
    )
    assert desk.run("run", plan).returncode == 1
    steps = [
        (("hold", "b", "--reason", "not before lunch"), "b is queued, held: not before lunch\n"),
        (("release", "a"), "a is queued\n"),
        (("release", "a"), "a wasn't held\na is queued\n"),
        (("hold", "a"), "a is queued, held\n"),
        (("release", "a"), "a is queued\n"),
        (("retry", "bad"), "bad is queued\n"),
        (("hold", "bad", "--reason", "\x1b[31mred"), "bad is queued, held: red\n"),
        (("release", "bad"), "bad is queued\n"),
        (("cancel", "bad"), "bad is canceled\n"),
    ]
    for words, answer in steps:
        done = desk.ask(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, answer, "")
    refused = desk.run("retry", "bad")
    final = "error: 'bad' is canceled, which is final; give the work a new id\n"
    assert (refused.returncode, refused.stderr) == (2, final)
    listed = desk.document("list")
    assert {each["id"]: each["state"] for each in listed["slices"]} == {
        "a": "queued",
        "b": "queued",
        "bad": "canceled",
    }
    assert [each["blocked"] for each in listed["slices"]] == [
        None,
        {"kind": "held", "text": "held: not before lunch", "slice": None},
        None,
    ]
    assert desk.merged() == []
    text = desk.ask("explain", "a").stdout
    assert "no process runs the graph; start it with `run`" in text
    assert "rank 1: critical path 2 slices, urgency none" in text


def test_the_log_of_every_attempt_is_at_hand(desk: Desk) -> None:
    command = (
        r"""["sh", "-c", "printf 'try %s\\n\\033[31mred\\033[0m\\n' $DISPATCH_ATTEMPT; test $DISPATCH_ATTEMPT = 2"]"""
    )
    assert desk.run("run", desk.plan(f"[slices.a]\ncommand = {command}\n")).returncode == 0
    raw = "try {}\n\x1b[31mred\x1b[0m\n"
    assert desk.run("log", "a").stdout.startswith(raw.format(2))
    assert desk.ask("log", "a", "--attempt", "1").stdout.startswith(raw.format(1))
    told = desk.document("log", "a", "--attempt", "1")
    assert (told["attempt"], told["outcome"], told["log_exists"]) == (1, "closed", True)
    refused = desk.ask("log", "a", "--attempt", "3")
    assert (refused.returncode, refused.stderr) == (2, "error: slice 'a' has had 2 attempts; none has the number 3\n")


TALKS = """
[slices.talks]
command = ["sh", "-c", "echo one; until test -e $MARKS/go; do sleep 0.05; done; echo two; touch b; git add b"]
"""


def test_an_attempt_that_got_no_log_is_not_said_to_have_one(desk: Desk) -> None:
    desk.git("branch", "dispatch")  # no branch can be made below it
    done = desk.ask("run", desk.plan('[slices.a]\ncommand = ["true"]\n'))
    assert (done.returncode, "is in the way" in done.stdout, "log: " in done.stdout) == (1, True, False)
    refused = desk.ask("log", "a")
    assert refused.returncode == 2
    assert "its agent was not started, or somebody removed it; `explain` says what became of" in refused.stderr


def test_a_log_is_followed_until_its_attempt_ends(desk: Desk) -> None:
    run = desk.start("run", desk.plan(TALKS))
    until(lambda: desk.ask("log", "talks").stdout == "one\n", run)
    follower = desk.start("log", "talks", "--follow")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "one\n"
    assert follower.poll() is None
    desk.mark("go").touch()
    code, out, err = end(follower)
    assert (code, err) == (0, "")
    assert out.startswith("two\n")
    assert end(run)[0] == 0
    assert desk.ask("log", "talks", "--follow").stdout == f"one\n{out}"
    refused = desk.ask("log", "talks", "--follow", "--json")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def test_who_follows_may_leave_and_a_run_that_is_killed_leaves_nobody_waiting(desk: Desk) -> None:
    run = desk.start("run", desk.plan(TALKS))
    until(lambda: desk.ask("log", "talks").stdout == "one\n", run)
    leaving, staying = (desk.start("log", "talks", "-f") for _ in range(2))
    for follower in (leaving, staying):
        assert follower.stdout is not None
        assert follower.stdout.readline() == "one\n"
    assert end(leaving, signal.SIGINT) == (130, "", "")
    assert run.poll() is None
    run.kill()
    run.wait()
    assert end(staying) == (0, "", "")


def test_what_a_killed_run_left_is_told_as_cut_off_and_gone_on_with(desk: Desk) -> None:
    process = desk.start("run", desk.plan(BUSY))
    until(desk.mark("up").exists, process)
    process.kill()
    process.wait()
    listed = desk.document("list")
    assert listed["owner"] is None
    assert {each["state"] for each in listed["slices"]} == {"queued"}
    assert "attempt 1: lost  " in desk.ask("explain", "works").stdout
    told = desk.document("log", "works")
    assert (told["outcome"], told["ended_at"]) == ("lost", None)
    desk.mark("go").touch()
    again = desk.run("run", desk.folder / "plan.toml", "--json")
    assert again.returncode == 0, again.stderr
    assert {each["id"]: each["attempts"] for each in json.loads(again.stdout)["slices"]}["works"] == 2
    first, second = desk.document("explain", "works")["attempts"]
    assert (first["outcome"], first["ended_at"]) == ("lost", None)
    assert second["outcome"] == "merged"
    told = desk.ask("explain", "works").stdout
    assert "attempt 1: lost  " in told
    assert "for the next attempt" not in told
    desk.check_clean()


def test_wait_stays_when_nothing_can_start(desk: Desk) -> None:
    process = desk.start("run", desk.plan('[slices.a]\nhold = "x"\ncommand = ["true"]\n'), "--wait")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("graph plan-")
    assert desk.document("list")["owner"] is not None
    assert process.poll() is None
    code, out, _ = end(process, signal.SIGINT)
    assert code == 130
    assert "held      a" in out
