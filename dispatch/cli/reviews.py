"""Which slices in review have been merged meanwhile: by hand, or elsewhere and fetched. Nobody sends word of that."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from dispatch.slice import SliceState
from dispatch.views import SliceView
from harness.local.errors import LocalHostError
from harness.local.record import Records
from harness.local.repository import Repository

logger = logging.getLogger(__name__)


class Reviews:
    """The branches of a graph's reviews, held against the branch `main` of the repository that `folder` is in."""

    def __init__(self, folder: Path, main: str, graph_id: str) -> None:
        self._repository = Repository.open(folder, main)
        self._records, self._graph_id = Records(self._repository.root), graph_id
        self._apart: dict[str, tuple[str, str]] = {}  # by slice: its branch and main as they were when last looked at
        self._warned = ""

    def merged(self, views: Iterable[SliceView]) -> list[str]:
        """The ids of those in review whose work main has. What can't be told now may be so later."""
        try:
            return list(self._merged(views))
        except LocalHostError as problem:
            if str(problem) != self._warned:
                self._warned = str(problem)
                logger.warning("which reviews have been merged can't be told: %s", problem)
            return []

    def _merged(self, views: Iterable[SliceView]) -> Iterator[str]:
        in_review = [view for view in views if view.state is SliceState.IN_REVIEW]
        main = self._repository.tip(self._repository.main_ref) if in_review else ""
        for view in in_review:
            work = self._work(view)
            if work and main and self._apart.get(view.id) != (work, main):
                if self._repository.contains(work, main):
                    yield view.id
                else:
                    self._apart[view.id] = work, main

    def _work(self, view: SliceView) -> str:
        """The tip of its branch. Empty if it has none of its own: one that is still where it began is on main anyhow,
        and says nothing."""
        record = self._records.read(self._graph_id, view.id)
        if record is None or record.attempt != view.attempt or not view.branch:
            return ""
        tip = self._repository.tip(f"refs/heads/{view.branch}")
        return "" if tip == record.base else tip
