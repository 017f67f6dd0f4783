"""The demonstration, as it is typed; what it shows is judged from outside: by git, and by what the agents wrote."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

LIMIT_S = 60  #: it "takes under a minute"
UNFRIENDLY = """\
[init]
    defaultBranch = master
[commit]
    gpgSign = true
[gpg]
    program = false
[core]
    hooksPath = {hooks}
    autocrlf = true
[user]
    useConfigOnly = true
[log]
    showSignature = true
"""


@attrs.frozen
class Demo:
    """A demo that was run with `--keep`: what it printed, and what it left."""

    printed: list[str]
    repository: Path
    took_s: float

    def git(self, *words: str) -> str:
        done = subprocess.run(("git", *words), cwd=self.repository, capture_output=True, text=True, check=True)
        return done.stdout.strip("\n")

    def file(self, path: str) -> list[str]:
        return self.git("show", f"main:{path}").splitlines()

    def merges(self) -> list[str]:
        """The slices in the order in which they reached main."""
        trailer = "--format=%(trailers:key=Dispatch-Slice,valueonly,separator=)"
        return self.git("log", "--reverse", "--first-parent", "--merges", trailer, "main").splitlines()

    def spans(self, slice_id: str) -> list[tuple[float, float]]:
        """From when to when its agents ran, by their own clocks."""
        return [(moment("begins", log), moment("ends", log)) for log in self.logs(slice_id)]

    def logs(self, slice_id: str) -> list[Path]:
        """What each of its attempts has printed, the first one first."""
        return sorted((self.repository / ".git" / "dispatch" / "logs").glob(f"*/{slice_id}/*.log"))


def moment(word: str, log: Path) -> float:
    (found,) = re.findall(rf"^{word} at ([0-9.]+)$", log.read_text(), re.MULTILINE)
    return float(found)


def unfriendly_home(folder: Path) -> Path:
    """A home that can't be written to, with settings that get in the way of commits, and without an identity."""
    hooks, home = folder / "hooks", folder / "home"
    for each in (hooks, home):
        each.mkdir()
    for name in ("pre-commit", "commit-msg", "reference-transaction", "post-checkout"):
        (hooks / name).write_text("#!/bin/sh\nexit 1\n")
        (hooks / name).chmod(0o755)
    (home / ".gitconfig").write_text(UNFRIENDLY.format(hooks=hooks))
    home.chmod(0o500)
    return home


