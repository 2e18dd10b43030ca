"""What a pod needs before it can be bound: the framework of preparations.

A bind request's preparations run in order, each on the pod as it is, and before the write; what
they did is undone in reverse order when the request ends without a bind and the pod, read again, is
not bound. All of it may happen twice, and over a change of the binder: a preparation finds what is
there already.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kai_es.binder.nodes import Nodes
from kai_es.events.requests import Answer, BindRequested, Result
from kai_es.ports.clock import Clock
from kai_es.ports.cluster import PODS, ClusterWrites
from kai_es.ports.errors import (
    AnswerError,
    ConflictError,
    FencedError,
    GoneError,
    UnavailableError,
)

logger = logging.getLogger(__name__)

CHANGED: Final = "conflict"
INTERNAL: Final = "internal-error"


class NotReadyError(Exception):
    """What was begun takes its time: come back after `after_s`. No failure, no lock is held.

    A preparation keeps its own deadline, and raises `PreparationError` when that has passed.
    """

    def __init__(self, after_s: float) -> None:
        super().__init__(f"not ready, look again after {after_s} s")
        self.after_s = after_s


class PreparationError(Exception):
    """The pod cannot be prepared on this node: the request has failed.

    code: of the result, and of the back-off of the pod's group.
    """

    def __init__(self, code: str, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.answer = Answer(status=status, reason=reason, message=message)


class PodMovedError(Exception):
    """The pod is not as it was read: read it again."""

    def __init__(self, exc: ConflictError) -> None:
        super().__init__(exc.message)
        self.answer = Answer(status=exc.status, reason=exc.reason, message=exc.message)


class PodLeftError(Exception):
    """There is no such pod any more."""

    def __init__(self, exc: GoneError) -> None:
        super().__init__(exc.message)
        self.answer = Answer(status=exc.status, reason=exc.reason, message=exc.message)


@dataclass(slots=True)
class Order:
    """One bind request on its way, as preparations see it.

    pod:      the raw pod as last read or written; None once there is none.
    gpu_ids:  devices of the request's GPU groups, in their order, once they are reserved.
    begun:    names of preparations that may have left something behind, in order.
    since_s:  monotonic time at which each first was asked, for deadlines.
    notes:    what preparations remember of this request, each under its name.
    wake:     what may happen before the time that the last `NotReadyError` named; None = nothing.
    """

    request: BindRequested
    cluster: ClusterWrites
    clock: Clock
    nodes: Nodes
    pod: dict[str, Any] | None = None
    gpu_ids: tuple[str, ...] = ()
    begun: list[str] = field(default_factory=list)
    since_s: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    wake: asyncio.Event | None = None

    @property
    def live(self) -> dict[str, Any]:
        """The pod, which is there."""
        assert self.pod is not None, "prepared is what was read"
        return self.pod

    @property
    def rv(self) -> int:
        """The pod's resourceVersion, as known here."""
        return int(self.live["metadata"]["resourceVersion"])

    @property
    def name(self) -> str:
        """`namespace/name` of the pod, for messages."""
        return f"{self.request.namespace}/{self.request.pod}"

    def waited_s(self, name: str) -> float:
        """How long a preparation has been at it."""
        now_s = self.clock.monotonic_s()
        return now_s - self.since_s.setdefault(name, now_s)

    async def patch_pod(self, changes: Mapping[str, Any], *, subresource: str = "") -> None:
        """Merge into the pod as last read; `pod` is what it became.

        Raises:
            PodMovedError, PodLeftError: it is not as it was read.
            RefusedError, UnavailableError: as of `ClusterWrites`.
        """
        request = self.request
        try:
            self.pod = await self.cluster.patch(
                PODS,
                request.namespace,
                request.pod,
                changes,
                uid=request.pod_uid,
                rv=self.rv,
                subresource=subresource,
            )
        except ConflictError as exc:
            raise PodMovedError(exc) from exc
        except GoneError as exc:
            raise PodLeftError(exc) from exc


