"""Ports of the host that pods want for themselves.

Reference: Kubernetes' kube-scheduler/framework/plugins/nodeports (plugins §3.4).
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Reason
from kai_es.scheduler.flags import LEAVING_PODS_STAY
from kai_es.scheduler.framework.extensions import TaskMask
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.tally import Count, Tally
from kai_es.snapshot.status import ACTIVE_USED, TaskStatus

Mask = NDArray[np.bool_]
Ports = tuple[tuple[str, str, int], ...]

_ANY_IP = ("", "0.0.0.0")


class PortRule:
    """The rule of one session: by ports asked for, pods per node that hold one of them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._stays = LEAVING_PODS_STAY in session.flags
        self._tallies: dict[Ports, Tally] = {}

    def _taken(self, ports: Ports) -> Tally:
        found = self._tallies.get(ports)
        if found is None:
            session = self._session
            columns = session.columns
            base: dict[int, Count] = {}
            for n, pods in enumerate(columns.nodes.special):
                for row in pods:
                    status = columns.status_of(row)
                    if status in ACTIVE_USED and clash(ports, row.shape.spec.host_ports):
                        now, later = base.get(n, (0, 0))
                        base[n] = (now + 1, later + (status is not TaskStatus.RELEASING))

            def weigh(task: int) -> int:
                return int(clash(ports, session.row(task).shape.spec.host_ports))

            found = self._tallies[ports] = Tally(session, base, weigh)
        return found.update()

    def mask(self, task: int) -> TaskMask | None:
        """Where a task may go, None = anywhere."""
        ports = self._session.row(task).shape.spec.host_ports
        if not ports:
            return None
        tally = self._taken(ports)
        now = ~self._nodes(tally.now)
        return TaskMask(now, now if self._stays else ~self._nodes(tally.later))

    def _nodes(self, rows: Iterable[int]) -> Mask:
        found = np.zeros(len(self._session.nodes), np.bool_)
        found[list(rows)] = True
        return found

    def why(self, task: int) -> Iterable[tuple[Mask, Reason]]:
        """Nodes that are left out."""
        ports = self._session.row(task).shape.spec.host_ports
        if not ports:
            return ()
        tally = self._taken(ports)
        return [(self._nodes(tally.now if self._stays else tally.later), Reason(code="host-ports"))]


def clash(one: Ports, other: Ports) -> bool:
    """Whether two pods cannot hold their ports on one host."""
    return any(
        port == theirs
        and protocol == their_protocol
        and (ip == their_ip or ip in _ANY_IP or their_ip in _ANY_IP)
        for protocol, ip, port in one
        for their_protocol, their_ip, theirs in other
    )
