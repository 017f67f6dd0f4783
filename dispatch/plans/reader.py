"""Plan files: `read_plan` and `parse_plan`. The format is described in `docs/plans.md` and `plan.schema.json`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from dispatch.intent import Intent
from dispatch.plans import fields
from dispatch.plans.intents import read_intents
from dispatch.plans.nodes import Node, Scalar, Table, kind_of
from dispatch.plans.problems import Findings, MisfitError, PlanFileError, printable
from dispatch.plans.references import check_circles, check_references
from dispatch.plans.section import Section
from dispatch.plans.slices import Draft, read_defaults, read_slice
from dispatch.plans.source import PlanFormat, clean, format_of, read_text
from dispatch.plans.toml_nodes import read_toml
from dispatch.plans.yaml_nodes import read_yaml
from dispatch.slice import Slice

PLAN_KEYS = ("name", "cap", "main", "defaults", "slices", "intents")


@attrs.frozen
class PlanFile:
    """A plan that has been read and checked.

    `slices` are in the order of the file. `intents`: first those that slices declare by an urgency or a deadline
    (`plan.<slice id>`), then the plan's own. `cap` is the number of slices to run at once, `main` the branch to merge
    into; None leaves either to be found out. `name` is the file's, without its suffix, unless the plan has one.
    """

    path: Path
    name: str
    slices: tuple[Slice, ...]
    intents: tuple[Intent, ...]
    cap: int | None
    main: str | None


def read_plan(path: Path) -> PlanFile:
    """Read and check a `.toml`, `.yaml` or `.yml` file. Raises `PlanFileError` with all that is wrong with it."""
    with _refusing(path):
        text = read_text(path)
        root = _root(text, format_of(path))
    return _plan(root, path)


def parse_plan(text: str, format: PlanFormat, name: str) -> PlanFile:
    """The same for text at hand; `name` stands for the file's name."""
    path = Path(name)
    with _refusing(path):
        root = _root(clean(text), format)
    return _plan(root, path)


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """For as long as the file can't be taken for a table, the first misfit is the only problem."""
    try:
        yield
    except MisfitError as misfit:
        findings = Findings(str(path))
        findings.add(misfit.at, "", misfit.problem)
        raise PlanFileError(findings.found) from None


def _root(text: str, format: PlanFormat) -> Table:
    root: Node = read_toml(text) if format == "toml" else read_yaml(text)
    if isinstance(root, Table):
        return root
    if isinstance(root, Scalar) and root.value is None:
        raise MisfitError("is empty; a plan has slices", root.at)
    raise MisfitError(f"a plan is a table with slices in it, not {kind_of(root)}", root.at)


def _plan(root: Table, path: Path) -> PlanFile:
    findings = Findings(str(path))
    top = Section(root, "", findings)
    top.check_keys(PLAN_KEYS)
    drafts = _drafts(top)
    plan = PlanFile(
        path=path,
        name=top.take("name", fields.name, printable(path.stem)),
        slices=tuple(draft.slice for draft in drafts),
        intents=read_intents(top, drafts),
        cap=top.take("cap", fields.whole, None),
        main=top.take("main", fields.branch, None),
    )
    findings.settle()
    return plan


def _drafts(top: Section) -> list[Draft]:
    defaults = read_defaults(top.subsection("defaults"))
    sections = top.sections_by_id("slices")
    drafts = [read_slice(slice_id, section, defaults) for slice_id, section in sections]
    if not drafts and not top.findings.found:
        top.refuse("slices", "has no slices; a plan has at least one")
    check_references(drafts)
    check_circles(drafts)
    return drafts