class Preparation(Protocol):
    """One thing that is done before a bind.

    name:   of the plugin, in results and configuration.
    failed: how messages of its failures begin.
    """

    name: str
    failed: str

    def concerns(self, request: BindRequested) -> bool:
        """Whether the request needs it; asked once, before the pod is read."""
        ...

    async def prepare(self, order: Order) -> None:
        """Do it, or find it done.

        Raises:
            NotReadyError: it has begun; ask again.
            PreparationError: it cannot be done.
            PodMovedError, PodLeftError: as of `Order.patch_pod`.
            RefusedError, GoneError: of another object: it cannot be done.
            ConflictError, UnavailableError: this attempt failed; the next may do better.
        """
        ...

    async def undo(self, order: Order) -> None:
        """Take back what `prepare` did, or may have done before a restart.

        Pods are unbound or gone (`order.pod` None). Nothing that is taken away already is missed.

        Raises:
            PodMovedError, PodLeftError: as of `Order.patch_pod`.
            UnavailableError: ask again; every other error is logged and that is that.
        """
        ...


_AS_DECLARED: Final = (
    NotReadyError,
    PodMovedError,
    PodLeftError,
    UnavailableError,
    FencedError,
)
"""What preparations may raise beside what is turned into a `PreparationError`."""


def of_plugin(name: str) -> str:
    """How messages of a plugin's failures begin, as in the reference."""
    return f"plugin {name} failed in PreBind: "


class Observer(Protocol):
    """Is told of every bind request that a binder takes up, and of its end."""

    def opened(self, request: BindRequested) -> None:
        """It was read and has no final result."""
        ...

    def closed(self, request: BindRequested, result: Result | None) -> None:
        """Its final result is durable; None = this binder ends before that."""
        ...


class Preparations:
    """The preparations of a binder, in order."""

    def __init__(self, listed: Sequence[Preparation]) -> None:
        self._listed = tuple(listed)

    def concern(self, request: BindRequested) -> "Chain":
        """Those that a request needs."""
        return Chain([one for one in self._listed if one.concerns(request)])


class Chain:
    """The preparations of one request."""

    def __init__(self, listed: Sequence[Preparation]) -> None:
        self._listed = listed

    def __bool__(self) -> bool:
        return bool(self._listed)

    async def prepare(self, order: Order) -> None:
        """Run all in order, up to the first that is not ready or fails.

        Raises:
            NotReadyError, PreparationError, PodMovedError, PodLeftError: see `Preparation`.
            UnavailableError: this attempt failed.
        """
        for one in self._listed:
            if one.name not in order.begun:
                order.begun.append(one.name)
            try:
                await one.prepare(order)
            except PreparationError as exc:
                answer, text = exc.answer, one.failed + exc.answer.message
                raise PreparationError(
                    exc.code, text, status=answer.status, reason=answer.reason
                ) from exc
            except ConflictError as exc:
                text = one.failed + exc.message
                raise UnavailableError(text, status=exc.status, reason=exc.reason) from exc
            except AnswerError as exc:
                text = one.failed + exc.message
                raise PreparationError(
                    one.name, text, status=exc.status, reason=exc.reason
                ) from exc
            except _AS_DECLARED:
                raise
            except Exception as exc:  # one pod's object must not stop the binds of all (race 20)
                logger.exception("preparation", extra={"pod": order.name, "plugin": one.name})
                text = f"{one.failed}Internal Error: {exc!r}"
                raise PreparationError(INTERNAL, text) from exc

    async def undo(self, order: Order, *, recovered: bool) -> None:
        """Undo in reverse order all that was begun.

        Args:
            order: of the request.
            recovered: a predecessor may have begun any of it.

        Raises:
            PodMovedError, PodLeftError, UnavailableError: see `Preparation`.
        """
        for one in reversed(self._listed):
            if not recovered and one.name not in order.begun:
                continue
            try:
                await one.undo(order)
            except AnswerError as exc:
                text = f"plugin {one.name} failed in Rollback: {exc.message}"
                logger.warning("rollback", extra={"pod": order.name, "problem": text})
            except _AS_DECLARED:
                raise
            except Exception:  # as above; the others are undone all the same
                logger.exception("rollback", extra={"pod": order.name, "plugin": one.name})
