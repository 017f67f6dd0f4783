"""What an agent turn is told, and what it reports: an `Assignment` as a payload, an `AgentReport` as a result.

Both come back from a database that others can write to, so what is read is checked like a stranger's. The branches
through which commits pass are named here too, for both sides.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import attrs

from harness.fleet.errors import InvalidTurnError
from harness.local.outcome import CHECKPOINT_LIMIT, LINE_LIMIT, URL_LIMIT, is_url, readable
from harness.local.site import check
from harness.session import Assignment, Recipe, SessionPhase
from harness.text import STORED_LIMIT, sanitize

KIND = "agent"  #: of the work items that these are the contents of
PAYLOAD_LIMIT = 4 * 1024 * 1024  #: bytes
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
MOST_TURNS = 1_000_000
_VERSION = 1
_ENDS = {phase.value: phase for phase in (SessionPhase.MERGED, SessionPhase.CLOSED, SessionPhase.CANCELED)}
Value = TypeVar("Value")


@attrs.frozen
class AgentReport:
    """How an attempt ended on a worker.

    `phase` is `MERGED` if the agent says that it is done: then `commit` is to be merged. Otherwise `commit` is the work
    that was kept, and `resume` says whether the next attempt goes on from it. `commit` is the tip of `branch` on the
    remote; empty if there is no work that the graph's main doesn't have. `note` is what the agent left to say.
    """

    phase: SessionPhase
    commit: str = ""
    branch: str = ""
    turns: int = 0
    detail: str = ""
    note: str = ""
    resume: bool = False
    pull_request_url: str = ""


def item_id(graph_id: str, assignment_id: str) -> str:
    """The id of the work item that is the attempt: two graphs may use the same slice ids."""
    return f"{graph_id}/{assignment_id}"


def main_branch(graph_id: str) -> str:
    """The branch of the remote by which workers know main, as it was when the graph last submitted something."""
    return f"dispatch/{graph_id}/main"


def work_branch(assignment: Assignment) -> str:
    """The branch of the remote that has an attempt's work: what it is to go on from, and what it has come to."""
    return f"{work_branches(assignment)}/{assignment.attempt}"


def work_branches(assignment: Assignment) -> str:
    """What the names of those branches begin with, for all attempts at the slice."""
    return f"dispatch/{assignment.graph_id}/work/{assignment.slice_id}"


def encode_assignment(assignment: Assignment) -> bytes:
    """The same assignment, the same bytes. Raises `InvalidTurnError` if they are too many."""
    fields = attrs.asdict(assignment)
    fields["recipe"]["env"] = [list(pair) for pair in assignment.recipe.env]
    raw = json.dumps({"v": _VERSION, **fields}, separators=(",", ":")).encode()
    if len(raw) > PAYLOAD_LIMIT:
        raise InvalidTurnError("payload", f"has {len(raw):,} bytes; {PAYLOAD_LIMIT:,} are the most")
    return raw


def decode_assignment(raw: bytes) -> Assignment:
    """Raises `InvalidTurnError`, and `InvalidAssignmentError` for names that could lead anywhere else."""
    fields = _read("payload", raw, PAYLOAD_LIMIT)
    recipe = _field(fields, "recipe", dict)
    assignment = Assignment(
        recipe=Recipe(
            command=_texts(recipe, "command"),
            verify=_texts(recipe, "verify"),
            env=tuple((pair[0], pair[1]) for pair in map(_pair, _field(recipe, "env", list))),
            max_attempts=_field(recipe, "max_attempts", int),
            grace_s=_seconds(recipe, "grace_s"),
            quiet_limit_s=_seconds(recipe, "quiet_limit_s"),
            **{name: _field(recipe, name, str) for name in ("prompt", "kind")},
        ),
        attempt=_field(fields, "attempt", int),
        **{
            name: _field(fields, name, str)
            for name in ("assignment_id", "slice_id", "title", "task", "checkpoint", "branch", "graph_id")
        },
    )
    check(assignment)
    return assignment


def encode_report(report: AgentReport) -> str:
    """As it goes into a work item, which has room for it."""
    fields = attrs.asdict(report) | {
        "phase": report.phase.value,
        "detail": sanitize(report.detail, LINE_LIMIT),
        "note": readable(report.note.encode("utf-8", "replace")),
    }
    return json.dumps({"v": _VERSION, **fields}, ensure_ascii=False, separators=(",", ":"))


def decode_report(text: str, branch: str) -> AgentReport:
    """The report of a turn whose work is on `branch`. Raises `InvalidTurnError`, which says what is wrong with it."""
    fields = _read("report", text.encode("utf-8", "replace"), STORED_LIMIT * 4)
    phase = _ENDS.get(_field(fields, "phase", str))
    if phase is None:
        raise InvalidTurnError("phase", f"is none of {', '.join(_ENDS)}")
    commit, url = _field(fields, "commit", str), _field(fields, "pull_request_url", str)
    if commit and not COMMIT.fullmatch(commit):
        raise InvalidTurnError("commit", "is not the name of a commit")
    if commit and _field(fields, "branch", str) != branch:
        raise InvalidTurnError("branch", f"is not {branch}")
    if url and not (len(url) <= URL_LIMIT and is_url(url)):
        raise InvalidTurnError("pull_request_url", "is no address")
    turns = _field(fields, "turns", int)
    if not 0 <= turns <= MOST_TURNS:
        raise InvalidTurnError("turns", f"must be from 0 to {MOST_TURNS:,}")
    note = _field(fields, "note", str).encode("utf-8", "replace")
    return AgentReport(
        phase,
        commit,
        branch,
        turns,
        sanitize(_field(fields, "detail", str), LINE_LIMIT),
        readable(note, CHECKPOINT_LIMIT),
        _field(fields, "resume", bool),
        url,
    )


def _read(what: str, raw: bytes, limit: int) -> dict[str, Any]:
    if len(raw) > limit:
        raise InvalidTurnError(what, f"has {len(raw):,} bytes; {limit:,} are the most")
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        raise InvalidTurnError(what, "is not JSON") from None
    if not isinstance(fields, dict):
        raise InvalidTurnError(what, "is not a JSON object")
    if fields.get("v") != _VERSION:
        raise InvalidTurnError(what, f"is not of version {_VERSION}; a newer version wrote it, or another program")
    return fields


def _field(fields: dict[str, Any], name: str, kind: type[Value]) -> Value:
    value = fields.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidTurnError(name, f"must be {kind.__name__}, not {type(value).__name__}")
    return value


def _seconds(fields: dict[str, Any], name: str) -> float:
    value = fields.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise InvalidTurnError(name, "must be seconds")
    return float(value)


def _texts(fields: dict[str, Any], name: str) -> tuple[str, ...]:
    values = _field(fields, name, list)
    if not all(isinstance(value, str) for value in values):
        raise InvalidTurnError(name, "must be a list of texts")
    return tuple(values)


def _pair(value: object) -> tuple[str, str]:
    match value:
        case [str(name), str(text)]:
            return name, text
        case _:
            raise InvalidTurnError("env", "must be pairs of texts")
