"""The demo's repository, and that nobody's settings reach it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from dispatch.cli.ending import RefusedError
from dispatch.demo.playground import playground


def test_it_is_a_repository_with_a_plan_and_an_agent_and_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = dict(os.environ)
    with playground(None) as place:
        assert place.git("branch", "--show-current") == "main"
        assert place.git("ls-files").split() == ["README.md", "agent.py", "check.sh", "plan.toml"]
        assert place.git("status", "--porcelain") == ""
        assert list((place.repository / ".git").glob("hooks/*")) == []
        assert os.environ != before
    assert dict(os.environ) == before
    assert list(tmp_path.iterdir()) == []


def test_it_is_removed_when_something_goes_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = dict(os.environ)
    with pytest.raises(ZeroDivisionError), playground(None):
        raise ZeroDivisionError
    assert dict(os.environ) == before
    assert list(tmp_path.iterdir()) == []


def test_what_git_is_told_elsewhere_does_not_reach_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[user]\n\tname = Somebody\n[core]\n\thooksPath = /nowhere\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    with playground(tmp_path / "kept") as place:
        assert place.git("log", "--format=%an <%ae>") == "Demo agent <agent@demo.invalid>"
        assert "core.hookspath" not in place.git("config", "--list")
    assert os.environ["GIT_DIR"] == "/nowhere"
    assert (tmp_path / "kept" / "shop" / "plan.toml").exists()


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RefusedError, match=r"can't be used: .*; name another folder with --keep"),
        playground(tmp_path / name),
    ):
        raise AssertionError("it was made")
