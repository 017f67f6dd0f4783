"""`plan` and `schema`: what a plan is, before it is run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dispatch.cli.options import CapOption, Json, PlanPath

if TYPE_CHECKING:
    from dispatch.intent import Urgency
    from dispatch.plans import PlanFile
    from dispatch.view.prospect import Prospect
    from dispatch.views import Cap


def plan(plan: PlanPath, cap: CapOption = None, json: Json = False) -> None:
    """Check a plan and show what it promises. Runs nothing.

    What is shown: order, contention, critical path and the simulated schedule.
    """
    from dispatch.cli.output import output, print_document
    from dispatch.plans import read_plan
    from dispatch.view.prospect import prospect_document, prospect_lines

    prospect = _prospect(read_plan(plan), cap)
    if json:
        print_document(prospect_document(prospect))
    else:
        out = output()
        out.write(prospect_lines(prospect, out.width, out.chart_width, out.glyphs))


def _prospect(plan: PlanFile, cap: int | None) -> Prospect:
    from dispatch.forecast import forecast
    from dispatch.view.prospect import Prospect

    reading = _cap(cap or plan.cap)
    urgency = _urgency(plan)
    on_paper = forecast(plan.slices, reading.places, urgency=urgency)
    return Prospect(str(plan.path), plan.name, plan.slices, urgency, reading, on_paper)


def _urgency(plan: PlanFile) -> dict[str, Urgency]:
    """The strongest urgency that the plan's intents give each slice, as the service would find it."""
    from dispatch.commands import DeclareIntent, Enqueue
    from dispatch.intent import Urgency
    from dispatch.machine import Machine
    from dispatch.weights import UnitWeights

    if not plan.intents:
        return {}
    machine = Machine(plan.name, "", UnitWeights())
    machine.handle(Enqueue(plan.slices), 0.0, 0)
    for intent in plan.intents:
        machine.handle(DeclareIntent(intent), 0.0, 0)
    nodes = machine.graph.nodes.values()
    return {node.id: Urgency(node.urgency) for node in nodes if node.urgency}


def _cap(places: int | None) -> Cap:
    """The cap by hand, or what this host would allow now."""
    from dispatch.capping import CapGauge, FixedCap
    from harness import HostMeasures, default_limits

    gauge = CapGauge(FixedCap(places)) if places else CapGauge(HostMeasures(), default_limits(Path.cwd()))
    return gauge.reading(0)


def schema() -> None:
    """Print the JSON Schema of plan files."""
    from dispatch.plans import plan_schema

    sys.stdout.write(plan_schema().rstrip("\n") + "\n")
