"""Plan files: TOML and YAML, checked as a whole, with errors that name the line."""

from dispatch.plans.problems import PlanFileError, Problem
from dispatch.plans.reader import PlanFile, parse_plan, read_plan
from dispatch.plans.schema import plan_schema
from dispatch.plans.source import PlanFormat

__all__ = ["PlanFile", "PlanFileError", "PlanFormat", "Problem", "parse_plan", "plan_schema", "read_plan"]
