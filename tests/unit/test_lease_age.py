"""Nothing is written under a lease that may be somebody else's by now."""

import asyncio
import random

import pytest

from kai_es.binder.leased import LeasedCluster
from kai_es.binder.results import Results
from kai_es.eventlog.memory import MemoryLog
from kai_es.events.catalogue import BIND_RESULTS
from kai_es.events.requests import Answer, Refused
from kai_es.ports.cluster import PODS
from kai_es.ports.errors import FencedError
from kai_es.ports.eventlog import LEASE_MAX_S, check_lease
from kai_es.snapshot.ranking import Rank
from kai_es.status import writer as status
from kai_es.status.events import About, KubeEvent
from kai_es.status.groups import POD_GROUPS
from kai_es.status.patch import Patch, PodConditions
from kai_es.status.planner import Planned
from tests.clocks import HastyClock

ME = {"uid": "u", "rv": 1}
WRITES = {
    "create": (PODS, "ns", {}),
    "replace": (PODS, "ns", "p", {}),
    "bind": ("ns", "p"),
    "delete": (PODS, "ns", "p"),
    "evict": ("ns", "p"),
    "patch": (PODS, "ns", "p", {}),
    "set_conditions": ("ns", "p", []),
}
NAMED = {
    "bind": ME | {"node": "n1", "annotations": {}},
    "delete": ME,
    "evict": ME,
    "patch": ME,
    "set_conditions": ME | {"annotations": {}},
}


class Lease:
    def __init__(self, age_s):
        self.age = age_s

    def age_s(self):
        return self.age


class Recorder:
    """Every method of the port, only noted."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        async def call(*args, **rest):
            self.calls.append(name)
            return {"metadata": {"resourceVersion": "2"}}

        return call


def test_a_lease_is_good_up_to_its_limit():
    check_lease(Lease(LEASE_MAX_S), "a role")
    with pytest.raises(FencedError, match=r"lease of a role was last renewed 10\.1 s ago"):
        check_lease(Lease(LEASE_MAX_S + 0.1), "a role")


@pytest.mark.parametrize("write", WRITES)
async def test_no_write_of_the_binder_goes_out_under_an_old_lease(write):
    behind, lease = Recorder(), Lease(0.0)
    cluster = LeasedCluster(behind, lease)
    call = getattr(cluster, write)
    await call(*WRITES[write], **NAMED.get(write, {}))
    assert behind.calls == [write]
    lease.age = LEASE_MAX_S + 1
    with pytest.raises(FencedError):
        await call(*WRITES[write], **NAMED.get(write, {}))
    assert behind.calls == [write]


async def test_no_result_is_told_under_an_old_lease():
    log = MemoryLog()
    lease, clock = Lease(0.0), HastyClock()
    epoch = await log.take_over("binder")
    results = Results(log, epoch=epoch, lease=lease, clock=clock, binder="b", rng=random.Random(1))
    running = asyncio.create_task(results.run())
    await results.put(0, refused(1), cause="c")
    lease.age = LEASE_MAX_S + 0.1
    told = asyncio.create_task(results.put(0, refused(2), cause="c"))
    with pytest.raises(FencedError):
        await running
    told.cancel()
    assert (await log.end(BIND_RESULTS))[0] == 1


def refused(number):
    return Refused(
        request_id=f"s/{number}/u", attempt=1, binder="b", pod_uid="u", code="x", answer=Answer()
    )


async def test_an_old_lease_still_allows_to_read():
    behind = Recorder()
    cluster = LeasedCluster(behind, Lease(LEASE_MAX_S + 1))
    await cluster.get(PODS, "ns", "p")
    await cluster.list(PODS)
    assert behind.calls == ["get", "list"]


@pytest.fixture
def status_writer():
    writer = status.Writer(Recorder(), HastyClock(), random.Random(1))
    writer.lease = Lease(0.0)
    return writer


async def told(writer, *, behind):
    """Everything that the status writer writes, once; the answers."""
    plans = (
        Planned("PodGroup", "u", Rank(1, 1), (Patch(POD_GROUPS, "ns", "g", {}, "status"),)),
        Planned("Pod", "u", Rank(1, 1), (PodConditions("ns", "p", (), {}),)),
    )
    event = KubeEvent(About("Pod", "ns", "p", "u"), "Normal", "Bound", "text", "binder", 1)
    answers = [(await writer.write(planned))[0] for planned in plans]
    return [*answers, await writer.tell(event)], behind.calls


async def test_no_status_and_no_event_goes_out_under_an_old_lease(status_writer):
    behind = status_writer._cluster
    answers, calls = await told(status_writer, behind=behind)
    assert answers == [status.Answer.DONE] * 3
    assert calls == ["patch", "set_conditions", "create"]
    status_writer.lease.age = LEASE_MAX_S + 0.1
    answers, calls = await told(status_writer, behind=behind)
    assert answers == [status.Answer.UNAVAILABLE] * 3
    assert calls == ["patch", "set_conditions", "create"]
