"""What is written of an attempt is read back as it was."""

from __future__ import annotations

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