def environment(folder: Path, **more: str) -> dict[str, str]:
    (folder / "tmp").mkdir()
    return {"PATH": os.environ["PATH"], "TMPDIR": str(folder / "tmp"), "COLUMNS": "80", "LANG": "C.UTF-8"} | more


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    home = unfriendly_home(folder)
    began = time.monotonic()
    done = subprocess.run(
        (sys.executable, "-m", "dispatch", "demo", "--plain", "--keep", folder / "kept"),
        env=environment(folder, HOME=str(home), GIT_DIR="/nowhere", GIT_INDEX_FILE="/nowhere/index"),
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    took_s = time.monotonic() - began
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    yield Demo(done.stdout.splitlines(), folder / "kept" / "shop", took_s)
    home.chmod(0o700)


def test_it_ends_well_and_in_time(demo: Demo) -> None:
    assert demo.took_s < LIMIT_S
    assert len([text for text in demo.printed if text.startswith("  ok  ")]) == 8
    assert not [text for text in demo.printed if text.startswith(" NOT  ")]
    assert "12 of 12 slices merged" in "\n".join(demo.printed)


def test_it_tells_its_story_in_lines_that_fit(demo: Demo) -> None:
    assert "\x1b" not in "\n".join(demo.printed)
    run = next(at for at, text in enumerate(demo.printed) if text.startswith("graph demo in "))
    verdict = next(at for at, text in enumerate(demo.printed) if text.startswith("What this shows"))
    for text in (*demo.printed[:run], *demo.printed[verdict:]):
        assert len(text) <= 80
    happened = [text[8:] for text in demo.printed[run:verdict] if re.match(r" *[0-9.]+s  ", text)]
    for beginning in (
        "operator   layout  answers its question",
        "closed     prices",
        "failed     payments  exit 1: the bank's test server doesn't answer",
        "operator   payments  gives it another chance",
        "started    payments  attempt 2",
        "operator   hotfix  sees that it contends with stocktaking",
        "operator   hotfix  declares an URGENT intent",
        "preempted  stocktaking",
        "stopped    stocktaking  it made room",
        "merged     hotfix",
        "merged     stocktaking",
    ):
        at = next((at for at, text in enumerate(happened) if text.startswith(beginning)), None)
        assert at is not None, f"{beginning!r} was not told"


def test_every_slice_is_on_main_once(demo: Demo) -> None:
    plan = re.findall(r"^\[slices\.(\w+)\]$", (demo.repository / "plan.toml").read_text(), re.MULTILINE)
    assert len(plan) == 12
    assert sorted(demo.merges()) == sorted(plan)
    for path in demo.git("ls-tree", "-r", "--name-only", "main", "shop").splitlines():
        parts = [re.sub(r" \(.*\)$", "", text) for text in demo.file(path)]
        title, number = parts[0].split(": part 1 of ")
        assert parts == [f"{title}: part {part} of {number}" for part in range(1, int(number) + 1)]
    assert demo.git("status", "--porcelain") == ""
    demo.git("fsck", "--no-dangling")


def test_what_depends_on_others_merged_after_them(demo: Demo) -> None:
    merges = demo.merges()
    for chain in (("schema", "storage", "checkout"), ("layout", "cart", "checkout")):
        assert sorted(chain, key=merges.index) == list(chain)


def test_what_contends_never_ran_at_once(demo: Demo) -> None:
    for one, other in (("schema", "payments"), ("search", "filters"), ("stocktaking", "hotfix")):
        for begin, last in demo.spans(one):
            assert all(last <= theirs[0] or theirs[1] <= begin for theirs in demo.spans(other)), (one, other)


def test_as_many_as_allowed_ran_at_once(demo: Demo) -> None:
    spans = [span for name in demo.merges() for span in demo.spans(name)]
    most = max(sum(first <= begin < last for first, last in spans) for begin, _ in spans)
    assert 2 <= most <= 4


def test_the_conflict_was_met_and_resolved(demo: Demo) -> None:
    lines = demo.file("README.md")
    assert "Price list: part 1 of 1" in lines
    assert "Opening hours: part 1 of 1" in lines
    assert sorted(len(demo.spans(name)) for name in ("prices", "hours")) == [1, 2]


def test_the_answer_reached_the_agent(demo: Demo) -> None:
    assert demo.file("shop/layout.txt")[0] == "Page layout: part 1 of 2 (green, like the sign over the door)"


def test_the_preempted_slice_went_on_where_it_stopped(demo: Demo) -> None:
    first, second = (log.read_text() for log in demo.logs("stocktaking"))
    assert "was asked to stop, and stops at a safepoint" in first
    done, went_on = (re.findall(r"^has committed part (\d)", text, re.MULTILINE) for text in (first, second))
    assert [*done, *went_on] == ["1", "2", "3", "4"]
    merges = demo.merges()
    assert merges.index("hotfix") < merges.index("stocktaking")


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    # a shell that starts us in the background ignores SIGINT for all that it starts
    heed = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    command = (sys.executable, "-c", heed, sys.executable, "-m", "dispatch", "demo", "--plain")
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=environment(tmp_path), stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None
        begun = next(text for text in process.stdout if "started    hours" in text)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert begun
    assert (process.returncode, err) == (130, "")
    assert "What this shows" not in out
    assert out.endswith("\nthe demo ends here, as it was interrupted\n")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine.txt").write_text("mine")
    done = subprocess.run(
        (sys.executable, "-m", "dispatch", "demo", "--keep", tmp_path / "kept"),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path / 'kept'} isn't empty; name a new folder with --keep\n"
    assert done.stdout == ""
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine.txt"]
