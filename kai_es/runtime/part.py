"""A part: one service of the platform as a task of a process."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from prometheus_client.registry import Collector

Gauges = dict[str, tuple[str, Callable[[], float]]]
"""Name -> (help, value now), in base units."""

Problems = Callable[[], Sequence[str]]
"""What is wrong now, one line each; empty = fine."""


class Page(NamedTuple):
    """An answer of a part's own HTTP door; `filename`: under which it is kept, "" = it is shown."""

    status: int
    content_type: str
    body: bytes
    filename: str = ""


Pages = Mapping[str, Callable[[], Awaitable[Page]]]
"""By path."""
NO_PAGES: Final[Pages] = MappingProxyType({})

STOP_S: Final = 8.0
"""A part has this long to drain; then it is cancelled. The supervisor waits longer in all."""


def _nothing() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Part:
    """One service.

    name:  as on the command line.
    run:   runs until stopped or cancelled; an error ends the process.
    stop:  asks `run` to return in good order; None = cancelling is as good.
    beside: it is stopped together with the part before it: none of them writes for the other.
    ready: why it is not doing its work now.
    gauges: name -> (help, value now) for /metrics, in base units.
    pages: what else it serves.
    collectors: metrics with labels, made when they are asked for.
    """

    name: str
    run: Callable[[], Awaitable[None]]
    stop: Callable[[], None] | None = None
    beside: bool = False
    ready: Problems = _nothing
    gauges: Gauges = field(default_factory=dict)
    pages: Pages = field(default_factory=dict)
    collectors: Sequence[Collector] = ()
