"""A graph belongs to one branch of a repository: whoever runs it against another is refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.local import InvalidAssignmentError, LocalSessionHost, RepositoryError
from harness.local.binding import Bindings
from harness.session import SessionPhase
from tests.integration.workshop import GRAPH, Repo, assignment, make_repo, workshop


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = make_repo(tmp_path / "repo")
    repo.git("branch", "other")
    return repo


def file_of(repo: Repo) -> Path:
    return repo.root / "graphs" / f"{GRAPH}.json"


def test_a_graph_is_bound_to_the_branch_that_was_main_then(repo: Repo) -> None:
    host = LocalSessionHost(repo.path)
    assert host.bound(GRAPH) is None
    host.bind(GRAPH)
    host.bind(GRAPH)
    assert host.bound(GRAPH) == "main"
    assert host.bound("another") is None
    repo.git("checkout", "-q", "other")
    assert LocalSessionHost(repo.path).bound(GRAPH) == "main"


def test_to_bind_it_to_another_branch_is_refused_in_one_line_that_says_the_way_out(repo: Repo) -> None:
    LocalSessionHost(repo.path).bind(GRAPH)
    repo.git("checkout", "-q", "other")
    with pytest.raises(RepositoryError) as caught:
        LocalSessionHost(repo.path).bind(GRAPH)
    assert str(caught.value) == (
        "graph graph1 merges into 'main', but 'other' is checked out;"
        " check main out with: git checkout main, or begin a new graph"
    )
    with pytest.raises(RepositoryError, match="merges into 'main', but 'other' is named as main; name 'main'"):
        LocalSessionHost(repo.path, main="other").bind(GRAPH)
    assert LocalSessionHost(repo.path, main="main").bound(GRAPH) == "main"


def test_a_session_of_a_graph_bound_elsewhere_never_begins(repo: Repo, tmp_path: Path) -> None:
    LocalSessionHost(repo.path).bind(GRAPH)
    with workshop(repo, main="other") as shop:
        [state, free] = shop.run(
            assignment("s1", f"touch {tmp_path}/ran"), assignment("s2", "echo 2 > 2.txt", graph="graph2")
        )
    assert state.phase is SessionPhase.FAILED
    assert state.error == "graph graph1 merges into 'main', and this host into 'other'; check main out"
    assert not (tmp_path / "ran").exists()
    assert free.phase is SessionPhase.MERGED
    with workshop(repo, main="main") as shop:
        assert shop.run(assignment("s1", "true", attempt=2))[0].phase is SessionPhase.MERGED


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"main": ""}', '{"main": 1}', "{}", b"\xff"])
def test_a_note_that_cannot_be_read_permits_nothing(repo: Repo, text: str | bytes) -> None:
    file_of(repo).parent.mkdir(parents=True)
    file_of(repo).write_bytes(text if isinstance(text, bytes) else text.encode())
    with workshop(repo) as shop:
        for ask in (shop.host.bind, shop.host.bound):
            with pytest.raises(RepositoryError, match=r"graph1\.json doesn't say which branch"):
                ask(GRAPH)
        [state] = shop.run(assignment("s1", "echo 1 > 1.txt"))
    assert state.phase is SessionPhase.FAILED
    assert repo.files() == ["a.txt"]


@pytest.mark.parametrize("graph_id", ["", "../x", "a/b", ".x", "x.lock", "a\n"])
def test_what_can_name_no_graph_names_no_file(repo: Repo, graph_id: str) -> None:
    host = LocalSessionHost(repo.path)
    for ask in (host.bind, host.bound):
        with pytest.raises(InvalidAssignmentError):
            ask(graph_id)


def test_of_many_who_bind_at_once_one_wins_and_all_are_told_which(tmp_path: Path) -> None:
    gate = threading.Barrier(8)

    def bind(number: int) -> str:
        gate.wait(10.0)
        return Bindings(tmp_path).bind(GRAPH, f"branch{number}")

    with ThreadPoolExecutor(8) as threads:
        answers = set(threads.map(bind, range(8)))
    assert answers == {Bindings(tmp_path).read(GRAPH)}
    assert [path.name for path in (tmp_path / "graphs").iterdir()] == [f"{GRAPH}.json"]


def test_what_main_has_is_told_of_branches_and_commits(repo: Repo) -> None:
    host = LocalSessionHost(repo.path)
    repo.git("checkout", "-q", "-b", "dispatch/s1/1")
    work = repo.commit("b.txt", "b\n")
    repo.git("tag", "side", "main")
    repo.git("branch", "side")
    repo.git("checkout", "-q", "main")
    ahead = ("dispatch/s1/1", work, work[:12], "side")
    assert [host.is_merged(name) for name in ahead] == [False] * 4
    assert host.is_merged("other")
    assert host.is_merged("main")
    repo.git("merge", "-q", "--no-ff", "-m", "by hand", "dispatch/s1/1")
    assert [host.is_merged(name) for name in ahead] == [True] * 4
    assert not any(host.is_merged(name) for name in ("", "no-such", "f" * 40, "--all", "a\0b", "main:a.txt"))
