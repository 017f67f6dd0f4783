"""Keyframes: all that decides what a machine will do next, as values and as bytes.

What a store keeps of a graph is not quite that: which places are being vacated for whom is forgotten at a restart, and
so is the time of a merge that taught the weights nothing. A keyframe has both, so that a log can be played from it.

The bytes are JSON lines, compressed: a head, a line for each slice, one for each intent, in the columns of the codec.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

import attrs

from dispatch.errors import StoreError
from dispatch.store import codec
from dispatch.store.port import Contents, GraphRow, KeyframeRow

_FORM = 1  #: of the bytes; a reader refuses another one
_CHUNK = 1000  # lines that are compressed at once
_LEVEL = 3  # the rows of 100,000 slices in a fraction of a second; the highest level takes ten times that for a quarter


@attrs.frozen
class Keyframe:
    """`room`: the ids of the urgent slices for which places are being vacated, in the order in which they joined.

    `merged_at` is the time of the last merge, `weights` the kind of weights (`weights.kind_of`), `epoch` that of the
    graph's owner. `contents` has no attempts: they decide nothing.
    """

    contents: Contents
    room: tuple[str, ...] = ()
    merged_at: float = 0.0
    weights: str = ""
    epoch: int = 0


def encoded(keyframe: Keyframe) -> bytes:
    """Takes about a second for 100,000 slices, half of it without the interpreter's lock."""
    packer, packed, lines = zlib.compressobj(_LEVEL), list[bytes](), list[str]()
    for line in _lines(keyframe):
        lines.append(line)
        if len(lines) == _CHUNK:
            packed.append(packer.compress("".join(lines).encode()))
            lines.clear()
    packed.append(packer.compress("".join(lines).encode()))
    return b"".join((*packed, packer.flush()))


def _lines(keyframe: Keyframe) -> Iterator[str]:
    contents = keyframe.contents
    head = {
        "form": _FORM,
        "graph": contents.graph and [contents.graph.graph_id, contents.graph.paused],
        "room": keyframe.room,
        "merged_at": keyframe.merged_at,
        "weights": keyframe.weights,
        "epoch": keyframe.epoch,
        "slices": len(contents.slices),
    }
    yield codec.dumps(head) + "\n"
    for row in contents.slices:
        *state, _, slice_id = codec.state_columns(row, 0)
        yield codec.dumps([slice_id, codec.spec_columns(row, 0)[0], *state]) + "\n"
    for intent in contents.intents:
        seq, text, attached, _, intent_id = codec.intent_columns(intent, 0)
        yield codec.dumps([intent_id, text, seq, attached]) + "\n"


def decoded(row: KeyframeRow) -> Keyframe:
    """Raises `StoreError` for bytes that this version can't have written."""
    try:
        head, *rows = map(json.loads, zlib.decompress(row.content).decode().split("\n")[:-1])
        return _keyframe(head, rows)
    except (zlib.error, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"the keyframe at entry {row.seq} can't be read ({error})") from error


def _keyframe(head: dict[str, Any], rows: list[list[Any]]) -> Keyframe:
    if head["form"] != _FORM:
        raise ValueError(f"it has the form {head['form']}, known here is {_FORM}: upgrade")
    slices, intents = rows[: head["slices"]], rows[head["slices"] :]
    contents = Contents(
        graph=GraphRow(*head["graph"]) if head["graph"] else None,
        slices=tuple(codec.decoded(codec.slice_row, slices)),
        intents=tuple(codec.decoded(codec.intent_row, intents)),
    )
    return Keyframe(contents, tuple(head["room"]), head["merged_at"], head["weights"], head["epoch"])
