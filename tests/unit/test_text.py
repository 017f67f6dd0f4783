"""Untrusted text becomes one printable line."""

from __future__ import annotations

import pytest

from harness.text import sanitize

CASES = [
    ("plain", "hello world", "hello world"),
    ("empty", "", ""),
    ("ends are trimmed", "  a b \t\r\n", "a b"),
    ("line ends and tabs are blanks", "a\nb\tc\rd\u2028e", "a b c d e"),
    ("colours vanish", "\x1b[1;31merror\x1b[0m: no", "error: no"),
    ("titles and links vanish", "\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b]8;;\x1b\\", "ab"),
    ("a lone escape is shown", "a\x1bb", "a\ufffdb"),
    ("an unfinished sequence is shown", "a\x1b[12", "a\ufffd[12"),
    ("NUL, BEL, DEL", "a\0b\x07c\x7fd", "a\ufffdb\ufffdc\ufffdd"),
    ("C1 controls", "a\x9bb\x80c", "a\ufffdb\ufffdc"),
    ("bidirectional overrides", "a\u202eb\u2066c\u200fd", "a\ufffdb\ufffdc\ufffdd"),
    ("lone surrogates", "a\ud800b\udcffc", "a\ufffdb\ufffdc"),
    ("private and unassigned code points", "a\ue000b\U000e0fffc", "a\ufffdb\ufffdc"),
    ("wide and combining characters stay", "日本 e\u0301 \U0001f600", "日本 e\u0301 \U0001f600"),
    ("bytes", "naïve ✓".encode(), "naïve ✓"),
    ("invalid bytes", b"a\xff\xfeb\xf0\x9f", "a\ufffd\ufffdb\ufffd"),
    ("UTF-16", "hi".encode("utf-16-le"), "h\ufffdi\ufffd"),
]


@pytest.mark.parametrize(("text", "line"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_one_printable_line(text: str | bytes, line: str) -> None:
    assert sanitize(text, 80) == line


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
        ("abc", -3, ""),
        ("x" * 10_000_000, 4, "xxx…"),
        ("\x1b[31m" * 3 + "abc", 3, "abc"),
        (b"\xe2\x9c\x93" * 1000, 3, "✓✓…"),
    ],
)
def test_a_cut_is_marked_and_fits(text: str | bytes, limit: int, line: str) -> None:
    assert sanitize(text, limit) == line
