"""How pictures are cut out of what a terminal was sent."""

from __future__ import annotations

import subprocess
import xml.dom.minidom
from pathlib import Path

import pytest

from dispatch.demo.pictures import REDRAW, save, section, shown


def test_a_stream_is_cut_into_frames_where_it_goes_back() -> None:
    assert REDRAW.split("one\ntwo\n\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2Kthree\n\r\x1b[2K\x1b[1A\x1b[2Kfour") == [
        "one\ntwo\n",
        "three\n",
        "four",
    ]


def test_a_section_is_found_through_styles() -> None:
    text = "a\n\x1b[1m3\x1b[0m slices\nb\n\x1b[2mmain\x1b[0m afterwards\nc"
    assert section(text, "3 slices", "main afterwards") == "\x1b[1m3\x1b[0m slices\nb"


def test_what_a_terminal_shows_is_styled_and_as_wide_as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    assert "Usage" in shown("--help")
    with pytest.raises(subprocess.CalledProcessError):
        shown("no-such-command")


def test_a_picture_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    save(tmp_path, "one", "a title", "\x1b[32mgreen & <bold>\x1b[0m\nplain\n")
    text = (tmp_path / "one.svg").read_text()
    picture = xml.dom.minidom.parseString(text)
    texts = [node.firstChild.nodeValue.replace("\xa0", " ").strip() for node in picture.getElementsByTagName("text")]
    assert list(filter(None, texts)) == ["a title", "green & <bold>", "plain"]
    assert [line for line in text.splitlines() if "://" in line.replace("http://www.w3.org/2000/svg", "")] == []
