"""Stores by URL: what each names, and what is refused without repeating a password."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.errors import StoreError
from dispatch.store import MemoryStore, SqliteStore, default_url, open_store


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/lib/graphs.db", "/var/lib/graphs.db"),
        ("sqlite:////tmp/a%20b?c#d.db", "/tmp/a%20b?c#d.db"),
        ("sqlite:///graphs.db", "graphs.db"),
        ("sqlite:///deep/down/graphs.db", "deep/down/graphs.db"),
    ],
)
def test_a_sqlite_url_names_a_path(url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(url)
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / path
    assert list(tmp_path.iterdir()) == []


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_a_path_is_taken_as_it_stands(path: str) -> None:
    store = open_store(f"sqlite:////{path}")
    assert isinstance(store, SqliteStore)
    assert store.path == Path(f"/{path}")
    again = open_store(store.url)
    assert isinstance(again, SqliteStore)
    assert again.path == store.path


def test_memory_is_new_each_time() -> None:
    first, second = open_store("memory:"), open_store("memory:")
    assert isinstance(first, MemoryStore)
    assert first.url == second.url == "memory:"
    first.claim("default")
    second.claim("default")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql+driver://me:hunter2@db/graphs", "no store is of the kind 'mysql"),
        ("memory:hunter2", "no store is of the kind 'memory'"),
        ("sqlite:", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite://hunter2/graphs.db", "names no file"),
        ("sqlite:/hunter2.db", "names no file"),
        ("sqlite:///hunter2\0.db", "names no file"),
        ("hunter2", "named by a URL"),
        ("/hunter2/graphs.db", "named by a URL"),
        ("", "named by a URL"),
    ],
)
def test_what_names_no_store_is_refused_in_one_line(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as refused:
        open_store(url)
    assert "sqlite:////absolute/path" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_default_is_a_file_in_the_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = open_store(default_url())
    assert isinstance(store, SqliteStore)
    assert store.path.is_relative_to(tmp_path)
    store.claim("default")
    store.release()
    assert store.path.is_file()
