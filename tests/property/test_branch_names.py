"""Names that pass are names for git and the file system: no option, no way out of our folders."""

from __future__ import annotations

import subprocess
from pathlib import Path

import attrs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.local import InvalidAssignmentError
from harness.local.record import Records
from harness.local.site import check, is_branch_name
from tests.effort import examples
from tests.integration.workshop import assignment

PIECES = st.lists(
    st.sampled_from(
        ["a", "B", "0", ".", "..", "/", "-", "_", ".lock", "@{", "~", "^", ":", "?", " ", "\\", "\n", "\0", "ü"]
    ),
    max_size=8,
).map("".join)


def passes(field: str, value: str) -> bool:
    one = attrs.evolve(assignment("s1", "true"), **{field: value})
    if field == "slice_id":
        one = attrs.evolve(one, assignment_id=f"{value}@1")
    try:
        check(one)
    except InvalidAssignmentError:
        return False
    return True


@given(st.one_of(PIECES, st.text(max_size=100)))
@example("HEAD")
@example("-x")
@example("../../etc")
@example("a.lock")
@example("a..b")
@settings(max_examples=examples(200))
def test_ids_stay_in_their_folder(value: str) -> None:
    for field in ("slice_id", "graph_id"):
        if passes(field, value):
            root = Path("/root")
            records = Records.__new__(Records)
            records._records, records._sessions = root / "records", root / "sessions"
            path = records._path(value, value) if field == "graph_id" else records._path("g", value)
            assert path.resolve().is_relative_to(root / "records")
            assert records.folder("g", f"{value}@1").resolve().parent == root / "sessions" / "g"
            assert not value.startswith("-")


def test_branches_that_pass_are_branches_for_git() -> None:
    """Git is asked about those that pass, all at once."""
    names: set[str] = set()

    @given(st.tuples(st.sampled_from(["a", "dispatch/x", "0/"]), PIECES).map("".join))
    @settings(max_examples=examples(300), database=None)
    def collect(value: str) -> None:
        if is_branch_name(value):
            names.add(value)

    collect()
    assert len(names) > 10
    script = 'while IFS= read -r name; do git check-ref-format --branch "$name" > /dev/null || echo "$name"; done'
    said = subprocess.run(
        ("sh", "-c", script), input="\n".join(sorted(names)[:200]) + "\n", text=True, capture_output=True, check=True
    )
    assert said.stdout == ""
