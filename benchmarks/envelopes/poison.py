"""What is no envelope: bytes of many kinds, for a queue of bytes, and rows of many kinds, for a queue of rows.

Each kind is a function of a random source and a number, by which no two of a kind are the same. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeAlias

ENCLOSED = 16_384  #: bytes that an envelope may have, as docs/fleet.md says it
Fields: TypeAlias = dict[str, Any]
Kind: TypeAlias = Callable[[Random, int], bytes]

TEXTS = ("job_id", "session_id", "kind", "payload_ref", "tenant")


def sound(number: int) -> Fields:
    """The fields of an envelope that is one; of an item that there isn't."""
    return {
        "v": 1, "job_id": f"poison-{number}", "session_id": "session-1", "kind": "note", "payload_ref": "note:poison",
        "tenant": "tenant-0", "priority": 1, "deadline": None, "attempt": 0, "enqueued_at": 1.5e9,
    }  # fmt: skip


def as_json(fields: object) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _with(**changes: Any) -> Kind:
    return lambda _, number: as_json(sound(number) | changes)


def _without(field: str) -> Kind:
    return lambda _, number: as_json({name: value for name, value in sound(number).items() if name != field})


def _cut_short(rng: Random, number: int) -> bytes:
    whole = as_json(sound(number))
    return whole[: rng.randrange(40, len(whole) - 1)]


#: For a queue that carries bytes.
BYTES: Mapping[str, Kind] = {
    "empty": lambda _, __: b"",
    "blank": lambda rng, number: b" " * (number % 500 + 1),
    "cut short": _cut_short,
    "words": lambda _, number: f"this is delivery {number}, and no JSON".encode(),
    "noise": lambda rng, _: b"\xff" + rng.randbytes(rng.randrange(20, 2_000)),
    "NULs": lambda _, number: b"\0" * (number % 1_000 + 1),
    "NULs behind it": lambda _, number: as_json(sound(number)) + b"\0\0",
    "no UTF-8": lambda _, number: as_json(sound(number)).replace(b"note:", b"note\xc3\x28"),
    "UTF-16": lambda _, number: json.dumps(sound(number)).encode("utf-16"),
    "a byte order mark": lambda _, number: b"\xef\xbb\xbf" + as_json(sound(number)),
    "a half of a pair": lambda _, number: json.dumps(sound(number) | {"kind": "\ud800"}).encode(),
    "two of them": lambda _, number: as_json(sound(number)) * 2,
    "an array": lambda _, number: as_json([sound(number)]),
    "a text": lambda _, number: as_json(f"poison {number}"),
    "a number": lambda _, number: str(number).encode(),
    "a long number": lambda _, number: b"7" * (5_000 + number % 1_000),
    "a text within a text": lambda _, number: as_json(json.dumps(sound(number))),
    "deep arrays": lambda _, number: b"[" * (5_000 + number % 3_000),
    "deep objects": lambda _, number: b'{"a":' * (2_000 + number % 1_000),
    "closed deep arrays": lambda _, number: b"[" * (4_000 + number % 1_000) + b"]" * (4_000 + number % 1_000),
    "too long by little": lambda _, number: as_json(sound(number)).ljust(ENCLOSED + 1 + number % 100),
    "huge": lambda _, number: as_json(sound(number) | {"payload_ref": "x" * (100_000 + number)}),
    "no version": _without("v"),
    "a newer version": _with(v=2),
    "version nought": _with(v=0),
    "a version in words": _with(v="1"),
    "a version that is true": _with(v=True),
    "one field more": _with(then="more"),
    **{f"no {field}": _without(field) for field in TEXTS},
    **{f"an empty {field}": _with(**{field: " "}) for field in TEXTS},
    **{f"a number for {field}": _with(**{field: 7}) for field in TEXTS},
    **{f"null for {field}": _with(**{field: None}) for field in TEXTS},
    **{f"an array for {field}": _with(**{field: ["a"]}) for field in TEXTS},
    **{f"a long {field}": _with(**{field: "y" * 513}) for field in TEXTS},
    **{f"two lines for {field}": _with(**{field: "one\ntwo"}) for field in TEXTS},
    **{f"a terminal's code in {field}": _with(**{field: "\x1b[2Jgone"}) for field in TEXTS},
    **{f"priority {value!r}": _with(priority=value) for value in (-1, 4, 10**300, 1.5, "1", True, None)},
    **{f"deadline {value!r}": _with(deadline=value) for value in (-1, 1e300, math.nan, math.inf, "soon", True)},
    **{f"attempt {value!r}": _with(attempt=value) for value in (-1, 2**40, 0.5, "0", None)},
    **{f"enqueued_at {value!r}": _with(enqueued_at=value) for value in (-1, math.inf, "now", None)},
}

