"""That a graph's log, played again, makes the same decisions and ends as the same graph: from its beginning, and from
keyframes in the midst of it."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from dispatch import Store
from dispatch import keyframe as keyframes
from dispatch.history import Verdict, check, moment, starts
from dispatch.store import open_store
from dispatch.store.port import Claim, Contents, History, KeyframeRow, Logged, LogRow, Reading, history_of
from dispatch.weights import Weights, new_weights

Make = Callable[[str], Weights | None]


@attrs.frozen
class Excerpt:
    """A reading of which a test has changed something. `log` are all entries, `frames` all keyframes."""

    contents: Contents
    log: tuple[LogRow, ...]
    frames: tuple[KeyframeRow, ...] = ()
    claim: Claim | None = None

    @classmethod
    def of(cls, reading: Reading) -> Excerpt:
        frames = tuple(reading.keyframe(seq) for seq, _ in reading.contents.logged.keyframes)
        return cls(reading.contents, tuple(reading.entries(0, 10**9)), frames)

    def entries(self, after: int, limit: int, kind: str = "") -> list[LogRow]:
        return [row for row in self.log if row.seq > after and kind in ("", row.kind)][:limit]

    def keyframe(self, seq: int) -> KeyframeRow:
        (found,) = [frame for frame in self.frames if frame.seq == seq]
        return found

    def since(self, seq: int, weights: Make = new_weights) -> Excerpt:
        """What is left once all before has been pruned."""
        then = moment("default", self, lambda other, _: other > seq, weights)
        keyframe = then.machine.keyframe()
        frame = KeyframeRow(seq, then.at, keyframes.encoded(keyframe))
        assert keyframes.decoded(frame) == keyframe
        logged = Logged(self.contents.logged.last, ((seq, then.at),))
        contents = attrs.evolve(self.contents, logged=logged)
        return attrs.evolve(self, contents=contents, log=tuple(self.entries(seq, 10**9)), frames=(frame,))


def history_at(store: Store | str) -> History:
    history = history_of(open_store(store) if isinstance(store, str) else store)
    assert history is not None
    return history


def excerpt(store: Store | str, graph: str = "default") -> Excerpt:
    with history_at(store).reading(graph) as reading:
        return Excerpt.of(reading)


def assert_replays(store: Store | str, weights: Make = new_weights) -> Verdict:
    """All of it, and what would be left if it were pruned at one of a few entries."""
    whole = excerpt(store)
    found = check("default", whole, weights)
    assert found.difference is None, found.difference
    last, start = whole.contents.logged.last, starts(whole)[0]
    first = 1 if start is None else start[0]
    for seq in range(max(first, last // 4), last + 1, max(1, last // 4)):
        assert (left := check("default", whole.since(seq, weights), weights)).difference is None, (seq, left.difference)
    return found
