"""Looking at a fleet without making one, and how what can't be used is called by its variable."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from harness.fleet.doctor import Standing, findings
from harness.fleet.errors import FleetBrokenError, FleetUnavailableError, NotReadyError, UnknownItemError
from harness.fleet.jobs import graph_jobs
from harness.fleet.looking import authority_to_look_at, is_missing, naming_transport, queue_variable, why_not_made
from harness.fleet.opening import open_authority
from harness.fleet.preflight import prepared
from harness.fleet.privacy import Redactor
from harness.fleet.settings import FleetSettings
from harness.fleet.transport.kafka import KafkaQueue


def environ(folder: Path, **more: str) -> dict[str, str]:
    return {
        "STATE_DB_URI": f"sqlite:///{folder / 'state.db'}",
        "TASK_QUEUE_URI": f"sqlite:///{folder / 'queue.db'}",
    } | more


@pytest.mark.parametrize("action", ["status", "cancel", "requeue", "list", "dead"])
def test_who_asks_for_jobs_makes_no_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    for name, value in environ(tmp_path / "fleet").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FleetBrokenError, match=r"^STATE_DB_URI: there is none yet: a worker makes it"):
        graph_jobs(action, "a")
    assert list(tmp_path.iterdir()) == []


def test_an_authority_that_there_is_is_looked_at(tmp_path: Path) -> None:
    settings = FleetSettings.of(environ(tmp_path))
    with closing(open_authority(settings)) as authority:
        authority.tally()
    assert not is_missing(settings.state_db_uri)
    with authority_to_look_at(settings) as authority, pytest.raises(UnknownItemError):
        graph_jobs("status", "a", authority=authority)
    assert not (tmp_path / "queue.db").exists()


def folder_of_another(tmp_path: Path) -> Path:
    (tmp_path / "there").write_text("no folder")
    return tmp_path / "there" / "fleet"


def test_a_worker_is_told_which_variables_are_wrong_and_no_path(tmp_path: Path) -> None:
    settings = environ(folder_of_another(tmp_path))
    with pytest.raises(NotReadyError) as refused:
        prepared(settings, [])
    redactor = Redactor.of(settings)
    assert [redactor.redacted(each) for each in refused.value.problems] == [
        "STATE_DB_URI: its folder is not a folder; name another place for the authority",
        "TASK_QUEUE_URI: its folder is not a folder; name another place for the queue",
    ]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.mkdir(), "TASK_QUEUE_URI: its file is a folder; name a file in it"),
        (
            lambda path: path.write_text("words " * 999),
            "TASK_QUEUE_URI: its file is not a SQLite database; move it away",
        ),
        (lambda path: stranger(path), "TASK_QUEUE_URI: its file is a SQLite database of another program; name another"),
    ],
)
def test_what_is_no_queue_is_told_by_its_variable(tmp_path: Path, make: object, says: str) -> None:
    assert callable(make)
    make(tmp_path / "queue.db")
    with pytest.raises(NotReadyError) as refused:
        prepared(environ(tmp_path), [])
    (problem,) = refused.value.problems
    assert problem.startswith(says) and str(tmp_path) not in problem
    (found,) = (each for each in findings(environ(tmp_path)) if each.name == "transport")
    assert found.standing is Standing.FAIL and found.says.startswith(says)
    assert found.mend.startswith("see that TASK_QUEUE_URI names a file in a folder on a local disk")


def stranger(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE theirs (a)")


def test_a_file_that_nobody_can_make_is_a_failure_that_says_why(tmp_path: Path) -> None:
    for uri, problem in (
        ("sqlite:////proc/nowhere/state.db", "its file can't be made: there can be no files where"),
        (
            f"sqlite:///{folder_of_another(tmp_path)}/state.db",
            "its file can't be made: what should be a folder is none",
        ),
    ):
        assert why_not_made(uri).startswith(problem)
        (found,) = (each for each in findings(environ(tmp_path, STATE_DB_URI=uri)) if each.name == "authority")
        assert (found.standing, found.says.startswith(f"STATE_DB_URI: {problem}")) == (Standing.FAIL, True)
    assert why_not_made(f"sqlite:///{tmp_path}/new/state.db") == ""


def test_what_fails_without_advice_gets_some(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError) as refused:
        prepared(environ(tmp_path, STATE_DB_URI="sqlite:////proc/nowhere/state.db"), [])
    assert refused.value.problems == (
        "STATE_DB_URI: its file can't be made: No such file or directory; "
        "name a file in a folder on a local disk that can be written to",
    )


def test_one_database_that_is_away_is_told_once(tmp_path: Path) -> None:
    away = {"STATE_DB_URI": "postgresql://127.0.0.1:1/db", "TASK_QUEUE_BACKEND": "postgres"}
    with pytest.raises(NotReadyError) as refused:
        prepared(away, [])
    (problem,) = refused.value.problems
    assert problem.startswith("STATE_DB_URI: ")


def test_a_worker_whose_brokers_are_away_says_which_variable_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.fleet.transport.kafka.KafkaQueue", partial(KafkaQueue, patience_s=0.5))
    with pytest.raises(NotReadyError) as refused:
        prepared(environ(tmp_path, TASK_QUEUE_BACKEND="kafka", KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1"), [])
    (problem,) = refused.value.problems
    assert problem.startswith("KAFKA_BOOTSTRAP_SERVERS: Kafka is out of reach")
    assert problem.endswith("; see that it names brokers that run, and can be reached from here")


def test_a_folder_that_is_read_only_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)  # root may write anywhere
    assert why_not_made(f"sqlite:///{tmp_path}/new/state.db") == "its file can't be made: its folder is not writable"


def test_what_is_not_set_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(folder_of_another(tmp_path)))
    with pytest.raises(NotReadyError) as refused:
        prepared({}, [])
    assert {each.partition("; ")[0] for each in refused.value.problems} == {
        "STATE_DB_URI (unset: a file in the user's data folder): its folder is not a folder"
    }


def test_a_queue_in_the_authoritys_database_goes_by_its_variable() -> None:
    one = {"STATE_DB_URI": "postgresql://h/a", "TASK_QUEUE_BACKEND": "postgres"}
    assert queue_variable(FleetSettings.of(one)) == "STATE_DB_URI"
    assert queue_variable(FleetSettings.of(one | {"TASK_QUEUE_URI": "postgresql://h/b"})) == "TASK_QUEUE_URI"


def test_brokers_that_are_away_are_told_by_their_variable(tmp_path: Path) -> None:
    settings = FleetSettings.of(environ(tmp_path, TASK_QUEUE_BACKEND="kafka"))
    with pytest.raises(FleetUnavailableError) as refused, naming_transport(settings):
        raise FleetUnavailableError("Kafka is out of reach (_TRANSPORT)")
    assert str(refused.value) == (
        "KAFKA_BOOTSTRAP_SERVERS: Kafka is out of reach (_TRANSPORT); "
        "see that it names brokers that run, and can be reached from here"
    )
