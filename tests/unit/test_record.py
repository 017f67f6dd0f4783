"""What is written of an attempt is read back as it was."""

from __future__ import annotations

import json
import os
from pathlib import Path

import attrs
import pytest

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
