"""List scheduling as a library: a networkx graph with durations in, a schedule out, and the decision behind it."""

from listsched.bounds import graham_bound, lower_bound
from listsched.pick import Waiting, pick
from listsched.plan import Plan, PlanError
from listsched.rank import Ranked, UpwardRanks, critical_path, upward_rank
from listsched.simulate import Schedule, simulate

__all__ = [
    "Plan",
    "PlanError",
    "Ranked",
    "Schedule",
    "UpwardRanks",
    "Waiting",
    "critical_path",
    "graham_bound",
    "lower_bound",
    "pick",
    "simulate",
    "upward_rank",
]
