"""Where sessions run: the port between a scheduler and its sessions, and the host for this machine."""

from harness.session import (
    AdoptingHost,
    Assignment,
    Recipe,
    ReportingHost,
    SessionHost,
    SessionPhase,
    SessionState,
)

__all__ = [
    "AdoptingHost",
    "Assignment",
    "Recipe",
    "ReportingHost",
    "SessionHost",
    "SessionPhase",
    "SessionState",
]
