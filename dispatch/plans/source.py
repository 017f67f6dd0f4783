"""From a file's bytes to text: lenient about byte order marks, strict about size and encoding."""

from __future__ import annotations

import codecs
import difflib
import re
from pathlib import Path
from typing import Literal

from dispatch.plans.problems import Mark, MisfitError, shown

PLAN_BYTES = 16 * 2**20  #: the largest plan file

PlanFormat = Literal["toml", "yaml"]
FORMATS: dict[str, PlanFormat] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}

_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SURROGATE = re.compile("[\ud800-\udfff]")


def format_of(path: Path) -> PlanFormat:
    """The format that a file's suffix stands for."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        ending = f"the suffix {shown(path.suffix)}" if path.suffix else "no suffix"
        raise MisfitError(f"has {ending}; a plan is a .toml, .yaml or .yml file", None)
    return FORMATS[suffix]


def read_text(path: Path) -> str:
    """The whole file as text. At most one byte more than the limit is read."""
    try:
        with path.open("rb") as file:
            raw = file.read(PLAN_BYTES + 1)
    except FileNotFoundError:
        raise MisfitError(f"there is no such file{_sibling_hint(path)}", None) from None
    except IsADirectoryError:
        raise MisfitError("is a folder; name a plan file in it", None) from None
    except OSError as error:
        raise MisfitError(f"can't be read: {error.strerror}", None) from None
    except ValueError:  # a NUL in the name
        raise MisfitError("is no name of a file", None) from None
    if len(raw) > PLAN_BYTES:
        raise MisfitError(_too_large(), None)
    return clean(_decoded(raw))


def clean(text: str) -> str:
    """Text without a byte order mark. Line ends are left to the formats. Raises for text that no file could hold."""
    if len(text) > PLAN_BYTES:
        raise MisfitError(_too_large(), None)
    if wrong := _SURROGATE.search(text):
        line = text.count("\n", 0, wrong.start()) + 1
        raise MisfitError("a lone surrogate is no character", Mark(line, 1))
    return text.removeprefix("\ufeff")


def _decoded(raw: bytes) -> str:
    if raw.startswith(_WIDE):
        try:
            return raw.decode("utf-16")
        except UnicodeDecodeError:
            raise MisfitError("begins as UTF-16 but isn't; save it as UTF-8", None) from None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        raise MisfitError(
            f"byte 0x{raw[error.start]:02x} is no UTF-8; save the file as UTF-8", Mark(line, column)
        ) from None


def _too_large() -> str:
    return f"is larger than {PLAN_BYTES // 2**20} MiB, the most for a plan"


def _sibling_hint(path: Path) -> str:
    try:
        siblings = [entry.name for entry in path.parent.iterdir() if entry.suffix.lower() in FORMATS]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, siblings, n=1)
    return f"; did you mean {shown(close[0])}?" if close else ""
