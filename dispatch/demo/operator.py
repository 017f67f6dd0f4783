"""What a person does during the demo, done at the right moments: an answer, a second chance, an urgent wish.

Each step is due when something is to be seen, in the graph or in what the agents say.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import attrs

from dispatch.cli.sessions import Sessions
from dispatch.errors import DispatchError
from dispatch.intent import Intent, Urgency
from dispatch.service import DispatchService
from dispatch.slice import SliceState
from dispatch.view.events import Event
from dispatch.views import SliceView

LOOK_AGAIN_S = 0.1  #: what agents say is no change of the graph: nobody tells of it
REACTION_S = 0.5  #: so that whoever watches the run sees what the operator reacts to
ANSWER = "green, like the sign over the door"
ASKING, FAILING, LONG, URGENT = "layout", "payments", "stocktaking", "hotfix"
WISH = "Customers order what is sold out"


@attrs.frozen
class Step:
    """Something to do once, when it is due."""

    due: Callable[[Sight], bool]
    take: Callable[[], None]


@attrs.frozen
class Sight:
    """What the operator sees: the slices, and the last line of each running agent."""

    slices: Mapping[str, SliceView]
    said: Mapping[str, str]


class Operator:
    """Acts on a run from beside it. `problem` is what kept it from its work; empty if nothing did."""

    def __init__(self) -> None:
        self.problem = ""
        self._over = threading.Event()
        self._steps = [
            Step(self._is_asked, self._answer),
            Step(self._has_failed, self._retry),
            Step(self._is_stuck, self._hurry),
        ]

    @contextlib.contextmanager
    def beside(self, service: DispatchService, host: Sessions, tell: Callable[[Event], None]) -> Iterator[None]:
        """At work while the run goes on. `tell` shows what it does, before it is done."""
        self._service, self._host, self._tell = service, host, tell
        thread = threading.Thread(target=self._work, name="demo-operator", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _work(self) -> None:
        seen = -1
        try:
            while self._steps and not self._over.is_set():
                seen = self._service.wait_for_change(seen, LOOK_AGAIN_S)
                sight = self._look()
                due = [step for step in self._steps if step.due(sight)]
                if due and not self._over.wait(REACTION_S):
                    due[0].take()
                    self._steps.remove(due[0])
        except DispatchError as error:
            self.problem = str(error)

    def _look(self) -> Sight:
        slices = {view.id: view for view in self._service.list()}
        return Sight(slices, {session.slice_id: session.last_line for session in self._host.running()})

    # --- its steps: whether the moment has come, and what is done then -----------------------------------------------

    def _is_asked(self, sight: Sight) -> bool:
        return sight.said.get(ASKING, "").startswith("asks: ")

    def _answer(self) -> None:
        """Steering: a message into a session that runs."""
        self._say(ASKING, f"answers its question, into its session: {ANSWER}")
        self._service.route(Intent("colour", statement="The colour of the shop", scope=ASKING), ANSWER)

    def _has_failed(self, sight: Sight) -> bool:
        return sight.slices[FAILING].state is SliceState.FAILED

    def _retry(self) -> None:
        self._say(FAILING, "gives it another chance: retry")
        self._service.retry(FAILING)

    def _is_stuck(self, sight: Sight) -> bool:
        """Not before the failure is dealt with: as long as the long task runs, the run can't be over."""
        return all(step.take != self._retry for step in self._steps) and "part 2" in sight.said.get(LONG, "")

    def _hurry(self) -> None:
        """Preemption."""
        self._say(URGENT, f"sees that it {self._service.explain(URGENT).reasons[0].text}")
        self._say(URGENT, f"declares an URGENT intent: {WISH}")
        self._service.declare_intent(Intent("sold-out", statement=WISH, scope=URGENT, urgency=Urgency.URGENT))

    def _say(self, slice_id: str, words: str) -> None:
        self._tell(Event(time.time(), "operator", slice_id, words))
