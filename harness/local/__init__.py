"""Sessions on this machine: worktrees, processes, merges."""

from harness.local.errors import (
    GitError,
    InvalidAssignmentError,
    LocalHostError,
    NoSessionError,
    RepositoryError,
)
from harness.local.host import LocalSessionHost, RunningSession

__all__ = [
    "GitError",
    "InvalidAssignmentError",
    "LocalHostError",
    "LocalSessionHost",
    "NoSessionError",
    "RepositoryError",
    "RunningSession",
]
