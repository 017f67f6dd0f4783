"""The README keeps its word: its code runs, its plan is a plan, its commands and links are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dispatch.plans import read_plan
from tests.e2e.desk import Desk

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = ("README.md", "CHANGELOG.md", "docs/demo.md", "docs/glossary.md")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return str(found)


def test_the_embedding_example_runs(desk: Desk) -> None:
    example = block("python")
    assert len(example.splitlines()) <= 25
    done = subprocess.run(
        (sys.executable, "-W", "error", "-c", example),
        cwd=desk.repo,
        env=desk.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["parser merged", "printer merged", "docs merged"]
    assert sorted(desk.merged()) == ["docs", "parser", "printer"]
    assert desk.git("ls-tree", "--name-only", "main").split() == ["a.txt", "docs.txt", "parser.txt", "printer.txt"]


def test_the_plan_is_one(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(block("toml"))
    plan = read_plan(path)
    assert [slice_.id for slice_ in plan.slices] == ["parser", "printer", "docs"]
    assert not plan.slices[0].touch.overlaps(plan.slices[1].touch)


def test_the_commands_are_there(desk: Desk) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    made = re.findall(r"^    make (\w+)", README, re.MULTILINE)
    assert made == ["demo", "test"]
    assert set(made) <= set(targets)
    help_ = desk.run("--help").stdout
    typed = re.findall(r"^    slice-dispatch (\w+)", README, re.MULTILINE)
    assert len(typed) == 7
    for command in typed:
        assert re.search(rf"^  {command} ", help_, re.MULTILINE), command


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
    missing = [link for link in links if "://" not in link and not (ROOT / page).parent.joinpath(link).exists()]
    assert missing == []


def test_pictures_fetch_nothing() -> None:
    pictures = list((ROOT / "docs" / "images").glob("*.svg"))
    assert {path.stem for path in pictures} == {"plan", "run", "summary", "verdict"}
    for path in pictures:
        assert set(re.findall(r"[a-z]+://[^\"' )]+", path.read_text())) == {"http://www.w3.org/2000/svg"}


def test_the_glossary_has_each_word_once_in_order() -> None:
    lines = [line for line in (ROOT / "docs" / "glossary.md").read_text().splitlines() if line.startswith("- ")]
    words = [re.match(r"- \*\*(.+?)\*\*: ", line) for line in lines]
    found = [word[1] for word in words if word is not None]
    assert len(found) == len(lines)
    assert found == sorted(set(found))
