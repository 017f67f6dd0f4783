"""The published JSON Schema of plan files."""

from __future__ import annotations

from importlib import resources


def plan_schema() -> str:
    """The text of `plan.schema.json`, draft 2020-12. It accepts every plan that the reader accepts."""
    return resources.files("dispatch.plans").joinpath("plan.schema.json").read_text("utf-8")
