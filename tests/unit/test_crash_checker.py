"""The crash campaign's judge: what it lets pass, and that it lets nothing else pass."""

from __future__ import annotations

import ast
import itertools
import subprocess
from pathlib import Path

import attrs
import pytest

from benchmarks.crash import checker
from benchmarks.crash.agent import blob_id
from benchmarks.crash.checker import RULES, judge
from benchmarks.crash.controls import CONTROLS, with_run
from benchmarks.crash.doctor import UnsuitableError
from benchmarks.crash.evidence import Command, Evidence, Look, Merge, Row, Start, Step, Stop, Takeover
from benchmarks.crash.plan import SHARED, Plan, plan_of

SEEDS = range(1, 9)
#: Transaction, epoch, incarnation, batch: claimed, two batches, a new connection, two renewals; claimed, a batch.
STEPS = ((10, 1, 1, 0), (11, 1, 1, 1), (12, 1, 1, 2), (13, 1, 2, 2), (14, 1, 2, 2), (15, 2, 1, 0), (16, 2, 1, 1))


def number(at: int) -> str:
    return f"{at:040x}"


def smooth(plan: Plan) -> Evidence:
    """What is left of a run in which one slice came after the other, and nothing went wrong."""
    starts: list[Start] = []
    stops: list[Stop] = []
    mainline = [Merge(number(0), "", {})]
    parents: dict[str, tuple[str, ...]] = {number(0): ()}
    for at, job in enumerate(plan.jobs.values(), start=1):
        before, work, merge = mainline[-1], number(1000 + at), number(at)
        parents |= {work: (before.commit,), merge: (before.commit, work)}
        starts.append(Start(job.id, 1, "agent", 2000 + at, at, True, frozenset(), before.commit))
        stops.append(Stop(job.id, 1, "agent", 2000 + at, at + 0.5, "done", ""))
        if job.verify_s is not None:
            starts.append(Start(job.id, 1, "verify", 1000 + at, at + 0.6, True, frozenset(), merge))
            stops.append(Stop(job.id, 1, "verify", 1000 + at, at + 0.8, "good", merge))
        mainline.append(Merge(merge, job.id, dict(before.files) | {job.own_file: blob_id(job.body)}))
    return Evidence(
        starts=tuple(starts),
        stops=tuple(stops),
        commands=(),
        mainline=tuple(mainline),
        strays=(),
        parents=parents,
        moves=tuple((one.commit, other.commit) for one, other in itertools.pairwise(mainline)),
        seen=(mainline[0].commit, mainline[-1].commit),
        written=("note",),
        safe=frozenset({"note"}),
        lines={path: tuple(job.line for job in plan.jobs.values() if path in job.shared) for path in SHARED},
        stored=dict.fromkeys(plan.jobs, "merged"),
        left=(),
        looks=(
            Look(-9.0, "the beginning", {name: Row("queued", 0, held=False) for name in plan.jobs}, frozenset()),
            Look(90.0, "the end", {name: Row("merged", 1, held=False) for name in plan.jobs}, frozenset(plan.jobs)),
        ),
        takeovers=(Takeover(1, 1, changed=False),),
        steps=tuple(itertools.starmap(Step, STEPS)),
        writers=(11, 12, 16),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_speaks_against_a_smooth_run(seed: int) -> None:
    plan = plan_of(seed)
    assert judge(plan, smooth(plan)) == []


@pytest.mark.parametrize(("code", "doctor"), [each[1:] for each in CONTROLS], ids=[each[0] for each in CONTROLS])
def test_what_is_doctored_is_found(code: str, doctor: object) -> None:
    tried = 0
    for seed in SEEDS:
        plan = plan_of(seed)
        try:
            doctored = doctor(plan, smooth(plan))  # type: ignore[operator]
        except UnsuitableError:
            continue
        tried += 1
        assert code in {violation.code for violation in judge(plan, doctored)}
    assert tried >= len(SEEDS) / 2


def test_every_rule_is_tried() -> None:
    assert {code for code, _ in RULES} == {code for _, code, _ in CONTROLS}


def test_what_was_killed_is_judged_by_its_lock_alone() -> None:
    """Nobody knows when it really ended: its start may lie before that of a contender without having overlapped it."""
    plan = plan_of(1)
    evidence = smooth(plan)
    killed = attrs.evolve(evidence.starts[1], slice=evidence.starts[0].slice, pid=7, at=evidence.starts[0].at - 1)
    killed = attrs.evolve(killed, role="agent", head=evidence.mainline[0].commit)
    assert judge(plan, attrs.evolve(evidence, starts=(killed, *evidence.starts))) == []


def commanded(plan: Plan, *commands: tuple[str, float, int | None]) -> Evidence:
    """The smooth run, with commands for its last slice at these times after the one before it has ended."""
    evidence, name = smooth(plan), list(plan.jobs)[-1]
    began = next(start.at for start in evidence.starts if start.slice == name)
    tip = evidence.mainline[-2].commit
    told = [Command(verb, name, began + at, began + at + 0.01, status, tip) for verb, at, status in commands]
    return attrs.evolve(evidence, commands=tuple(told))


@pytest.mark.parametrize(
    ("commands", "codes"),
    [
        ([("hold", -0.2, 0)], {"acknowledged"}),
        ([("hold", -0.2, 0), ("release", -0.1, 0)], set()),
        ([("hold", -0.2, 0), ("release", -0.1, None)], set()),
        ([("hold", -0.2, 0), ("release", 0.1, 0)], {"acknowledged"}),
        ([("hold", -0.3, 0), ("release", -0.2, 0), ("hold", -0.1, 0)], {"acknowledged"}),
        ([("hold", -0.2, None)], set()),
        ([("hold", -0.2, 2)], set()),
        ([("hold", 0.1, 0)], set()),
        ([("cancel", -0.2, 2)], set()),
        ([("cancel", -0.2, None)], set()),
        ([("cancel", -0.2, 0)], {"acknowledged", "once", "durable"}),
        ([("retry", -0.2, 0)], set()),
    ],
)
def test_an_acknowledged_command_holds_and_an_unknown_one_may(
    commands: list[tuple[str, float, int | None]], codes: set[str]
) -> None:
    plan = plan_of(3)
    assert {violation.code for violation in judge(plan, commanded(plan, *commands))} == codes


@pytest.mark.parametrize("status", [0, None])
def test_a_canceled_slice_need_not_merge(status: int | None) -> None:
    plan = plan_of(3)
    name = list(plan.jobs)[-1]
    evidence = commanded(plan, ("cancel", -0.2, status))
    end = evidence.looks[-1]
    evidence = attrs.evolve(
        evidence,
        starts=tuple(start for start in evidence.starts if start.slice != name),
        mainline=evidence.mainline[:-1],
        moves=evidence.moves[:-1],
        seen=evidence.seen[:1],
        lines={path: tuple(line for line in lines if name not in line) for path, lines in evidence.lines.items()},
        stored=dict(evidence.stored) | {name: "canceled"},
        looks=(attrs.evolve(end, rows={**end.rows, name: Row("canceled", 0, held=False)}, told=end.told - {name}),),
    )
    assert judge(plan, evidence) == []
    assert {violation.code for violation in judge(plan, attrs.evolve(evidence, commands=()))} == {"once"}


def test_one_more_at_once_is_one_too_many() -> None:
    plan = plan_of(2)
    evidence = smooth(plan)
    for pid, name in enumerate(list(plan.jobs)[: plan.cap], start=1):
        evidence = with_run(evidence, name, 100.0, 101.0, pid)
    assert "cap" not in {violation.code for violation in judge(plan, evidence)}
    evidence = with_run(evidence, list(plan.jobs)[plan.cap], 100.5, 102.0, 99)
    assert "cap" in {violation.code for violation in judge(plan, evidence)}


def test_the_judge_shares_no_code_with_what_it_judges() -> None:
    folder = Path(checker.__file__).parent
    for name in ("checker.py", "store_rules.py", "case.py", "evidence.py", "plan.py", "agent.py"):
        for node in ast.walk(ast.parse((folder / name).read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {each.partition(".")[0] for each in names} & {"dispatch", "listsched", "harness"}
    assert sum(len((folder / name).read_text().splitlines()) for name in ("checker.py", "store_rules.py")) <= 300


def test_an_object_is_named_as_git_names_it(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("ä\nline\n")
    said = subprocess.run(("git", "hash-object", "text"), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert blob_id("ä\nline\n") == said.stdout.strip()


@pytest.mark.parametrize("seed", range(1, 40))
def test_every_plan_has_what_the_campaign_is_about(seed: int) -> None:
    plan = plan_of(seed)
    assert plan == plan_of(seed)
    assert 2 <= plan.cap <= 4
    assert plan.rivals()
    assert any(len(job.needs) > 1 for job in plan.jobs.values()), "a join"
    assert any(job.verify_s is not None for job in plan.jobs.values())
    flavours = [job.flavour for job in plan.jobs.values()]
    assert all(flavours.count(flavour) == 1 for flavour in ("fails", "breaks", "stubborn", "doomed", "leaves-away"))
    assert not any(plan.jobs[name].flavour == "doomed" for job in plan.jobs.values() for name in job.needs)
