"""The fencing campaign's judge: what it lets pass, and that it lets nothing else pass."""

from __future__ import annotations

import ast
from pathlib import Path

import attrs
import pytest

from benchmarks.fencing import checker
from benchmarks.fencing.checker import Evidence, Row, judge
from benchmarks.fencing.deliveries import Handed, handed
from benchmarks.fencing.notes import Ledger, Note, holders, read


def note(item: str, epoch: int, token: int, what: str, number: int, at: float, pid: int = 1) -> Note:
    return Note(item, "session", epoch, token, epoch, pid, what, number, at - 0.01, at)


#: One turn is lost by its first worker after an effect, and ended by the second; another comes after it.
NOTES = (
    note("a", 1, 1, "start", 0, 1.0),
    note("a", 1, 1, "effect", 0, 2.0),
    note("a", 2, 2, "start", 0, 5.0, pid=2),
    note("a", 2, 2, "effect", 0, 6.0, pid=2),
    note("a", 2, 2, "done", 1, 7.0, pid=2),
    note("b", 1, 3, "start", 0, 8.0),
    note("b", 1, 3, "done", 0, 9.0),
)
ROWS = {
    "a": Row("succeeded", ((1, "ready"), (2, "succeeded"))),
    "b": Row("succeeded", ((1, "succeeded"),)),
    "c": Row("cancelled", ((0, "cancelled"),)),
}
SMOOTH = Evidence({"a": 1, "b": 0, "c": 5}, NOTES, ROWS, 0, cancelled=frozenset({"c"}))
LATE = note("a", 1, 1, "effect", 1, 5.5)


def with_row(name: str, row: Row) -> Evidence:
    return attrs.evolve(SMOOTH, rows={**ROWS, name: row})


def test_what_went_as_promised_passes() -> None:
    verdict = judge(SMOOTH)
    assert (verdict.violations, verdict.excused) == ((), 0)


@pytest.mark.parametrize(
    ("code", "evidence"),
    [
        ("lost", attrs.evolve(SMOOTH, accepted={**SMOOTH.accepted, "d": 0})),
        ("unended", with_row("b", Row("running", ()))),
        ("unended", with_row("b", Row("ready", ((1, "ready"),)))),
        ("refused", with_row("d", Row("ready", ()))),
        ("ended twice", with_row("b", Row("succeeded", ((1, "succeeded"), (2, "succeeded"))))),
        ("ended twice", with_row("b", Row("cancelled", ((1, "succeeded"), (1, "cancelled"))))),
        ("late commit", with_row("a", Row("succeeded", ((2, "ready"), (1, "succeeded"))))),
        ("unaccounted", with_row("b", Row("failed", ((1, "succeeded"),)))),
        ("stale effect", attrs.evolve(SMOOTH, notes=(*NOTES, LATE))),
        ("stale effect", attrs.evolve(SMOOTH, notes=(*NOTES, note("a", 2, 2, "effect", 3, 8.5, pid=2)))),
        ("stale effect", attrs.evolve(SMOOTH, notes=(*NOTES, LATE), suspended={1: ((1.0, 5.0), (5.6, 9.0))})),
        ("incomplete", attrs.evolve(SMOOTH, notes=NOTES[:3] + NOTES[4:])),
        ("incomplete", attrs.evolve(SMOOTH, accepted={**SMOOTH.accepted, "a": 2})),
        ("left over", attrs.evolve(SMOOTH, depth=1)),
        ("cancelled", attrs.evolve(SMOOTH, cancelled=frozenset())),
    ],
)
def test_what_did_not_is_seen(code: str, evidence: Evidence) -> None:
    assert code in {found for found, _ in judge(evidence).violations}


def test_who_stood_still_between_renewal_and_effect_is_excused_and_counted() -> None:
    verdict = judge(attrs.evolve(SMOOTH, notes=(*NOTES, LATE), suspended={1: ((3.0, 5.495),)}))
    assert (verdict.violations, verdict.excused) == ((), 1)


def test_the_ledger_gives_back_what_it_took_but_for_a_line_cut_short(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for each in NOTES:
        ledger.add(each)
    with (tmp_path / "ledger").open("ab") as file:
        file.write(b'["a",')
    assert read(tmp_path / "ledger") == list(NOTES)


def test_the_judge_shares_no_code_with_what_it_judges() -> None:
    tree = ast.parse(Path(checker.__file__).read_text())
    named = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in named if name.partition(".")[0] in ("harness", "dispatch", "listsched")]


@pytest.mark.parametrize(
    ("count", "since", "expected"),
    [(2, 0.0, {1}), (3, 0.0, {2}), (3, 5.5, set()), (5, 0.0, set()), (6, 0.0, {1}), (7, 0.0, set())],
)
def test_who_wrote_last_of_what_is_not_done_holds_it(count: int, since: float, expected: set[int]) -> None:
    assert holders(NOTES[:count], since) == expected


def test_deliveries_are_counted_by_record_and_by_job(tmp_path: Path) -> None:
    assert handed(tmp_path / "none") == Handed(0, 0, 0)
    path = tmp_path / "deliveries"
    path.write_text("1@0:a\n1@1:b\n1@1:b\n2@0:a\n1@2:c")
    assert handed(path) == Handed(4, 3, 2)
    assert handed(path).again == 2
