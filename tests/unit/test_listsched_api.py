"""What the package exports, and that the examples in its documentation are true."""

from __future__ import annotations

import doctest
import importlib

import pytest

import listsched

MODULES = ["bounds", "pick", "plan", "rank", "simulate"]


def test_the_public_names() -> None:
    assert listsched.__all__ == [
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
    assert sorted(listsched.__all__) == listsched.__all__
    assert all(getattr(listsched, name).__doc__ for name in listsched.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"listsched.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("name", "papers"),
    [
        ("plan", ["Bounds on Multiprocessing Timing Anomalies"]),
        ("pick", ["Bounds on Multiprocessing Timing Anomalies"]),
        ("bounds", ["Bounds on Multiprocessing Timing Anomalies", "The one-machine sequencing problem"]),
        ("rank", ["Performance-Effective and Low-Complexity Task Scheduling for Heterogeneous Computing"]),
        (
            "simulate",
            [
                "Bounds on Multiprocessing Timing Anomalies",
                "Performance-Effective and Low-Complexity Task Scheduling for Heterogeneous Computing",
            ],
        ),
    ],
)
def test_the_papers_are_cited(name: str, papers: list[str]) -> None:
    text = " ".join(str(importlib.import_module(f"listsched.{name}").__doc__).split())
    assert all(paper in text for paper in papers)
