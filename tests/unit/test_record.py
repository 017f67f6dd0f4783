"""What is written of an attempt is read back as it was."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import attrs
import pytest

from harness.local.lock import FileLock
from harness.local.orphans import ProcessMark
from harness.local.record import Record, Records
from harness.session import SessionPhase

PLAIN = Record("s@1", "g", "s", 1, "token", 10.0)


@pytest.mark.parametrize(
    "record",
    [
        PLAIN,
        attrs.evolve(PLAIN, mark=ProcessMark(7, 1234, "boot"), title='"é\n\\', checkpoint="a\nb"),
        *(attrs.evolve(PLAIN, phase=phase, resume=True, turns=3, kept="refs/x") for phase in SessionPhase),
    ],
)
def test_a_record_survives_its_file(record: Record, tmp_path: Path) -> None:
    Records(tmp_path).replace(record)
    assert Records(tmp_path).read("g", "s") == record


def test_a_record_of_another_release_is_read() -> None:
    fields = json.loads(PLAIN.to_json())
    del fields["mark"], fields["turns"]
    assert Record.from_json(json.dumps(fields | {"of_a_later_one": 1})) == PLAIN


MERGED = attrs.evolve(PLAIN, phase=SessionPhase.MERGED, intended="c0ffee")


@pytest.mark.parametrize(
    ("record", "written_at", "open_still", "goes"),
    [
        (MERGED, 99.0, False, True),
        (MERGED, 100.0, False, False),
        (MERGED, 99.0, True, False),
        (attrs.evolve(MERGED, phase=None), 99.0, False, False),
        (attrs.evolve(MERGED, phase=SessionPhase.CLOSED), 99.0, False, False),
        (attrs.evolve(MERGED, intended=""), 99.0, False, False),
    ],
    ids=["merged long ago", "lately", "its session is not settled", "under way", "not merged", "changed nothing"],
)
def test_only_what_main_tells_too_is_pruned(
    record: Record, written_at: float, open_still: bool, goes: bool, tmp_path: Path
) -> None:
    records = Records(tmp_path)
    records.replace(record)
    os.utime(tmp_path / "records" / "g" / "s.json", (written_at, written_at))
    if open_still:
        records.folder("g", record.session).mkdir(parents=True)
    assert records.prune(100.0) == goes
    assert records.read("g", "s") == (None if goes else record)
    assert (tmp_path / "records" / "g").exists() == (not goes)
    assert records.prune(100.0) == 0


def test_what_was_being_written_when_a_kill_came_is_removed_and_nothing_else(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.replace(PLAIN)
    folder = tmp_path / "records" / "g"
    for name in (".k3.json.22618.new", ".s.json.1.new"):
        (folder / name).write_text("{")
    records.drop_unfinished()
    assert [path.name for path in folder.iterdir()] == ["s.json"]
    assert records.read("g", "s") == PLAIN


def test_what_is_being_written_now_is_waited_for(tmp_path: Path) -> None:
    """Another process holds the lock while it writes; its file is whole, and renamed, when the lock is free."""
    records, other = Records(tmp_path), FileLock(tmp_path / "records.lock")
    records.replace(PLAIN)
    fresh = tmp_path / "records" / "g" / ".t.json.1.new"
    fresh.write_text("whole")
    with other.held():
        cleaner = threading.Thread(target=records.drop_unfinished)
        cleaner.start()
        cleaner.join(0.2)
        assert cleaner.is_alive()
        fresh.rename(fresh.with_name("t.json"))
    cleaner.join(10.0)
    assert sorted(path.name for path in fresh.parent.iterdir()) == ["s.json", "t.json"]


@pytest.mark.parametrize(
    ("latest", "written", "said"),
    [
        (PLAIN, PLAIN, ""),
        (attrs.evolve(PLAIN, token="other"), PLAIN, "for a later attempt"),
        (attrs.evolve(PLAIN, taken=True), PLAIN, "taken this graph over"),
        (attrs.evolve(PLAIN, taken=True), attrs.evolve(PLAIN, phase=SessionPhase.CLOSED), ""),
        (None, PLAIN, ""),
    ],
    ids=["its own", "another's", "taken", "taken, to its end", "removed"],
)
def test_why_a_record_can_not_be_written_is_told(
    latest: Record | None, written: Record, said: str, tmp_path: Path
) -> None:
    records = Records(tmp_path)
    if latest is not None:
        records.replace(latest)
    refusal = records.refusal(written)
    assert said in refusal
    assert bool(said) == bool(refusal)
    assert records.update(written) == (not said)
    assert records.read("g", "s") == (latest if said else written)


def test_a_removed_record_is_not_written_anew_beside_another_attempt(tmp_path: Path) -> None:
    records = Records(tmp_path)
    for session in ("s@1", "s2@2"):
        records.folder("g", session).mkdir(parents=True)
    assert records.refusal(PLAIN) == ""
    records.folder("g", "s@2").mkdir()
    assert not records.update(PLAIN)
    assert "removed" in records.refusal(PLAIN)
    assert records.read("g", "s") is None


def test_what_is_under_way_is_told_by_records_alone(tmp_path: Path) -> None:
    """A process may be suspended before it has made its session's folder."""
    records = Records(tmp_path)
    assert records.under_way("g") == []
    records.replace(PLAIN)
    records.replace(attrs.evolve(PLAIN, slice_id="t", session="t@1", phase=SessionPhase.CLOSED))
    records.replace(attrs.evolve(PLAIN, graph_id="h"))
    assert records.under_way("g") == [PLAIN]


def test_a_taken_slice_is_taken_from_whichever_attempt_has_it(tmp_path: Path) -> None:
    records = Records(tmp_path)
    later = attrs.evolve(PLAIN, session="s@2", attempt=2, token="later")
    records.replace(later)
    assert records.take(PLAIN) == attrs.evolve(later, taken=True)
    assert records.read("g", "s") == attrs.evolve(later, taken=True)
