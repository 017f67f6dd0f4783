"""The judge of the campaign of envelopes: what it lets pass, and that it lets nothing else pass."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from random import Random

import attrs
import pytest

from benchmarks.envelopes import checker, ledger, mix, poison, reading
from benchmarks.envelopes.checker import PROMPT_S, Burial, Evidence, Grave, Row, Wanted, judge
from benchmarks.envelopes.ledger import Ledger, Note
from benchmarks.envelopes.post import letter_digest
from harness.fleet.envelope import AgentTurnEnvelope, decode, digest, encode
from harness.fleet.errors import InvalidTurnError
from harness.fleet.ports import Receipt
from harness.fleet.transport.row import delivery_of


def note(item: str, what: str, at: float, **more: str) -> Note:
    fields = {"tenant": "t", "session": "s", "kind": "note", "payload": f"note:{item}"} | more
    return Note(item, fields["tenant"], fields["session"], fields["kind"], fields["payload"], 1, what, at)


def wanted(name: str, state: str, runs: int) -> Wanted:
    return Wanted("t", "s", "note", f"note:{name}", state, runs)


WANTED = {
    "good": wanted("good", "succeeded", 1),
    "bad": wanted("bad", "dead_letter", 1),
    "late": wanted("late", "cancelled", 0),
}
NOTES = (note("good", "began", 1.0), note("good", "ended", 2.0), note("bad", "began", 2.0), note("bad", "ended", 3.0))
ROWS = {
    "good": Row("t", "succeeded", 1, 10.0, None, (("succeeded", "noted", 20.0),)),
    "bad": Row("t", "dead_letter", 1, 10.0, None, (("dead_letter", "it fails", 30.0),)),
    "late": Row("t", "cancelled", 0, 10.0, 15.0, (("cancelled", "its deadline passed", 16.0),)),
}
BURIED = {"d1": Burial("empty", count=2), "d2": Burial("no item", "stranger", "t")}
GRAVES = {"d1": Grave("is empty", "", "", 2), "d2": Grave("it names no work item", "stranger", "t", 1)}
ROW_KINDS = dict(poison.SQLITE_ROWS) | dict(poison.POSTGRES_ROWS)
SMOOTH = Evidence(WANTED, BURIED, NOTES, ROWS, GRAVES, 0, (0, 0))


def with_row(name: str, **changes: object) -> Evidence:
    return attrs.evolve(SMOOTH, rows=ROWS | {name: attrs.evolve(ROWS[name], **changes)})  # type: ignore[arg-type]


def with_note(*notes: Note) -> Evidence:
    return attrs.evolve(SMOOTH, notes=(*NOTES, *notes))


def with_grave(digest: str, grave: Grave) -> Evidence:
    return attrs.evolve(SMOOTH, graves=GRAVES | {digest: grave})


def test_what_ended_where_it_should_passes() -> None:
    verdict = judge(SMOOTH)
    assert verdict == checker.Verdict((), (1.0,), 0)


def test_what_a_queue_delivers_twice_is_counted_and_no_violation_where_that_may_be() -> None:
    again = with_grave("d1", Grave("is empty", "", "", 3))
    verdict = judge(attrs.evolve(again, redelivers=True))
    assert (verdict.violations, verdict.recounted) == ((), 1)


@pytest.mark.parametrize(
    ("code", "evidence"),
    [
        ("foreign", with_note(note("stranger", "began", 9.0))),
        ("altered", with_note(note("late", "began", 9.0, payload="note:altered"))),
        ("altered", attrs.evolve(SMOOTH, notes=(note("good", "began", 1.0, tenant="u"), *NOTES[1:]))),
        ("twice", with_note(note("good", "began", 8.0), note("good", "ended", 9.0))),
        ("twice", with_note(note("late", "began", 8.0), note("late", "ended", 9.0))),
        ("not run", attrs.evolve(SMOOTH, notes=NOTES[:2])),
        ("made up", attrs.evolve(SMOOTH, rows=ROWS | {"stranger": ROWS["good"]})),
        ("lost", attrs.evolve(SMOOTH, rows={"good": ROWS["good"], "late": ROWS["late"]})),
        ("state", with_row("good", state="ready")),
        ("state", with_row("bad", state="succeeded")),
        ("state", with_row("good", tenant="u")),
        ("ends", with_row("good", outcomes=(*ROWS["good"].outcomes, *ROWS["good"].outcomes))),
        ("ends", with_row("late", outcomes=())),
        ("attempts", with_row("good", attempt=2)),
        ("at once", with_note(note("good", "began", 2.5))),
        ("at once", with_note(note("good", "ended", 9.0))),
        ("buried alive", with_grave("d3", Grave("is empty", "", "", 1))),
        ("buried alive", with_grave("d3", Grave("it names no work item", "good", "t", 1))),
        ("unburied", attrs.evolve(SMOOTH, graves={"d1": GRAVES["d1"]})),
        ("misnamed", with_grave("d2", Grave("it names no work item", "stranger", "u", 1))),
        ("misnamed", with_grave("d1", Grave("", "", "", 2))),
        ("miscounted", with_grave("d1", Grave("is empty", "", "", 1))),
        ("miscounted", with_grave("d1", Grave("is empty", "", "", 3))),
        ("cause", with_row("late", outcomes=(("cancelled", "by hand", 16.0),))),
        ("too soon", with_row("late", outcomes=(("cancelled", "its deadline passed", 14.0),))),
        ("late", with_row("late", outcomes=(("cancelled", "its deadline passed", 15.1 + PROMPT_S),))),
        ("left over", attrs.evolve(SMOOTH, depth=1)),
        ("worker", attrs.evolve(SMOOTH, exits=(0, 1))),
        ("worker", attrs.evolve(SMOOTH, exits=())),
    ],
)
def test_what_did_not_is_seen(code: str, evidence: Evidence) -> None:
    assert code in {found for found, _ in judge(evidence).violations}


def test_a_count_that_is_too_low_is_seen_wherever_it_is() -> None:
    short = with_grave("d1", Grave("is empty", "", "", 1))
    assert [code for code, _ in judge(attrs.evolve(short, redelivers=True)).violations] == ["miscounted"]


def test_the_ledger_gives_back_what_it_took(tmp_path: Path) -> None:
    assert ledger.read(tmp_path / "ledger") == []
    for each in NOTES:
        written = Ledger(tmp_path / "ledger")
        written.add(each)
        written.close()
    assert ledger.read(tmp_path / "ledger") == list(NOTES)


def test_an_envelope_is_known_by_the_same_digest_here_and_there() -> None:
    envelope = AgentTurnEnvelope("好", "s", "k", "", "t", 1, 2.5, 3, 4.0)
    assert letter_digest(attrs.astuple(envelope)) == digest(encode(envelope))


@pytest.mark.parametrize("kind", poison.BYTES)
def test_bytes_that_are_planted_are_no_envelope(kind: str) -> None:
    for number in (0, 1, 999):
        with pytest.raises(InvalidTurnError):
            decode(poison.BYTES[kind](Random(number), number))


@pytest.mark.parametrize("kind", ROW_KINDS)
def test_rows_that_are_planted_are_no_envelopes(kind: str) -> None:
    row = ROW_KINDS[kind](Random(1), 1)
    assert delivery_of(Receipt("w", 0.0, "1"), tuple(row.values())).envelope is None


def test_what_is_changed_was_sound() -> None:
    assert decode(json.dumps(poison.sound(1)).encode()).job_id == "poison-1"
    assert delivery_of(Receipt("w", 0.0, "1"), tuple(poison.sound_row(1).values())).envelope is not None


def test_kinds_come_as_often_as_they_weigh() -> None:
    kinds = mix.shuffled(1_000, mix.STRAYS, Random(1))
    assert len(kinds) == 1_000
    assert all(kinds.count(kind) >= 1_000 * weight // sum(mix.STRAYS.values()) for kind, weight in mix.STRAYS.items())


@pytest.mark.parametrize("module", [checker, reading, ledger])
def test_the_judge_shares_no_code_with_what_it_judges(module: object) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text())  # type: ignore[attr-defined]
    named = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in named if name.partition(".")[0] in ("harness", "dispatch", "listsched")]
