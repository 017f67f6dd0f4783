"""Each claim of the demo fails when what it claims has not happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

import attrs
import pytest

from dispatch.demo import claims
from dispatch.demo.evidence import Evidence, Merge, Span
from dispatch.demo.operator import ANSWER
from dispatch.plans import read_plan
from dispatch.slice import Slice
from dispatch.store import AttemptRow

CONFLICT = "merge conflict in README.md"
LOST = {"prices": CONFLICT, "payments": "exit 1: no answer", "stocktaking": "stopped at a safepoint"}
ORDER = (
    *("schema", "layout", "hours", "storage", "cart", "search"),
    *("checkout", "filters", "payments", "prices", "hotfix", "stocktaking"),
)


@pytest.fixture(scope="module")
def slices() -> Mapping[str, Slice]:
    with resources.as_file(resources.files("dispatch.demo").joinpath("plan.toml")) as path:
        return {each.id: each for each in read_plan(Path(path)).slices}


def rows_of(name: str) -> tuple[AttemptRow, ...]:
    ends = [("closed", LOST[name]), ("merged", "")] if name in LOST else [("merged", "")]
    return tuple(AttemptRow(name, at, "", 0.0, 0.0, *end) for at, end in enumerate(ends, 1))


def text_of(slice_: Slice) -> tuple[str, str]:
    """The file that a slice's agents write, and its lines."""
    orders = dict(line.split(": ", 1) for line in slice_.recipe.prompt.strip().splitlines())
    parts = len(orders["turns"].split())
    told = f" ({ANSWER})" if "question" in orders else ""
    return orders["file"], "".join(f"{slice_.title}: part {at} of {parts}{told}\n" for at in range(1, parts + 1))


@pytest.fixture
def evidence(slices: Mapping[str, Slice]) -> Evidence:
    """Of a demo in which all went well: two agents at a time, in the order of ORDER."""
    files: dict[str, str] = {}
    for slice_ in slices.values():
        path, lines = text_of(slice_)
        files[path] = files.get(path, "") + lines
    spans = [Span(name, len(rows_of(name)), at, at + 1.5) for at, name in enumerate(ORDER) if name != "stocktaking"]
    return Evidence(
        cap=4,
        slices=slices,
        merges=tuple(Merge(name, "", "") for name in ORDER),
        spans=(*spans, Span("stocktaking", 1, 3.0, 4.0), Span("stocktaking", 2, 20.0, 21.0)),
        attempts={name: rows_of(name) for name in slices},
        files=files,
        logs={
            ("stocktaking", 1): "has committed part 1 of 4\nhas committed part 2 of 4\n",
            ("stocktaking", 2): "has committed part 3 of 4\nhas committed part 4 of 4\n",
        },
        began_with=frozenset((each.id, name) for each in slices.values() for name in each.depends_on),
    )


def without(text: str, path: str) -> Callable[[Evidence], Evidence]:
    return lambda good: attrs.evolve(good, files={**good.files, path: good.files[path].replace(text, "")})


def lasting(*spans: Span) -> Callable[[Evidence], Evidence]:
    return lambda good: attrs.evolve(good, spans=(*good.spans, *spans))


def attempted(name: str, *ends: tuple[str, str]) -> Callable[[Evidence], Evidence]:
    rows = tuple(AttemptRow(name, at, "", 0.0, 0.0, *end) for at, end in enumerate(ends, 1))
    return lambda good: attrs.evolve(good, attempts={**good.attempts, name: rows})


def merged(*names: str) -> Callable[[Evidence], Evidence]:
    return lambda good: attrs.evolve(good, merges=tuple(Merge(name, "", "") for name in names))


def logged(attempt: int, text: str) -> Callable[[Evidence], Evidence]:
    return lambda good: attrs.evolve(good, logs={**good.logs, ("stocktaking", attempt): text})


def test_all_is_kept_when_all_went_well(evidence: Evidence) -> None:
    assert [claim for claim in claims.claims(evidence) if not claim.kept] == []


@pytest.mark.parametrize(
    ("claim", "spoil"),
    [
        (claims.side_by_side, lambda good: attrs.evolve(good, spans=good.spans[:1])),
        (claims.side_by_side, lasting(*(Span("cart", at, 3.0, 4.0) for at in range(2, 6)))),
        (claims.order, lambda good: attrs.evolve(good, began_with=good.began_with - {("checkout", "cart")})),
        (claims.contention, lasting(Span("payments", 3, 0.5, 0.6))),
        (claims.contention, lasting(Span("hotfix", 2, 20.5, float("inf")))),
        (claims.failure, attempted("payments", ("merged", ""))),
        (claims.failure, attempted("payments", ("closed", "exit 1"), ("closed", "exit 1"))),
        (claims.failure, attempted("payments")),
        (claims.conflict, attempted("prices", ("merged", ""))),
        (claims.conflict, attempted("hours", ("closed", CONFLICT), ("merged", ""))),
        (claims.conflict, without("Opening hours: part 1 of 1\n", "README.md")),
        (claims.steering, without(f" ({ANSWER})", "shop/layout.txt")),
        (claims.steering, lambda good: attrs.evolve(good, files={})),
        (claims.preemption, attempted("stocktaking", ("merged", ""))),
        (claims.preemption, merged("stocktaking", "hotfix")),
        (claims.preemption, merged("hotfix")),
        (claims.preemption, logged(1, "")),
        (claims.preemption, logged(2, "has committed part 2 of 4\n")),
        (claims.nothing_lost, merged(*ORDER[1:])),
        (claims.nothing_lost, merged(*ORDER, "cart")),
        (claims.nothing_lost, without("Storage: part 1 of 2\n", "shop/storage.txt")),
        (claims.nothing_lost, lambda good: attrs.evolve(good, files=good.files | {"shop/cart.txt": ""})),
        (
            claims.nothing_lost,
            lambda good: attrs.evolve(good, files=good.files | {"shop/cart.txt": 2 * good.files["shop/cart.txt"]}),
        ),
    ],
)
def test_a_claim_fails_when_it_has_not_come_true(
    evidence: Evidence, claim: Callable[[Evidence], claims.Claim], spoil: Callable[[Evidence], Evidence]
) -> None:
    assert claim(evidence).kept
    assert not claim(spoil(evidence)).kept
