from __future__ import annotations

import json

import attrs
import pytest

from dispatch.forecast import forecast
from dispatch.intent import Urgency
from dispatch.slice import Slice, TouchSet
from dispatch.view.gantt import ASCII
from dispatch.view.prospect import Prospect, prospect_document, prospect_lines
from dispatch.views import Cap
from harness import Recipe

SLICES = (
    Slice("schema", "Add the [b]table[/b]", touch=TouchSet(hotspots=("db",))),
    Slice("api", depends_on=("schema",), touch=TouchSet(("src/**",))),
    Slice("search", recipe=Recipe(kind="hard"), touch=TouchSet(hotspots=("db",)), hold="later"),
    Slice("page", depends_on=("search",), touch=TouchSet(("src/p",)), contends=("schema",)),
    Slice("home", touch=TouchSet(("src/p",))),
)


def prospect(*slices: Slice, cap: int = 2) -> Prospect:
    urgency = {"search": Urgency.LOW} if slices == SLICES else {}
    on_paper = forecast(slices, cap, urgency=urgency)
    return Prospect("shop.toml", "shop", slices, urgency, Cap(cap, f"cap {cap}, set by hand"), on_paper)


def lines(promised: Prospect, width: int = 80) -> list[str]:
    return [text.plain.rstrip() for text in prospect_lines(promised, width, 40, ASCII)]


def test_a_plan_is_told_with_all_that_it_promises() -> None:
    assert lines(prospect(*SLICES)) == [
        "shop: 5 slices, 2 dependencies",
        "",
        "slices",
        "  schema  Add the [b]table[/b]  touches #db",
        "  api                           needs schema; touches src/**",
        "  search                        touches #db; urgency LOW; held: later",
        "  page                          needs search; touches src/p",
        "  home                          touches src/p",
        "",
        "never at once",
        "  schema, search  hotspot db",
        "  page, home  all touch src/p",
        "  api, page, home  src/** and src/p both match src/p",
        "  schema, page  declared",
        "",
        "critical path 2",
        "  schema -> api",
        "",
        "simulated schedule 4 with cap 2, at most 2 at once; no schedule is below 3",
        "every slice counts 1: nothing is measured yet; cap 2, set by hand",
        "search ########",
        "home   ########",
        "schema         ########",
        "api                    #########",
        "page                           #########",
        "       0               2               4",
    ]


def test_a_plan_without_contention_says_so() -> None:
    assert "  no two slices contend" in lines(prospect(Slice("a"), Slice("b")))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_large_plan_is_cut_before_it_is_laid_out(width: int) -> None:
    slices = [Slice("s0")]
    for n in range(1, 2000):
        touch = TouchSet((f"src/{n % 100}/**", f"src/{n}"), (f"hot-{n % 300}",))
        slices.append(Slice(f"s{n}", "日本語" * 20, depends_on=(f"s{n - 1}",), touch=touch))
    told = list(prospect_lines(prospect(*slices), width, width, ASCII))
    assert len(told) < 400
    assert max(text.cell_len for text in told) <= width
    plain = [text.plain.strip() for text in told]
    assert "and 1,940 more" in plain
    assert any(text.endswith("more groups") for text in plain)


def test_a_partial_forecast_says_so() -> None:
    promised = prospect(Slice("a"))
    partial = attrs.evolve(promised, forecast=attrs.evolve(promised.forecast, partial=True))
    assert any("not all of them were looked at" in text for text in lines(partial))


def test_the_document_has_everything() -> None:
    document = json.loads(json.dumps(prospect_document(prospect(*SLICES))))
    assert [each["id"] for each in document["slices"]] == ["schema", "api", "search", "page", "home"]
    assert document["slices"][2] == {
        "id": "search",
        "title": "search",
        "kind": "hard",
        "paths": [],
        "hotspots": ["db"],
        "urgency": "low",
        "hold": "later",
        "start": 0,
        "finish": 1,
    }
    assert document["edges"] == [["schema", "api"], ["search", "page"]]
    assert [each["why"] for each in document["contention"]] == ["hotspot", "pattern", "overlap", "declared"]
    assert document["critical_path"] == {"slices": ["schema", "api"], "length": 2}
    assert (document["makespan"], document["lower_bound"], document["concurrency"]) == (4, 3, 2)
