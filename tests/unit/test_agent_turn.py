"""What an agent turn is told and reports: there and back unharmed, and nothing but what can be."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.fleet.agent_turn import (
    PAYLOAD_LIMIT,
    AgentReport,
    decode_assignment,
    decode_report,
    encode_assignment,
    encode_report,
    main_branch,
    work_branch,
)
from harness.fleet.errors import InvalidTurnError
from harness.local.errors import InvalidAssignmentError
from harness.local.outcome import CHECKPOINT_LIMIT, LINE_LIMIT
from harness.local.site import is_branch_name
from harness.session import Assignment, Recipe, SessionPhase
from harness.text import STORED_LIMIT

BRANCH = "dispatch/graph1/work/one/1"
COMMIT = "0123456789" * 4
ONE = Assignment("one@1", "one", 1, Recipe(("true",)), "One", "Do it.", "", "dispatch/one/1", "graph1")
FIELDS = json.loads(encode_assignment(ONE))
REPORT = {
    "v": 1, "phase": "merged", "commit": COMMIT, "branch": BRANCH, "turns": 1, "detail": "", "note": "",
    "resume": False, "pull_request_url": "",
}  # fmt: skip

seconds = st.floats(0, 1e6)
recipes = st.builds(
    Recipe,
    command=st.lists(st.text()).map(tuple),
    prompt=st.text(),
    verify=st.lists(st.text()).map(tuple),
    grace_s=seconds,
    quiet_limit_s=seconds,
    env=st.lists(st.tuples(st.text(), st.text())).map(tuple),
)


@given(recipe=recipes, title=st.text(), task=st.text(), checkpoint=st.text())
def test_an_assignment_comes_back_as_it_was(recipe: Recipe, title: str, task: str, checkpoint: str) -> None:
    given = attrs.evolve(ONE, recipe=recipe, title=title, task=task, checkpoint=checkpoint)
    assert decode_assignment(encode_assignment(given)) == given
    assert encode_assignment(given) == encode_assignment(attrs.evolve(given))


@given(
    report=st.builds(
        AgentReport,
        phase=st.sampled_from([SessionPhase.MERGED, SessionPhase.CLOSED, SessionPhase.CANCELED]),
        commit=st.sampled_from(["", COMMIT, COMMIT[:24] + COMMIT]),
        branch=st.just(BRANCH),
        turns=st.integers(0, 1000),
        detail=st.text(),
        note=st.text() | st.just('"' * 20_000) | st.just("é\n" * 20_000),
        resume=st.booleans(),
        pull_request_url=st.sampled_from(["", "https://example.org/pull/1"]),
    )
)
def test_a_report_comes_back_fit_to_be_kept_and_shown(report: AgentReport) -> None:
    text = encode_report(report)
    assert len(text) <= STORED_LIMIT
    back = decode_report(text, BRANCH)
    assert attrs.evolve(back, detail="", note="") == attrs.evolve(report, detail="", note="")
    assert len(back.detail) <= LINE_LIMIT
    assert back.detail.isprintable()
    assert len(back.note.encode()) <= CHECKPOINT_LIMIT + 8
    assert decode_report(encode_report(back), BRANCH) == back


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "report: is not JSON"),
        ("[" * 100_000, "report: is not JSON"),
        ("[]", "report: is not a JSON object"),
        (" " * (4 * STORED_LIMIT + 1), "report: has 262,145 bytes"),
        ({**REPORT, "v": 2}, "report: is not of version 1"),
        ({**REPORT, "phase": "running"}, "phase: is none of"),
        ({**REPORT, "phase": "failed"}, "phase: is none of"),
        ({**REPORT, "phase": None}, "phase: must be str"),
        ({**REPORT, "commit": "HEAD"}, "commit: is not the name of a commit"),
        ({**REPORT, "commit": "--upload-pack=true"}, "commit: is not the name of a commit"),
        ({**REPORT, "commit": COMMIT.upper().replace("0", "A")}, "commit: is not the name of a commit"),
        ({**REPORT, "commit": COMMIT + "\n"}, "commit: is not the name of a commit"),
        ({**REPORT, "branch": "main"}, f"branch: is not {BRANCH}"),
        ({**REPORT, "turns": -1}, "turns: must be from 0"),
        ({**REPORT, "turns": 10**12}, "turns: must be from 0"),
        ({**REPORT, "turns": True}, "turns: must be int"),
        ({**REPORT, "resume": 1}, "resume: must be bool"),
        ({**REPORT, "detail": None}, "detail: must be str"),
        ({**REPORT, "pull_request_url": "file:///x"}, "pull_request_url: is no address"),
        ({**REPORT, "pull_request_url": "https://x/" + "y" * 3000}, "pull_request_url: is no address"),
    ],
)
def test_a_report_that_can_not_be_is_refused(text: str | dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidTurnError) as refused:
        decode_report(text if isinstance(text, str) else json.dumps(text), BRANCH)
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "payload: is not JSON"),
        (b"\xff", "payload: is not JSON"),
        (b"1", "payload: is not a JSON object"),
        ({**FIELDS, "v": 0}, "payload: is not of version 1"),
        ({**FIELDS, "recipe": []}, "recipe: must be dict"),
        ({**FIELDS, "task": 1}, "task: must be str"),
        ({**FIELDS, "attempt": "1"}, "attempt: must be int"),
        ({**FIELDS, "recipe": {**FIELDS["recipe"], "command": "rm -rf"}}, "command: must be list"),
        ({**FIELDS, "recipe": {**FIELDS["recipe"], "command": [1]}}, "command: must be a list of texts"),
        ({**FIELDS, "recipe": {**FIELDS["recipe"], "env": [["A"]]}}, "env: must be pairs of texts"),
        ({**FIELDS, "recipe": {**FIELDS["recipe"], "grace_s": -1}}, "grace_s: must be seconds"),
        ({**FIELDS, "recipe": {**FIELDS["recipe"], "quiet_limit_s": True}}, "quiet_limit_s: must be seconds"),
    ],
)
def test_contents_that_are_no_assignment_are_refused(raw: bytes | dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidTurnError) as refused:
        decode_assignment(raw if isinstance(raw, bytes) else json.dumps(raw).encode())
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize(
    ("field", "value"),
    [("slice_id", "../x"), ("graph_id", ".."), ("branch", "-x"), ("branch", "a..b"), ("assignment_id", "two@1")],
)
def test_names_that_could_lead_elsewhere_are_refused(field: str, value: str) -> None:
    with pytest.raises(InvalidAssignmentError):
        decode_assignment(json.dumps({**FIELDS, field: value}).encode())


def test_contents_too_large_to_be_kept_are_refused_at_once() -> None:
    with pytest.raises(InvalidTurnError, match="payload: has"):
        encode_assignment(attrs.evolve(ONE, task="x" * PAYLOAD_LIMIT))
    with pytest.raises(InvalidTurnError, match="payload: has"):
        decode_assignment(b" " * (PAYLOAD_LIMIT + 1))


def test_branches_are_names_that_need_no_quoting_and_lead_into_one_another_nowhere() -> None:
    names = [main_branch("graph1"), work_branch(ONE), work_branch(attrs.evolve(ONE, slice_id="main", attempt=2))]
    assert all(map(is_branch_name, names))
    assert not any(one != other and other.startswith(f"{one}/") for one in names for other in names)
