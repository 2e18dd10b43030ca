"""Events on their way: de-duplicated, limited, the less important left out first.

Statuses are always written; events are help for people, who do not read thousands of them at once.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from kai_es.status import metrics
from kai_es.status.desk import Allowance
from kai_es.status.events import KubeEvent

PER_S: Final = 20.0
BURST: Final = 200.0
"""Events per second on average and at once: a cluster that starts 20 pods a second tells all."""
WAITING_MAX: Final = 1_000
"""Events that wait for their turn; of more the oldest that is no warning is left out."""
KNOWN_MAX: Final = 20_000
"""Names of events that were written: the same is not told again while it is remembered."""


class Outbox:
    """What is to be told, in order, warnings first."""

    def __init__(self) -> None:
        self._warnings: deque[KubeEvent] = deque()
        self._others: deque[KubeEvent] = deque()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._allowance = Allowance(per_s=PER_S, burst=BURST)

    def __len__(self) -> int:
        return len(self._warnings) + len(self._others)

    def put(self, events: Iterable[KubeEvent]) -> None:
        """Tell these, unless they were told."""
        for event in events:
            key = f"{event.about.namespace}/{event.name}"
            if key in self._known:
                self._known.move_to_end(key)
                metrics.EVENTS_LEFT_OUT.labels("repeated").inc()
                continue
            self._known[key] = None
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
            (self._warnings if event.is_warning else self._others).append(event)
            if len(self) > WAITING_MAX:
                (self._others or self._warnings).popleft()
                metrics.EVENTS_LEFT_OUT.labels("too-many").inc()

    def forget_before(self, time_ms: int) -> None:
        """A new leader takes over: what is older its predecessor has told."""
        for waiting in (self._warnings, self._others):
            kept = [event for event in waiting if event.time_ms >= time_ms]
            waiting.clear()
            waiting.extend(kept)

    def take(self, now_s: float) -> KubeEvent | None:
        """The next one, None = there is none or it is not allowed yet."""
        if not self or not self._allowance.has(now_s):
            return None
        self._allowance.spend(1)
        return (self._warnings or self._others).popleft()

    def put_back(self, event: KubeEvent) -> None:
        """It could not be told."""
        (self._warnings if event.is_warning else self._others).appendleft(event)
