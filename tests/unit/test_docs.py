"""What the pages say of the code is what the code says."""

from pathlib import Path

from dispatch.machine import TRANSITIONS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_drawn_states_are_the_table() -> None:
    page = (DOCS / "architecture.md").read_text()
    drawn = page.split("stateDiagram-v2\n", 1)[1].split("```", 1)[0].split("\n")
    table = [f"{before.value} --> {after.value}" for before, afters in TRANSITIONS.items() for after in afters]
    assert {line.strip() for line in drawn if line.strip()} == {"[*] --> queued", *table}