Row: TypeAlias = dict[str, Any]
RowKind: TypeAlias = Callable[[Random, int], Row]


def sound_row(number: int) -> Row:
    return {name: value for name, value in sound(number).items() if name != "v"}


def _row(**changes: Any) -> RowKind:
    return lambda _, number: sound_row(number) | changes


#: For a queue that carries rows, whichever database has them.
ROWS: Mapping[str, RowKind] = {
    "an empty job_id": lambda _, number: sound_row(number) | {"job_id": " " * (number + 1)},
    "a job_id of two lines": lambda _, number: sound_row(number) | {"job_id": f"poison\n{number}"},
    "a long job_id": lambda _, number: sound_row(number) | {"job_id": f"poison-{number}".ljust(600, "y")},
    "nothing but its name": lambda _, number: dict.fromkeys(sound_row(number)) | {"job_id": f"poison-{number}"},
    **{f"no {field}": _row(**{field: None}) for field in TEXTS[1:]},
    **{f"an empty {field}": _row(**{field: ""}) for field in ("session_id", "kind", "tenant")},
    **{f"a blank {field}": _row(**{field: "  "}) for field in TEXTS[1:]},
    **{f"two lines for {field}": _row(**{field: "one\ntwo"}) for field in TEXTS[1:]},
    **{f"a terminal's code in {field}": _row(**{field: "\x1b[2Jgone"}) for field in TEXTS[1:]},
    **{f"a long {field}": _row(**{field: "y" * 513}) for field in TEXTS[1:]},
    "a huge payload_ref": lambda _, number: sound_row(number) | {"payload_ref": "x" * (100_000 + number)},
    **{f"priority {value!r}": _row(priority=value) for value in (-1, 4, 2**31 - 1, -(2**31), None)},
    **{f"deadline {value!r}": _row(deadline=value) for value in (-1.0, 1e300, math.inf, -math.inf)},
    **{f"attempt {value!r}": _row(attempt=value) for value in (-1, -(2**31), None)},
    **{f"enqueued_at {value!r}": _row(enqueued_at=value) for value in (-1.0, 1e300, math.inf, None)},
}

#: SQLite keeps in a column what it is given.
SQLITE_ROWS: Mapping[str, RowKind] = {
    **ROWS,
    **{f"bytes for {field}": _row(**{field: b"\x00\xff"}) for field in TEXTS[1:]},
    **{f"a NUL in {field}": _row(**{field: "a\0b"}) for field in TEXTS[1:]},
    **{f"priority {value!r}": _row(priority=value) for value in (-1, 4, 2**62, 1.5, "high", b"1", None)},
    **{f"deadline {value!r}": _row(deadline=value) for value in (-1.0, math.inf, "soon", b"\x01")},
    **{f"attempt {value!r}": _row(attempt=value) for value in (-1, 2**40, 0.5, "none", b"")},
    **{f"enqueued_at {value!r}": _row(enqueued_at=value) for value in (-1.0, "now", b"\x01")},
}

#: And PostgreSQL knows a number that is none.
POSTGRES_ROWS: Mapping[str, RowKind] = {
    **ROWS,
    "deadline nan": _row(deadline=math.nan),
    "enqueued_at nan": _row(enqueued_at=math.nan),
    "attempt 2147483647": _row(attempt=2**31 - 1, kind=None),
}
