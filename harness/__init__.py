"""Where sessions run: the port between a scheduler and its sessions, and the host for this machine."""

from harness.limits import DiskLimit, Limit, LimitReading, MemoryLimit, default_limits
from harness.local import LocalSessionHost, RepositoryError
from harness.measures import HostMeasures, worker_cap
from harness.session import (
    AdoptingHost,
    Assignment,
    FencedHost,
    HostClosedError,
    PromptHost,
    Recipe,
    ReportingHost,
    SessionHost,
    SessionPhase,
    SessionState,
)

__all__ = [
    "AdoptingHost",
    "Assignment",
    "DiskLimit",
    "FencedHost",
    "HostClosedError",
    "HostMeasures",
    "Limit",
    "LimitReading",
    "LocalSessionHost",
    "MemoryLimit",
    "PromptHost",
    "Recipe",
    "ReportingHost",
    "RepositoryError",
    "SessionHost",
    "SessionPhase",
    "SessionState",
    "default_limits",
    "worker_cap",
]
