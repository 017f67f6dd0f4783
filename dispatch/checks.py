"""Whether an intent is fulfilled by main as it is: by the project's glossary, or by a gate.

A *gate* is a command that passes when nothing is left to do. It runs in a clean checkout of main, a clone made for it,
so that neither the user's checkout nor a session's worktree is touched.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import anyio
import attrs

from dispatch.commands import Proof
from dispatch.intent import Intent
from dispatch.routing import terms_of

# Where a line of Markdown defines a term: a heading, an entry that begins in bold, a first table cell, `term: meaning`.
_DEFINITIONS = (
    re.compile(r"#{1,6}\s+(?P<term>.+?)\s*#*$"),
    re.compile(r"(?:[-*+]\s+|\|\s*)?(?:\*\*|__)(?P<term>.+?)(?:\*\*|__)"),
    re.compile(r"\|\s*(?P<term>[^|]+?)\s*\|"),
    re.compile(r"(?:[-*+]\s+)?(?P<term>[^:|#*]+?)\s*:\s"),
)
_MARKUP = re.compile(r"[`*_:]")


def defined_terms(lines: Iterable[str]) -> set[str]:
    """The terms that a glossary in Markdown defines, case folded.

    >>> sorted(defined_terms(["# Frontier", "- **claim**: who owns it", "| `epoch` | a number |", "plain words"]))
    ['claim', 'epoch', 'frontier']
    """
    found = (pattern.match(line.strip()) for line in lines for pattern in _DEFINITIONS)
    return {term for match in found if match and (term := _MARKUP.sub("", match["term"]).strip().casefold())}


@attrs.frozen
class RepositoryChecks:
    """Checks intents against `main` of a repository.

    `glossary` is a path inside it (empty: none is looked at); `gates` are commands by intent id. A gate that takes
    more than `limit_s` seconds has not passed. What can't be checked is a finding, never an error.
    """

    repository: Path
    main: str = "main"
    glossary: str = ""
    gates: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    limit_s: float = 600.0

    async def prove(self, intent: Intent) -> Proof:
        """The proof that nothing is to do for `intent`, or what was found instead."""
        findings: list[str] = []
        reference = await self._by_glossary(intent, findings) or await self._by_gate(intent, findings)
        return Proof(reference, tuple(findings))

    async def _by_glossary(self, intent: Intent, findings: list[str]) -> str:
        terms = terms_of(intent)
        if not self.glossary or not terms:
            return ""
        shown = await self._run(("git", "show", f"{self.main}:{self.glossary}"), self.repository)
        if shown.returncode:
            findings.append(f"the glossary {self.glossary} can't be read on {self.main}: {_last_line(shown.stderr)}")
            return ""
        known = defined_terms(shown.stdout.decode("utf-8", "replace").splitlines())
        missing = [term for term in terms if term not in known]
        if missing:
            findings.append(f"not defined in {self.glossary}: {', '.join(missing)}")
            return ""
        return f"{self.glossary} on {self.main} defines {', '.join(terms)}"

    async def _by_gate(self, intent: Intent, findings: list[str]) -> str:
        gate = self.gates.get(intent.id)
        if gate is None:
            return ""
        words = " ".join(gate)
        with tempfile.TemporaryDirectory(prefix="dispatch-gate-") as folder:
            cloned = await self._run(
                ("git", "clone", "--quiet", "--branch", self.main, "--", str(self.repository.resolve()), folder), None
            )
            if cloned.returncode:
                findings.append(f"the gate can't be run, {self.main} can't be checked out: {_last_line(cloned.stderr)}")
                return ""
            try:
                with anyio.fail_after(self.limit_s):
                    ended = await self._run(tuple(gate), Path(folder))
            except TimeoutError:
                findings.append(f"the gate did not end within {self.limit_s:g} s: {words}")
                return ""
            except OSError as error:
                findings.append(f"the gate can't be run: {error}")
                return ""
        if ended.returncode:
            findings.append(f"the gate does not pass (exit status {ended.returncode}): {words}")
            return ""
        return f"the gate passes on {self.main}: {words}"

    @staticmethod
    async def _run(command: Sequence[str], folder: Path | None) -> subprocess.CompletedProcess[bytes]:
        return await anyio.run_process(command, cwd=folder, check=False, stdin=subprocess.DEVNULL)


def _last_line(output: bytes) -> str:
    return (output.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
