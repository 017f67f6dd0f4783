"""Intents that main fulfils already: by its glossary, by a gate run in a clean checkout."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from dispatch import DispatchService, FixedCap, Intent, RouteDecision, Slice
from dispatch.checks import RepositoryChecks, defined_terms
from dispatch.commands import Proof
from harness import Assignment

GLOSSARY = """# Glossary

## Frontier

- **Claim**: who owns a graph
| term | meaning |
|---|---|
| `epoch` | a number that only rises |
Lease: a claim for a time
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "GLOSSARY.md").write_text(GLOSSARY)
    (folder / "done.txt").write_text("yes\n")
    for command in (
        ("init", "--quiet", "--initial-branch", "main"),
        ("add", "."),
        ("-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "--quiet", "-m", "first"),
    ):
        subprocess.run(("git", *command), cwd=folder, check=True)
    return folder


def prove(checks: RepositoryChecks, intent: Intent) -> Proof:
    return anyio.run(checks.prove, intent)


def test_a_glossary_defines_terms_in_every_usual_form() -> None:
    assert {"glossary", "frontier", "claim", "epoch", "lease"} <= defined_terms(GLOSSARY.splitlines())


@pytest.mark.parametrize(
    ("terms", "proven", "finding"),
    [
        (("Frontier", " claim "), True, ""),
        (("epoch", "lease"), True, ""),
        (("epoch", "quorum"), False, "not defined in GLOSSARY.md: quorum"),
        ((), False, ""),
    ],
)
def test_every_term_must_be_defined(repository: Path, terms: tuple[str, ...], proven: bool, finding: str) -> None:
    checks = RepositoryChecks(repository, glossary="GLOSSARY.md")
    proof = prove(checks, Intent("i", "define them", terms=terms))
    assert (bool(proof.reference), "; ".join(proof.findings)) == (proven, finding)


def test_a_missing_glossary_is_a_finding(repository: Path) -> None:
    proof = prove(RepositoryChecks(repository, glossary="NONE.md"), Intent("i", "define it", terms=("claim",)))
    assert not proof.reference
    assert "NONE.md can't be read on main" in proof.findings[0]


def check(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


@pytest.mark.parametrize(
    ("gate", "proven", "finding"),
    [
        (check("assert open('done.txt').read() == 'yes\\n'"), True, ""),
        (check("raise SystemExit(3)"), False, "exit status 3"),
        (("no-such-command-anywhere",), False, "can't be run"),
    ],
)
def test_a_gate_runs_in_a_clean_checkout(repository: Path, gate: tuple[str, ...], proven: bool, finding: str) -> None:
    (repository / "done.txt").write_text("changed, not committed\n")
    proof = prove(RepositoryChecks(repository, gates={"i": gate}), Intent("i", "do it"))
    assert bool(proof.reference) == proven
    assert finding in "; ".join(proof.findings)


def test_a_gate_that_does_not_end_has_not_passed(repository: Path) -> None:
    checks = RepositoryChecks(repository, gates={"i": check("import time; time.sleep(600)")}, limit_s=0.2)
    assert "did not end within 0.2 s" in prove(checks, Intent("i", "do it")).findings[0]


def test_main_that_is_missing_is_a_finding(repository: Path) -> None:
    checks = RepositoryChecks(repository, main="trunk", gates={"i": check("pass")})
    assert "trunk can't be checked out" in prove(checks, Intent("i", "do it")).findings[0]


class Nowhere:
    """A host that takes everything and does nothing."""

    async def submit(self, assignment: Assignment) -> None: ...

    async def send(self, assignment_id: str, message: str) -> str:
        return "turn-2"

    async def cancel(self, assignment_id: str) -> None: ...


def test_route_asks_the_checks_when_no_slice_is_a_target(repository: Path) -> None:
    checks = RepositoryChecks(repository, gates={"done": check("pass"), "open": check("raise SystemExit(1)")})
    with DispatchService(Nowhere(), measures=FixedCap(1), checks=checks) as service:
        done = service.route(Intent("done", "is it?"), new_slice=Slice("never"))
        assert (done.decision, done.slice_id) == (RouteDecision.ALREADY_DONE, "")
        assert "the gate passes on main" in done.reference
        fresh = service.route(Intent("open", "do it"), new_slice=Slice("work"))
        assert (fresh.decision, fresh.slice_id) == (RouteDecision.NEW, "work")
        assert "does not pass" in fresh.findings[0]
        assert [view.id for view in service.list()] == ["work"]
