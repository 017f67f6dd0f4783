"""Corners of session reports, commands, restarts and refusals."""

from __future__ import annotations

import pytest

from tests.conformance.corner import PAUSE, PREEMPTED, RESTART, RESUME, URL, Corner, do, new, report, urgent

CORNERS = [
    # Reports.
    Corner(
        "a session that fails while a cancel waits has failed",
        [new("a"), do("cancel", "a"), report("a", "failed", error="broke")],
        {"a": {"state": "failed", "canceling": False}},
    ),
    Corner(
        "work that merged while a cancel waited is merged",
        [new("a"), do("cancel", "a"), report("a", "merged")],
        {"a": {"state": "merged", "canceling": False}},
    ),
    Corner(
        "a cancel wins over a pull request",
        [new("a"), do("cancel", "a"), report("a", "closed", pull_request_url=URL)],
        {"a": {"state": "canceled", "pull request": URL}},
    ),
    Corner(
        "a session that is at work leaves a cancel pending",
        [new("a"), do("cancel", "a"), report("a", "running", pull_request_url=URL)],
        {"a": {"state": "running", "canceling": True, "pull request": URL}},
    ),
    Corner(
        "a session that stops without being asked is canceled",
        [new("a"), report("a", "canceled")],
        {"a": {"state": "canceled"}, "asked to stop": []},
    ),
    Corner(
        "a pull request named while at work counts at the close",
        [new("a"), report("a", "running", pull_request_url=URL), report("a", "closed")],
        {"a": {"state": "in_review", "pull request": URL, "closes": 0}},
    ),
    Corner(
        "a pull request outlives preemption",
        [*PREEMPTED, report("a", "running", pull_request_url=URL), report("a", "canceled"),
         report("b", "merged"), report("a", "closed")],
        {"a": {"state": "in_review", "attempt": 2, "pull request": URL}},
    ),
    Corner(
        "a pull request outlives a restart and a later name replaces it",
        [new("a"), report("a", "running", pull_request_url=URL), RESTART,
         report("a", "running", pull_request_url=URL + "2")],
        {"a": {"state": "running", "attempt": 2, "pull request": URL + "2"}},
    ),
    Corner(
        "a retry forgets the pull request",
        [new("a"), report("a", "closed", pull_request_url=URL), do("retry", "a")],
        {"a": {"state": "running", "attempt": 2, "pull request": ""}},
    ),
    Corner(
        "after a retry a close counts again",
        [new("a"), report("a", "closed", pull_request_url=URL), do("retry", "a"), report("a", "closed")],
        {"a": {"state": "running", "attempt": 3, "closes": 1}},
    ),
    Corner(
        "a preempted slice that closes with a pull request is in review",
        [*PREEMPTED, report("a", "closed", pull_request_url=URL)],
        {"a": {"state": "in_review"}, "b": {"state": "running"}},
    ),
    Corner(
        "a preempted slice that closes counts no close",
        [new("a", max_attempts=1), new("b"), urgent("b"), report("a", "closed")],
        {"a": {"state": "queued", "closes": 0}, "b": {"state": "running"}},
    ),
    Corner(
        "a preempted slice that merges is merged",
        [*PREEMPTED, report("a", "merged")],
        {"a": {"state": "merged"}, "b": {"state": "running"}, "room": []},
    ),
    Corner(
        "a preempted slice that fails has failed",
        [*PREEMPTED, report("a", "failed", error="broke")],
        {"a": {"state": "failed"}, "b": {"state": "running"}},
    ),
    Corner(
        "a preempted slice whose cancel waits is canceled",
        [*PREEMPTED, do("cancel", "a"), report("a", "canceled")],
        {"a": {"state": "canceled"}, "b": {"state": "running"}, "asked to stop": ["a@1"]},
    ),
    Corner(
        "a report about an earlier attempt changes nothing",
        [new("a"), report("a", "closed"), report("a", "merged", attempt=1)],
        {"a": {"state": "running", "attempt": 2, "closes": 1}},
    ),
    Corner(
        "a slice in review holds no session, so nothing is heard of it",
        [new("a"), report("a", "closed", pull_request_url=URL), report("a", "merged", pull_request_url=URL + "2")],
        {"a": {"state": "in_review", "pull request": URL}},
    ),
    Corner(
        "the same report twice counts once",
        [new("a"), report("a", "closed", attempt=1), report("a", "closed", attempt=1)],
        {"a": {"state": "running", "attempt": 2, "closes": 1}},
    ),
    Corner(
        "a report about nobody changes nothing",
        [new("a"), report("nobody", "merged", attempt=1)],
        {"a": {"state": "running"}},
    ),
    # Commands.
    Corner(
        "merged by hand, a session that was asked to stop is not asked again",
        [new("a"), do("cancel", "a"), do("merge", "a")],
        {"a": {"state": "merged", "canceling": False}, "asked to stop": ["a@1"]},
    ),
    Corner(
        "merged by hand, a preempted session is not asked again",
        [*PREEMPTED, do("merge", "a")],
        {"a": {"state": "merged"}, "b": {"state": "running"}, "asked to stop": ["a@1"]},
    ),
    Corner(
        "merged by hand, a session is asked to stop, and counts no more",
        [new("a"), new("b"), do("merge", "a"), do("merge", "a"), report("a", "failed", error="late")],
        {"a": {"state": "merged"}, "b": {"state": "running"}, "asked to stop": ["a@1"]},
    ),
    Corner(
        "a cancel asks once",
        [new("a"), do("cancel", "a"), do("cancel", "a")],
        {"a": {"state": "running", "canceling": True}, "asked to stop": ["a@1"]},
    ),
    Corner(
        "a canceled predecessor keeps its dependents waiting",
        [PAUSE, new("a"), new("b", depends_on=["a"]), do("cancel", "a"), RESUME],
        {"a": {"state": "canceled"}, "b": {"state": "queued"}, "frontier": []},
    ),
    Corner(
        "merged by hand before its predecessors, and its dependents start",
        [PAUSE, new("a"), new("b", depends_on=["a"]), new("c", depends_on=["b"]), do("merge", "b"), RESUME],
        {"a": {"state": "running", "critical path": 1}, "b": {"state": "merged"}, "frontier": ["c"]},
    ),
    Corner(
        "a hold on a running slice waits for its return to the queue",
        [new("a"), do("hold", "a", reason="one"), do("hold", "a", reason="another"), report("a", "closed")],
        {"a": {"state": "queued", "hold": "one", "rank": 1}},
    ),
    Corner(
        "a hold outlives a retry",
        [new("a"), do("hold", "a"), report("a", "failed", error="broke"), do("retry", "a")],
        {"a": {"state": "queued", "hold": "case"}},
    ),
    Corner(
        "what is under way ends while paused, and nothing starts",
        [new("a"), new("b"), PAUSE, urgent("b"), do("cancel", "a"), report("a", "canceled")],
        {"a": {"state": "canceled"}, "b": {"state": "queued"}, "room": []},
    ),
    Corner("a running slice is not retried", [new("a"), do("retry", "a")], {}, {"error": "InvalidCommand"}),
    Corner(
        "a merged slice answers a merge again",
        [new("a"), do("merge", "a"), do("merge", "a")],
        {"a": {"state": "merged"}},
    ),
    # Restarts.
    Corner(
        "a restart counts no close",
        [new("a", max_attempts=1), RESTART, RESTART],
        {"a": {"state": "running", "attempt": 3, "closes": 0}},
    ),
    Corner(
        "a cancel that waits at a restart is done",
        [new("a"), do("cancel", "a"), RESTART],
        {"a": {"state": "canceled", "canceling": False}, "asked to stop": ["a@1"]},
    ),
    Corner(
        "after a restart the urgent slice starts first and nobody stands in its way",
        [*PREEMPTED, RESTART],
        {"a": {"state": "queued"}, "b": {"state": "running"}, "room": [], "asked to stop": ["a@1"]},
    ),
    Corner(
        "after a restart a session may be asked to stop again",
        [new("a"), new("b"), urgent("b"), do("hold", "b"), RESTART, do("release", "b")],
        {"a": {"state": "preempted", "attempt": 2}, "room": ["b"], "asked to stop": ["a@1", "a@2"]},
    ),
    # Refusals, and which comes first.
    Corner(
        "a bad field is told before a taken id",
        [new("a"), new("a", paths=["/etc"])],
        {},
        {"error": "InvalidSlice"},
    ),
    Corner(
        "a taken id is told before an unknown edge",
        [new("a"), do("cancel", "a"), report("a", "canceled"), new("a", depends_on=["absent"])],
        {},
        {"error": "SliceExists"},
    ),
    Corner(
        "itself is told before a later unknown edge",
        [new("a", depends_on=["a", "absent"])],
        {},
        {"error": "Cycle"},
    ),
    Corner(
        "an unknown depends_on is told before itself as contender",
        [new("a", depends_on=["absent"], contends=["a"])],
        {},
        {"error": "UnknownSlice"},
    ),
    Corner(
        "an unknown contender is told before a finished depends_on",
        [PAUSE, new("a"), do("cancel", "a"), new("b", depends_on=["a"], contends=["absent"])],
        {},
        {"error": "UnknownSlice"},
    ),
    Corner(
        "a required_by that runs is told before a circle",
        [new("a"), new("b", depends_on=["a"]), new("c", depends_on=["b"], required_by=["a"])],
        {},
        {"error": "SliceFinished"},
    ),
    Corner(
        "a circle through a merged slice is a circle",
        [PAUSE, new("a"), new("b", depends_on=["a"]), do("merge", "b"), new("c", depends_on=["b"], required_by=["a"])],
        {},
        {"error": "Cycle"},
    ),
    Corner(
        "a failed slice may come to wait for another",
        [new("a"), report("a", "failed", error="broke"), new("b", required_by=["a"]), do("retry", "a")],
        {"a": {"state": "queued"}, "b": {"state": "running", "critical path": 2}, "frontier": []},
    ),
    Corner(
        "a finished contender and a merged predecessor are no hindrance",
        [new("a"), report("a", "merged"), new("b", depends_on=["a"], contends=["a"])],
        {"b": {"state": "running"}},
    ),
    Corner(
        "one bad slice keeps the whole batch out",
        [{"do": "enqueue_many", "slices": [new("a", depends_on=["b"]), new("b"), new("c", contends=["absent"])]}],
        {"slices": {}},
        {"error": "UnknownSlice"},
    ),
    Corner(
        "a batch comes in any order, and keeps the order given",
        [{"do": "enqueue_many", "slices": [new("a", depends_on=["b"]), new("b"), new("c", required_by=["b"])]}],
        {"a": {"critical path": 1, "declared order": 1}, "b": {"critical path": 2},
         "c": {"critical path": 3, "state": "running"}},
    ),
    Corner(
        "a batch may not run in a circle",
        [{"do": "enqueue_many", "slices": [
            new("a", depends_on=["b"]), new("b"), new("c", depends_on=["a"], required_by=["b"])]}],
        {"slices": {}},
        {"error": "Cycle"},
    ),
]  # fmt: skip


@pytest.mark.parametrize("corner", CORNERS, ids=lambda corner: corner.name)
def test_service(corner: Corner) -> None:
    corner.check_service()


@pytest.mark.parametrize("corner", CORNERS, ids=lambda corner: corner.name)
def test_model(corner: Corner) -> None:
    corner.check_model()
