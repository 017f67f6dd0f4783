"""Corners of intents, rank, preemption and routing."""

from __future__ import annotations

import pytest

from tests.conformance.corner import (
    LATE,
    PAUSE,
    PREEMPTED,
    RESUME,
    SOON,
    URL,
    Corner,
    declare,
    do,
    measure,
    new,
    report,
    route,
    urgent,
)

CORNERS = [
    # Intents and rank.
    Corner(
        "an intent reaches a failed slice and one in review",
        [new("a", hotspots=["x"]), report("a", "failed", error="broke"), new("b", paths=["x/y"]),
         report("b", "closed", pull_request_url=URL), declare("i", terms=["X"])],
        {"a": {"urgency": "normal"}, "b": {"urgency": "normal"}},
        {"attached": ["a", "b"]},
    ),
    Corner(
        "an intent attached to a failed slice preempts for it after a retry",
        [new("a"), report("a", "failed", error="broke"), new("b"), urgent("a"), do("retry", "a")],
        {"a": {"state": "queued"}, "b": {"state": "preempted"}, "room": ["a"]},
    ),
    Corner(
        "of a chain of intents only the last is left",
        [PAUSE, new("a"), new("b"), declare("i", "b", "urgent"), declare("j", "b", "high", supersedes="i"),
         declare("k", "b", "low", supersedes="j")],
        {"intents": {"k": ["b"]}, "b": {"urgency": "low", "rank": 1}, "a": {"urgency": None, "rank": 2}},
        {"attached": ["b"]},
    ),
    Corner(
        "what was superseded is not registered any more",
        [new("a"), declare("i", "a"), declare("j", "a", supersedes="i"), {**declare("i", "a"), "do": "reprioritize"}],
        {"intents": {"j": ["a"]}},
        {"error": "UnknownIntent"},
    ),
    Corner(
        "declared again, an intent leaves what it was attached to",
        [PAUSE, new("a"), new("b"), declare("i", "a"), declare("i", "b")],
        {"intents": {"i": ["b"]}, "a": {"urgency": None}},
        {"attached": ["b"]},
    ),
    Corner(
        "what no longer is urgent leaves the room",
        [*PREEMPTED, declare("urgent-b", "b", "high"), report("a", "canceled")],
        {"room": [], "b": {"state": "running"}, "a": {"state": "queued"}},
    ),
    Corner(
        "a deadline does not rank",
        [PAUSE, new("a"), new("b"), declare("i", "a", deadline=LATE), declare("j", "b", deadline=SOON)],
        {"frontier": ["a", "b"]},
        {"attached": ["b"]},
    ),
    Corner(
        "the lowest urgency ranks above none, and a longer way above the highest",
        [PAUSE, new("a"), new("b"), new("c"), new("d", depends_on=["c"]), declare("i", "b", "low"), urgent("d")],
        {"frontier": ["c", "b", "a"]},
        {"attached": ["d"]},
    ),
    Corner(
        "the strongest of the urgencies counts",
        [PAUSE, new("a"), new("b"), declare("i", "b", "high"), declare("j", "b", "low"), declare("k", "a", "normal")],
        {"frontier": ["b", "a"], "b": {"urgency": "high", "intents": ["i", "j"]}},
        {"attached": ["a"]},
    ),
    Corner(
        "a later slice gets no earlier intent",
        [PAUSE, declare("i", terms=["x"]), declare("j", "a", "urgent"), new("a", hotspots=["x"])],
        {"a": {"urgency": None}, "intents": {"i": [], "j": []}},
    ),
    Corner(
        "of several terms the slices that cover the most are meant",
        [PAUSE, new("a", paths=["web/**"], hotspots=["Auth"]), new("b", paths=["web/auth.ts"]), new("c", paths=["web"]),
         declare("i", terms=[" WEB", "auth ", "", "auth", "nowhere"])],
        {},
        {"attached": ["a", "b"]},
    ),
    # Preemption.
    Corner(
        "no slice is asked to stop for one that ranks below it",
        [new("a"), new("b", depends_on=["a"]), new("c"), urgent("c")],
        {"a": {"state": "running"}, "c": {"state": "queued"}, "room": [], "asked to stop": []},
    ),
    Corner(
        "an equally urgent slice that came earlier stays",
        [new("a"), new("b"), urgent("a"), urgent("b")],
        {"a": {"state": "running"}, "room": [], "asked to stop": []},
    ),
    Corner(
        "a contender and nobody else makes room when that frees the place",
        [new("a"), new("b", hotspots=["x"]), new("c", hotspots=["x"]), urgent("c")],
        {"a": {"state": "running"}, "b": {"state": "preempted"}, "room": ["c"], "asked to stop": ["b@1"]},
        {"attached": ["c"]},
        cores=2,
    ),
    Corner(
        "the lowest-ranked makes room",
        [new("a"), new("b"), declare("i", "b", "low"), new("c"), urgent("c")],
        {"a": {"state": "preempted"}, "b": {"state": "running"}, "room": ["c"]},
        {"attached": ["c"]},
        cores=2,
    ),
    Corner(
        "nobody makes room where the cap fell under what runs",
        [new("a"), new("b"), new("c"), measure(1), urgent("c")],
        {"a": {"state": "running"}, "b": {"state": "running"}, "room": []},
        {"attached": ["c"]},
        cores=2,
    ),
    Corner(
        "nobody makes room for what a slice in review excludes",
        [new("a", hotspots=["x"]), report("a", "closed", pull_request_url=URL), new("b"), new("c", hotspots=["x"]),
         urgent("c")],
        {"b": {"state": "running"}, "room": []},
        {"attached": ["c"]},
    ),
    Corner(
        "what comes into review takes an urgent contender out of the room",
        [new("a", hotspots=["x"]), new("b", hotspots=["x"]), urgent("b"),
         report("a", "closed", pull_request_url=URL), new("c")],
        {"b": {"state": "queued"}, "c": {"state": "running"}, "room": []},
    ),
    Corner(
        "two urgent contenders share no room",
        [new("a"), new("b"), PAUSE, new("c", hotspots=["x"]), new("d", hotspots=["x"]), urgent("c"), urgent("d"),
         RESUME],
        {"a": {"state": "running"}, "b": {"state": "preempted"}, "room": ["c"], "asked to stop": ["b@1"]},
        cores=2,
    ),
    Corner(
        "places that are kept for the room are nobody else's",
        [new("p"), new("s"), new("u", contends=["p"]), new("v", contends=["p"]), measure(3), urgent("u"), urgent("v"),
         new("w")],
        {"p": {"state": "preempted"}, "w": {"state": "queued"}, "room": ["u", "v"], "asked to stop": ["p@1"]},
        cores=2,
    ),
    Corner(
        "what joins the room takes a free place at once",
        [new("p"), new("s"), new("u", contends=["p"]), new("v", contends=["p"]), measure(3), urgent("u"), urgent("v"),
         new("w"), urgent("w")],
        {"s": {"state": "preempted"}, "w": {"state": "running"}, "room": ["u", "v"], "asked to stop": ["p@1", "s@1"]},
        {"attached": ["w"]},
        cores=2,
    ),
    # Routing.
    Corner(
        "a message for a running slice steers it",
        [new("a"), route("a")],
        {"messages": [("a@1", "please")], "intents": {"routed": ["a"]}},
        {"decision": "steer", "slice": "a"},
    ),
    Corner(
        "a preempted slice is not steered",
        [*PREEMPTED, route("a")],
        {"messages": [], "intents": {"urgent-b": ["b"], "routed": ["a"]}},
        {"decision": "queue", "slice": "a"},
    ),
    Corner(
        "of equal targets the one under way is meant, then one that waits",
        [new("a", hotspots=["x"]), report("a", "merged"), new("b", hotspots=["x"]),
         report("b", "failed", error="broke"), new("c", hotspots=["x"]), route(terms=["x"])],
        {"intents": {"routed": ["c"]}},
        {"decision": "steer", "slice": "c"},
    ),
    Corner(
        "a slice that covers more terms is meant, though it has merged, and nothing is registered",
        [new("a", hotspots=["x", "y"]), report("a", "merged"), new("b", hotspots=["x"]), route(terms=["x", "y"])],
        {"intents": {}, "messages": []},
        {"decision": "already_done", "slice": "a"},
    ),
    Corner(
        "a scope that names a canceled slice is no target",
        [new("a", hotspots=["x"]), PAUSE, new("b"), do("cancel", "b"), route("b", terms=["x"])],
        {"intents": {}},
        {"decision": "new", "slice": None},
    ),
    Corner(
        "what is routed to nobody becomes a slice of its own",
        [new("a"), declare("routed", "a"), route(terms=["x"], new=new("b"))],
        {"intents": {"routed": ["b"]}, "b": {"state": "queued", "urgency": "normal"}},
        {"decision": "new", "slice": "b"},
    ),
    Corner(
        "a routed slice that is refused detaches nothing",
        [new("a"), declare("routed", "a"), route(terms=["x"], new=new("a"))],
        {"intents": {"routed": ["a"]}},
        {"error": "SliceExists"},
    ),
    Corner(
        "an urgent message preempts",
        [new("a"), new("b"), route("b", urgency="urgent")],
        {"a": {"state": "preempted"}, "room": ["b"]},
        {"decision": "queue", "slice": "b"},
    ),
]  # fmt: skip


@pytest.mark.parametrize("corner", CORNERS, ids=lambda corner: corner.name)
def test_service(corner: Corner) -> None:
    corner.check_service()


@pytest.mark.parametrize("corner", CORNERS, ids=lambda corner: corner.name)
def test_model(corner: Corner) -> None:
    corner.check_model()
