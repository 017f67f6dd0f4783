"""Untrusted text, made fit to show, as one printable line, and fit to be kept."""

from __future__ import annotations

import re

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
STORED_LIMIT = 65_536  # characters of a checkpoint, an error or a cause that are kept
# Complete terminal sequences say nothing to a reader: colours and cursor moves (CSI), titles and links (OSC).
# Each alternative starts at an ESC and stops before the next one, so that the search is linear.
TERMINAL_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
LOOKAHEAD = 8  #: how many times `limit` is read of a longer text, since colours take room and leave none


def sanitize(text: str | bytes, limit: int) -> str:
    """`text` as one line of at most `limit` characters, all of them printable in the sense of `str.isprintable`.

    Bytes are read as UTF-8, what isn't becomes U+FFFD. Complete terminal sequences vanish, white space of any kind
    becomes a blank, and every other unprintable character (NUL, ESC, C1 controls, bidirectional overrides, lone
    surrogates, unassigned code points) becomes U+FFFD. Blanks at the ends go; a cut is marked by an ellipsis.
    """
    if limit <= 0:
        return ""
    whole = len(text)
    text = text[: 4 * LOOKAHEAD * limit] if isinstance(text, bytes) else text[: LOOKAHEAD * limit]
    shortened = len(text) < whole
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    line = printable(TERMINAL_SEQUENCE.sub("", text)).strip()
    if len(line) <= limit and not shortened:
        return line
    return line[: limit - 1] + ELLIPSIS


def printable(text: str) -> str:
    """`text` with every unprintable character replaced, one for one."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else REPLACEMENT for char in text)


def storable(text: str, limit: int = STORED_LIMIT) -> str:
    """The text with what no store can hold replaced by U+FFFD, cut to `limit` characters."""
    text = text[:limit].replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
