"""What the host of this machine refuses, by name. Each message is one line that says what to do."""

from __future__ import annotations


class LocalHostError(Exception):
    """The base of all of them."""


class RepositoryError(LocalHostError):
    """The repository can't be worked with as it is: none there, no commit, a dirty checkout, git too old."""


class GitError(LocalHostError):
    """A git command failed. `.command` is its words, `.code` its exit status, `.said` what it wrote to stderr."""

    def __init__(self, command: str, code: int | None, said: str) -> None:
        line = next((text for text in reversed(said.splitlines()) if text.startswith(("fatal:", "error:"))), "")
        why = line or next(iter(said.strip().splitlines()), "") or f"exit {code}"
        super().__init__(f"git {command}: {why}")
        self.command, self.code, self.said = command, code, said


class RefusedCommitError(GitError):
    """A hook refused to have committed what an agent left uncommitted."""

    def __init__(self, error: GitError) -> None:
        super().__init__(error.command, error.code, error.said)
        self.args = (f"refused by a hook: {error}",)


class StrayedError(LocalHostError):
    """An agent left its worktree in a state from which its work can't be told. `.problem` says which."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class SupersededError(LocalHostError):
    """Another process has taken the slice over, for a later attempt, or its graph: this one must not merge."""


class NotOwnedError(LocalHostError):
    """The claim on the graph may be another process's by now: nothing may be merged before it is known not to be."""

    def __init__(self) -> None:
        super().__init__("another process owns the graph now")


class NoSessionError(LocalHostError):
    """The assignment has no session that could take a message."""

    def __init__(self, assignment_id: str) -> None:
        super().__init__(f"{assignment_id!r} has no running session here; see what became of it with: explain")
        self.assignment_id = assignment_id


class InvalidAssignmentError(LocalHostError):
    """An assignment has a field that can't name a branch or a folder."""

    def __init__(self, field: str, value: str) -> None:
        super().__init__(f"{field} {value[:80]!r} can't name a branch or a folder")
        self.field, self.value = field, value
