"""What a worker makes sure of before it takes a turn, and what is opened by the settings."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.doctor import findings
from harness.fleet.errors import FleetError, InvalidSettingError, NotReadyError
from harness.fleet.opening import open_fleet, open_transport
from harness.fleet.preflight import prepared
from harness.fleet.settings import FleetSettings, problems
from harness.fleet.work_item import Submission, WorkItemState

MODULE = """
def run(payload, guard):
    return ""
nothing = None
"""


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (tmp_path / "turns_of_ours.py").write_text(MODULE)
    (tmp_path / "broken_turns.py").write_text("raise RuntimeError('in /home/ada/turns')\n")
    (tmp_path / "wrong_turns.py").write_text(textwrap.dedent("def f(:\n"))
    monkeypatch.syspath_prepend(tmp_path)
    return {
        "STATE_DB_URI": f"sqlite:///{tmp_path / 'state.db'}",
        "TASK_QUEUE_URI": f"sqlite:///{tmp_path / 'queue.db'}",
    }


def test_all_is_there(environ: dict[str, str]) -> None:
    ready = prepared(environ, ["k=turns_of_ours:run", "l=turns_of_ours:run"])
    assert {"k", "l"} <= set(ready.executors)
    item = ready.fleet.queue.submit(Submission("a", "t", "s", "k"))
    assert item.state is WorkItemState.READY
    assert ready.fleet.transport.depth() == 1
    ready.fleet.close()


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (["k"], "write kind=module:callable"),
        (["=m:f"], "write kind=module:callable"),
        (["k="], "write kind=module:callable"),
        (["\x1b[2Jk=turns_of_ours:run"], r"--executor '\x1b[2Jk=turns_of_ours:run': kind: holds a character that"),
        ([" =turns_of_ours:run"], "kind: must not be empty"),
        ([f"{'k' * 513}=turns_of_ours:run"], "kind: has 513 characters"),
        (["k=turns_of_ours:run", "k=turns_of_ours:run"], "another one of kind 'k'"),
        (["k=no_such_turns:run"], "no module 'no_such_turns'; put its folder on PYTHONPATH"),
        (["k=turns_of_ours:walk"], "can't be loaded"),
        (["k=turns_of_ours"], "names no callable; write module:callable"),
        (["k=turns_of_ours:nothing"], "not callable"),
        (["k=broken_turns:run"], "importing 'broken_turns' raised RuntimeError"),
        (["k=wrong_turns:run"], "importing 'wrong_turns' raised SyntaxError"),
    ],
)
def test_executors_that_are_none(environ: dict[str, str], named: list[str], words: str) -> None:
    with pytest.raises(NotReadyError) as refused:
        prepared(environ, named)
    (problem,) = refused.value.problems
    assert words in problem
    assert "ada" not in problem


def test_a_worker_without_executors_is_told_of_them(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.fleet.executors.entry_points", lambda group: [])
    with pytest.raises(NotReadyError, match="no executor is installed or named: name one with --executor"):
        prepared(environ, [])


def test_everything_that_is_wrong_is_told_at_once(environ: dict[str, str], tmp_path: Path) -> None:
    wrong = {"AGENT_DISPATCH_CLAIM_TTL_S": "400", "AGENT_TURNS_PARTITIONS": "0"}
    with pytest.raises(NotReadyError) as refused:
        prepared(environ | wrong, ["k=turns_of_ours:walk", "l", "m=turns_of_ours:run"])
    told = [problem.partition(":")[0] for problem in refused.value.problems]
    assert told == ["AGENT_DISPATCH_CLAIM_TTL_S", "AGENT_TURNS_PARTITIONS", "--executor l", "executor of 'k'"]
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.parametrize("remote", ["--upload-pack=touch x", "-c", "git@host:x\n.git"])
def test_a_remote_that_git_would_take_for_an_option_is_refused_at_the_start(
    environ: dict[str, str], remote: str, tmp_path: Path
) -> None:
    with pytest.raises(NotReadyError) as refused:
        prepared(environ | {"AGENT_DISPATCH_REMOTE": remote}, ["k=turns_of_ours:run"])
    assert [problem.partition(" ")[0] for problem in refused.value.problems] == ["AGENT_DISPATCH_REMOTE:"]
    assert "upload" not in str(refused.value)
    (found,) = (each for each in findings(environ | {"AGENT_DISPATCH_REMOTE": remote}))
    assert (found.name, found.says.partition(":")[0]) == ("configuration", "AGENT_DISPATCH_REMOTE")


@pytest.mark.parametrize(
    "wrong",
    [
        {"STATE_DB_URI": "sqlite:////proc/nowhere/state.db"},
        {"TASK_QUEUE_URI": "sqlite:////proc/nowhere/queue.db"},
        {"STATE_DB_URI": "postgresql://127.0.0.1:1/db"},
        {"TASK_QUEUE_BACKEND": "postgres", "TASK_QUEUE_URI": "postgresql://127.0.0.1:1/db"},
    ],
)
def test_what_was_asked_for_and_is_not_there_is_not_replaced(environ: dict[str, str], wrong: dict[str, str]) -> None:
    with pytest.raises(NotReadyError) as refused:
        prepared(environ | wrong, ["k=turns_of_ours:run"])
    assert len(refused.value.problems) == 1


def test_kafka_without_its_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("harness.fleet.transport.kafka")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(InvalidSettingError, match=r"TASK_QUEUE_BACKEND.*install slice-dispatch\[kafka\]"):
        open_transport(FleetSettings.of({"TASK_QUEUE_BACKEND": "kafka"}))


class Closable(MemoryWorkItems):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_an_authority_is_not_left_open_when_its_transport_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Closable()
    monkeypatch.setattr("harness.fleet.opening.open_authority", lambda settings: authority)
    with pytest.raises(FleetError):
        open_fleet(FleetSettings("postgres", "sqlite:///unused", "postgresql://a:b:c@d/e"))
    assert authority.closed == 1


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, []),
        ({"TASK_QUEUE_BACKEND": "postgres"}, ["STATE_DB_URI"]),
        (
            {"TASK_QUEUE_BACKEND": "x", "AGENT_DISPATCH_RENEW_INTERVAL_S": "200"},
            ["TASK_QUEUE_BACKEND", "AGENT_DISPATCH_RENEW_INTERVAL_S"],
        ),
        (
            {"AGENT_DISPATCH_CLAIM_TTL_S": "301", "AGENT_DISPATCH_RENEW_INTERVAL_S": "41"},
            ["AGENT_DISPATCH_CLAIM_TTL_S", "AGENT_DISPATCH_RENEW_INTERVAL_S"],
        ),
    ],
)  # fmt: skip
def test_settings_are_looked_at_to_the_end(environ: dict[str, str], names: list[str]) -> None:
    assert [problem.name for problem in problems(environ)] == names
