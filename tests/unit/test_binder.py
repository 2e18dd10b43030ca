"""The request life cycle against pods in memory: every race that can be staged without a server."""

import asyncio
import contextlib
import json

import pytest

from kai_es.binder.plan import ATTEMPTS, NOTED, RETRIES
from kai_es.binder.service import Binder, Share
from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.eventlog.memory_offsets import MemoryOffsets
from kai_es.events.catalogue import BIND_REQUESTS, BIND_RESULTS
from kai_es.events.codec import decode, pack, unpack
from kai_es.events.decisions import ZoneAmount
from kai_es.events.envelope import PoisonError
from kai_es.events.requests import (
    AttemptFailed,
    BindRequested,
    Bound,
    Evicted,
    EvictRequested,
    Refused,
    is_final,
)
from kai_es.kube.labels import (
    BOUND_REQUEST,
    CLOSED_REQUEST,
    NUMA_PREDICTED,
    RECEIVED_RESOURCE_TYPE,
)
from kai_es.ports.errors import FencedError, GoneError, UnavailableError
from kai_es.ports.eventlog import Out, Position
from tests.clocks import HastyClock, let_run
from tests.fake_pods import FakePods

NOW_MS = 1_000_000


class FixedClock(HastyClock):
    """A wall clock that tests move; waiting is hasty."""

    def __init__(self):
        self.ms = NOW_MS

    def now_ms(self):
        return self.ms


class World:
    """Pods, a log, and binders on them."""

    def __init__(self):
        self.pods = FakePods()
        self.store = MemoryStore()
        self.log = MemoryLog(store=self.store)
        self.leadership = MemoryLeadership()
        self.offsets = MemoryOffsets()
        self.clock = FixedClock()
        self.cycle = 0
        self.epoch = None
        self.binders = 0

    async def order(self, pod="p", *, node="n1", partition=0, evict=False, **changes):
        """Append a request for a pod as it is now; its id."""
        self.epoch = self.epoch or await self.log.take_over("scheduler-s")
        self.cycle += 1
        live = self.pods.pods.get(pod)
        uid = changes.pop("pod_uid", live["metadata"]["uid"] if live else f"uid-{pod}")
        fields = {
            "request_id": f"s/{self.cycle}/{uid}",
            "shard": "s",
            "cycle": self.cycle,
            "epoch": 1,
            "namespace": "ns",
            "pod": pod,
            "pod_uid": uid,
            "pod_rv": self.pods.rv_of(pod) if live else 1,
            "node": node,
            "node_uid": f"uid-{node}",
            "group_uid": "g",
            "not_after_ms": NOW_MS + 120_000,
            **({"action": "reclaim"} if evict else {}),
            **changes,
        }
        request = EvictRequested(**fields) if evict else BindRequested(**fields)
        envelope = pack(
            request,
            topic=BIND_REQUESTS,
            record_id=request.request_id,
            event_time=NOW_MS,
            ingest_time=NOW_MS,
            producer="test",
        )
        await self.log.append(self.epoch, [Out(BIND_REQUESTS, uid, partition, envelope)])
        return request.request_id

    def binder(self, **changes):
        self.binders += 1
        return Binder(
            cluster=changes.pop("cluster", self.pods),
            eventlog=changes.pop("log", self.log),
            leadership=changes.pop("leadership", self.leadership),
            offsets=self.offsets,
            clock=self.clock,
            holder=f"b{self.binders}",
            **changes,
        )

    async def results(self, request_id=None):
        found = []
        for partition, start in sorted((await self.log.begin(BIND_RESULTS)).items()):
            async for entries in self.log.read(BIND_RESULTS, partition, start, follow=False):
                found += [unpack(decode(entry.value)) for entry in entries]
        return [r for r in found if request_id in (None, r.request_id)]

    async def final(self, request_id):
        """The one final result of a request, once it is there."""
        async with asyncio.timeout(10):
            while not (final := [r for r in await self.results(request_id) if is_final(r)]):
                await asyncio.sleep(0.001)
        assert len(final) == 1
        return final[0]

    async def noted(self, request_id):
        """The first result of a request, final or not, once it is there."""
        async with asyncio.timeout(10):
            while not (found := await self.results(request_id)):
                await asyncio.sleep(0.001)
        return found[0]

    def closed(self, pod="p"):
        return self.pods.pods[pod]["metadata"]["annotations"].get(CLOSED_REQUEST)


@pytest.fixture
def world():
    return World()


@contextlib.asynccontextmanager
async def running(binder):
    task = asyncio.create_task(binder.run())
    try:
        yield task
    except TimeoutError:
        if task.done() and not task.cancelled():
            task.result()  # why it did not answer
        raise
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def outcome(world, request_id):
    """Run a binder until the request is final."""
    async with running(world.binder()):
        return await world.final(request_id)


@pytest.fixture
def pods(world):
    world.pods.node("n1")
    world.pods.node("n2")
    world.pods.pod("p")
    return world.pods


async def test_bind_is_one_write_with_received_type(world, pods):
    final = await outcome(world, await world.order())
    assert isinstance(final, Bound)
    assert (final.node, final.node_uid, final.attempt, final.answer.status) == (
        "n1",
        "uid-n1",
        1,
        201,
    )
    assert pods.calls == ["node", "bind"]
    notes = {RECEIVED_RESOURCE_TYPE: "Regular", BOUND_REQUEST: final.request_id}
    assert pods.pods["p"]["metadata"]["annotations"] == notes


async def test_pod_with_predicted_zones_says_which(world, pods):
    zones = (ZoneAmount(zone="z0", amount={"cpu": "4"}),)
    await outcome(world, await world.order(zones=zones))
    text = pods.pods["p"]["metadata"]["annotations"][NUMA_PREDICTED]
    assert json.loads(text) == [{"zone": "z0", "amount": {"cpu": "4"}}]


SHARED = {"received": "Fraction", "gpu_count": 1, "gpu_portion": 50}
MAPS = {"runai/shared-gpu-configmap": "maps"}


@pytest.mark.parametrize(
    ("groups", "labels"),
    [
        (("a",), {"runai-gpu-group": "a"}),
        (("a", "b"), {"runai-gpu-group/a": "a", "runai-gpu-group/b": "b"}),
    ],
)
async def test_pod_on_shared_devices_says_which_before_it_is_bound(world, pods, groups, labels):
    pods.pod("p", annotations=MAPS)
    final = await outcome(world, await world.order(gpu_groups=groups, **SHARED))
    assert isinstance(final, Bound)
    assert pods.calls == ["node", "get", "patch", "bind"]
    assert pods.pods["p"]["metadata"]["labels"] == labels
    notes = {RECEIVED_RESOURCE_TYPE: "Fraction", BOUND_REQUEST: final.request_id, **MAPS}
    assert pods.pods["p"]["metadata"]["annotations"] == notes


async def test_labels_that_an_earlier_request_left_behind_go(world, pods):
    labels = {"runai-gpu-group/old": "old", "app": "x"}
    pods.pod("p", labels=labels, annotations=MAPS)
    final = await outcome(world, await world.order(gpu_groups=("a",), **SHARED))
    assert isinstance(final, Bound)
    assert pods.calls == ["node", "get", "patch", "bind"]
    assert pods.pods["p"]["metadata"]["labels"] == {"runai-gpu-group": "a", "app": "x"}


async def test_pod_that_is_not_bound_loses_its_labels_of_shared_devices(world, pods):
    pods.pod("p", annotations=MAPS)
    pods.faults = [("bind", "forbidden")]
    request_id = await world.order(gpu_groups=("a",), **SHARED)
    final = await outcome(world, request_id)
    assert isinstance(final, AttemptFailed)
    assert pods.pods["p"]["metadata"]["labels"] == {}
    assert world.closed() == request_id


async def test_pod_bound_elsewhere_keeps_its_labels_of_shared_devices(world, pods):
    request_id = await world.order(gpu_groups=("a",), **SHARED)
    pods.pod("p", node="n2", labels={"runai-gpu-group": "other"})
    final = await outcome(world, request_id)
    assert isinstance(final, Refused)
    assert pods.pods["p"]["metadata"]["labels"] == {"runai-gpu-group": "other"}


async def test_result_goes_to_the_partition_of_its_request(world, pods):
    request_id = await world.order(partition=5)
    await outcome(world, request_id)
    entries = [e async for es in world.log.read(BIND_RESULTS, 5, 0, follow=False) for e in es]
    assert [unpack(decode(e.value)).request_id for e in entries] == [request_id]
    assert decode(entries[0].value).causes == (request_id,)


async def test_evict_deletes_on_uid_and_version(world, pods):
    pods.pod("p", node="n1", phase="Running")
    final = await outcome(world, await world.order(evict=True))
    assert isinstance(final, Evicted)
    assert pods.deletes == ["uid-p"]
    assert pods.calls == ["delete"]


async def test_version_moved_on_is_looked_at_and_tried_again(world, pods):
    request_id = await world.order()
    pods.touch("p")
    final = await outcome(world, request_id)
    assert isinstance(final, Bound)
    assert pods.calls == ["node", "bind", "get", "bind"]


async def test_found_bound_here_is_success_without_another_write(world, pods):
    request_id = await world.order()
    pods.pods["p"]["spec"]["nodeName"] = "n1"
    final = await outcome(world, request_id)
    assert isinstance(final, Bound)
    assert final.answer.message == "found bound here"
    assert pods.binds == []


async def test_pod_that_an_earlier_request_has_bound_is_not_bound_again(world, pods):
    """Its node was deleted and made again under its name before anybody had seen the result."""
    first = await world.order(node_uid="uid-before")
    second = await world.order(supersedes=first)
    pods.pods["p"]["spec"]["nodeName"] = "n1"
    pods.touch("p")
    pods.pods["p"]["metadata"]["annotations"][BOUND_REQUEST] = first
    async with running(world.binder()):
        finals = [await world.final(first), await world.final(second)]
    assert [type(final) for final in finals] == [Bound, Refused]
    assert (finals[0].node_uid, finals[1].code) == ("uid-before", "bound-elsewhere")
    assert first in finals[1].answer.message
    assert pods.binds == []


async def test_node_made_again_during_a_bind_leaves_one_bound_request(world, pods):
    def made_again():
        pods.node("n1", uid="uid-again")

    first = await world.order()
    pods.faults = [("bind", made_again)]
    assert isinstance(await outcome(world, first), Bound)
    second = await world.order(node_uid="uid-again", supersedes=first)
    final = await outcome(world, second)
    assert (type(final), final.code) == (Refused, "bound-elsewhere")
    assert pods.binds == [("uid-p", "n1")]


async def test_bind_before_a_crash_is_known_again_after_it(world, pods):
    """Also when its node has gone meanwhile, and when the binder before wrote no request's id."""
    request_id = await world.order(node_uid="uid-before")
    pods.pods["p"]["spec"]["nodeName"] = "n1"
    pods.pods["p"]["metadata"]["annotations"][BOUND_REQUEST] = request_id
    assert isinstance(await outcome(world, request_id), Bound)
    pods.pod("q", node="n1")
    assert isinstance(await outcome(world, await world.order("q")), Bound)


async def test_lost_answer_of_a_bind_is_found_out(world, pods):
    pods.faults = [("bind", "lost")]
    request_id = await world.order()
    final = await outcome(world, request_id)
    assert isinstance(final, Bound)
    assert pods.binds == [("uid-p", "n1")]
    first, last = await world.results(request_id)
    assert (first.code, first.final, first.attempt, last.attempt) == ("unavailable", False, 1, 2)


async def test_bound_elsewhere_is_refused_and_closed(world, pods):
    request_id = await world.order()
    pods.pods["p"]["spec"]["nodeName"] = "n2"
    pods.touch("p")
    final = await outcome(world, request_id)
    assert isinstance(final, Refused)
    assert final.code == "bound-elsewhere"
    assert world.closed() == request_id


@pytest.mark.parametrize("evict", [False, True])
async def test_pod_that_is_gone_is_refused(world, pods, evict):
    request_id = await world.order(evict=evict)
    del pods.pods["p"]
    final = await outcome(world, request_id)
    assert isinstance(final, Refused)
    assert (final.code, final.answer.status) == ("pod-gone", 404)


@pytest.mark.parametrize("evict", [False, True])
async def test_recreated_pod_of_the_same_name_is_left_alone(world, pods, evict):
    request_id = await world.order(evict=evict)
    fresh = pods.pod("p", uid="uid-new", node="n1" if evict else "")
    before = dict(fresh["metadata"])
    final = await outcome(world, request_id)
    assert isinstance(final, Refused)
    assert final.code == "pod-gone"
    assert pods.binds == pods.deletes == []
    assert pods.pods["p"]["metadata"] == before, "not even its annotations are touched"


@pytest.mark.parametrize(
    ("state", "evict", "code"),
    [
        ({"phase": "Succeeded"}, False, "pod-gone"),
        ({"phase": "Failed", "node": "n1"}, True, "pod-gone"),
    ],
)
async def test_ended_pod_is_refused_and_closed(world, pods, state, evict, code):
    request_id = await world.order(evict=evict)
    pods.pod("p", **state)
    final = await outcome(world, request_id)
    assert isinstance(final, Refused)
    assert final.code == code
    assert world.closed() == request_id


async def test_pod_being_deleted_is_no_bind_and_is_an_evict_done(world, pods):
    bind = await world.order()
    pods.pod("p", deleting=True)
    assert (await outcome(world, bind)).code == "pod-gone"
    evict = await world.order(evict=True, pod_rv=1)
    assert isinstance(await outcome(world, evict), Evicted)
    assert pods.deletes == []


@pytest.mark.parametrize("evict", [False, True])
async def test_expired_request_is_closed_then_refused(world, pods, evict):
    request_id = await world.order(evict=evict)
    world.clock.ms += 120_001
    final = await outcome(world, request_id)
    assert isinstance(final, Refused)
    assert final.code == "expired"
    assert world.closed() == request_id
    assert pods.calls == ["get", "patch"]


async def test_not_after_is_the_last_moment(world, pods):
    request_id = await world.order()
    world.clock.ms += 120_000
    assert isinstance(await outcome(world, request_id), Bound)


async def test_request_that_expires_while_it_is_retried_is_closed(world, pods):
    def expire():
        world.clock.ms += 120_001
        pods.touch("p")

    pods.faults = [("bind", expire)]
    request_id = await world.order()
    final = await outcome(world, request_id)
    assert final.code == "expired"
    assert pods.binds == []
    assert world.closed() == request_id


async def test_expired_but_bound_here_by_a_predecessor_is_success(world, pods):
    request_id = await world.order()
    world.clock.ms += 120_001
    pods.pods["p"]["spec"]["nodeName"] = "n1"
    assert isinstance(await outcome(world, request_id), Bound)


@pytest.mark.parametrize("uid", [None, "uid-another"])
async def test_node_that_is_gone_or_another_is_refused_and_closed(world, pods, uid):
    request_id = await world.order()
    del pods.nodes["n1"]
    if uid:
        pods.node("n1", uid)
    final = await outcome(world, request_id)
    assert isinstance(final, Refused)
    assert final.code == "node-gone"
    assert world.closed() == request_id
    assert pods.binds == []


async def test_gated_pod_fails_and_is_closed(world, pods):
    pods.pod("p", gates=True)
    request_id = await world.order()
    final = await outcome(world, request_id)
    assert isinstance(final, AttemptFailed)
    assert (final.code, final.group_uid, final.final) == ("gated", "g", True)
    assert world.closed() == request_id


async def test_denied_write_fails_for_good_and_is_closed(world, pods):
    pods.faults = [("bind", "forbidden")]
    request_id = await world.order()
    final = await outcome(world, request_id)
    assert isinstance(final, AttemptFailed)
    assert (final.code, final.answer.status) == ("forbidden", 403)
    assert world.closed() == request_id


async def test_binder_without_any_rights_still_answers(world, pods):
    pods.faults = [("bind", "forbidden"), ("get", "forbidden")]
    final = await outcome(world, await world.order())
    assert (final.code, final.final) == ("forbidden", True)


async def test_pod_that_keeps_changing_fails_after_bounded_tries(world, pods):
    pods.faults = [("bind", lambda: pods.touch("p"))] * 100
    request_id = await world.order()
    final = await outcome(world, request_id)
    assert (final.code, final.final) == ("conflict", True)
    results = await world.results(request_id)
    assert [r.attempt for r in results] == list(range(1, ATTEMPTS + 1))
    assert pods.calls.count("bind") == ATTEMPTS * (1 + RETRIES)
    assert world.closed() == request_id


async def test_pod_that_changes_while_it_is_closed_is_closed_later(world, pods):
    pods.faults = [("patch", lambda: pods.touch("p"))] * 8
    request_id = await world.order(not_after_ms=NOW_MS - 1)
    final = await outcome(world, request_id)
    assert final.code == "expired"
    assert world.closed() == request_id


async def test_lost_answer_of_closing_is_found_out(world, pods):
    pods.faults = [("patch", "lost")]
    request_id = await world.order(not_after_ms=NOW_MS - 1)
    final = await outcome(world, request_id)
    assert final.code == "expired"
    assert pods.calls.count("patch") == 1


async def test_pod_bound_here_between_look_and_closing_is_success(world, pods):
    def bound_by_predecessor():
        pods.pods["p"]["spec"]["nodeName"] = "n1"
        pods.touch("p")

    pods.faults = [("patch", bound_by_predecessor)]
    request_id = await world.order(not_after_ms=NOW_MS - 1)
    assert isinstance(await outcome(world, request_id), Bound)
    assert world.closed() is None


async def test_delayed_write_of_a_stopped_predecessor_can_only_fail(world, pods):
    """The predecessor hangs in its bind; the successor refuses; then the bind arrives."""
    request_id = await world.order()
    arrive = asyncio.Event()
    old_rv = pods.rv_of("p")
    pods.faults = [("bind", arrive.wait)]
    stopped = asyncio.create_task(
        pods.bind("ns", "p", uid="uid-p", rv=old_rv, node="n1", annotations={})
    )
    await asyncio.sleep(0.005)
    world.clock.ms += 120_001
    assert (await outcome(world, request_id)).code == "expired"
    arrive.set()
    with pytest.raises(Exception, match="precondition failed"):
        await stopped
    assert pods.binds == []


async def test_request_closed_by_another_binder_ends_this_one(world, pods):
    """If that one has the role, it answers; if this one has it, it does when it is back."""

    def closed_by_successor():
        pods.pods["p"]["metadata"]["annotations"][CLOSED_REQUEST] = "s/1/uid-p"
        pods.touch("p")

    pods.faults = [("bind", closed_by_successor)]
    binder = world.binder()
    async with running(binder) as task:
        while not binder.leads():
            await asyncio.sleep(0.001)
        request_id = await world.order()
        with pytest.raises(FencedError):
            await asyncio.wait_for(task, 5)
        assert await world.results(request_id) == []
        assert pods.binds == []
    final = await outcome(world, request_id)
    assert (type(final), final.code) == (AttemptFailed, "closed")


@pytest.mark.parametrize(
    ("late_ms", "kind", "code"), [(0, AttemptFailed, "closed"), (120_001, Refused, "expired")]
)
async def test_request_closed_before_a_crash_gets_its_result_after_it(
    world, pods, late_ms, kind, code
):
    request_id = await world.order()
    pods.pod("p", annotations={CLOSED_REQUEST: request_id})
    world.clock.ms += late_ms
    final = await outcome(world, request_id)
    assert isinstance(final, kind)
    assert final.code == code
    assert pods.binds == []


async def test_outage_is_sat_out_and_little_is_published(world, pods):
    pods.away = True
    request_id = await world.order()
    binder = world.binder()
    async with running(binder):
        async with asyncio.timeout(10):
            while len(pods.calls) < NOTED + 4:
                await asyncio.sleep(0.005)
        assert len(await world.results(request_id)) == NOTED
        assert "connection refused" in binder.trouble()
        world.clock.ms += 120_001
        await let_run(0.02)
        pods.away = False
        assert (await world.final(request_id)).code == "expired"
        assert binder.trouble() == ""
    assert world.closed() == request_id


async def test_requests_of_one_pod_go_one_after_another(world, pods):
    release = asyncio.Event()
    pods.faults = [("bind", release.wait)]
    first = await world.order(partition=0)
    second = await world.order(partition=3, node="n2")
    async with running(world.binder()):
        await let_run(0.02)
        assert pods.calls == ["node", "bind"]
        release.set()
        assert isinstance(await world.final(first), Bound)
        assert (await world.final(second)).code == "bound-elsewhere"


async def test_requests_of_many_pods_go_side_by_side(world, pods):
    release = asyncio.Event()
    pods.faults = [("bind", release.wait)] * 40
    ids = []
    for n in range(40):
        pods.pod(f"p{n}")
        ids.append(await world.order(f"p{n}", partition=n % 8))
    async with running(world.binder()):
        async with asyncio.timeout(5):
            while pods.calls.count("bind") < 40:
                await asyncio.sleep(0.001)
        release.set()
        for request_id in ids:
            assert isinstance(await world.final(request_id), Bound)
    assert pods.calls.count("node") == 1, "one look at a node serves all"


async def test_restart_repeats_nothing_that_is_final(world, pods):
    done = await world.order()
    assert isinstance(await outcome(world, done), Bound)
    pods.calls.clear()
    pods.pod("q")
    later = await world.order("q")
    assert isinstance(await outcome(world, later), Bound)
    assert pods.calls == ["node", "bind"]
    assert len(await world.results()) == 2


async def test_restart_without_marks_derives_the_same(world, pods):
    done = await world.order()
    await outcome(world, done)
    world.offsets._marks.clear()
    pods.calls.clear()
    async with running(world.binder()):
        await let_run(0.03)
    assert pods.calls == []
    assert len(await world.results(done)) == 1


async def test_crash_between_bind_and_result_ends_in_one_bound(world, pods):
    class DyingLog(MemoryLog):
        async def append(self, epoch, batch):
            raise FencedError("the process dies here")

    request_id = await world.order()
    with pytest.raises(FencedError):
        await world.binder(log=DyingLog(store=world.store)).run()
    assert pods.binds == [("uid-p", "n1")]
    final = await outcome(world, request_id)
    assert isinstance(final, Bound)
    assert pods.binds == [("uid-p", "n1")]


async def test_attempts_go_on_counting_after_a_restart(world, pods):
    pods.away = True
    request_id = await world.order()
    async with running(world.binder()):
        while not await world.results(request_id):
            await asyncio.sleep(0.001)
    attempts = len(await world.results(request_id))
    pods.away = False
    assert (await outcome(world, request_id)).attempt == attempts + 1


async def test_marks_never_pass_a_request_without_a_final_result(world, pods):
    stuck = await world.order("p", partition=2)
    pods.pod("q")
    pods.faults = [("bind", asyncio.Event().wait)]
    async with running(world.binder()):
        await let_run(0.02)
        done = await world.order("q", partition=2)
        assert isinstance(await world.final(done), Bound)
        await let_run(0.15)
    mark = (await world.offsets.load("binder", BIND_REQUESTS))[2]
    entries = [e async for es in world.log.read(BIND_REQUESTS, 2, 0, follow=False) for e in es]
    assert mark.position == entries[0].position
    assert mark.note == "0", "the result of the later request is read again"
    pods.calls.clear()
    assert isinstance(await outcome(world, stuck), Bound)
    assert pods.calls.count("bind") == 1


async def test_marks_of_a_restart_reach_back_to_the_results_it_read(world, pods):
    """A request in front of answered ones stays open over two restarts."""
    await world.order("p", partition=2)
    pods.pod("q")
    pods.faults = [("bind", asyncio.Event().wait)] * 2
    async with running(world.binder()):
        await let_run(0.02)
        done = await world.order("q", partition=2, evict=True)
        assert isinstance(await world.final(done), Evicted)
        await let_run(0.02)
    for _ in range(2):
        pods.calls.clear()
        async with running(world.binder()):
            await let_run(0.1)
        assert [type(result) for result in await world.results(done)] == [Evicted]


async def test_log_that_is_away_at_the_start_is_said_and_sat_out(world, pods):
    class Away(MemoryLog):
        away = 2

        async def take_over(self, producer_id):
            if self.away:
                self.away -= 1
                raise UnavailableError("no broker")
            return await super().take_over(producer_id)

    said = []

    class Clock(FixedClock):
        async def sleep(self, seconds):
            said.append(binder.trouble())
            await super().sleep(seconds)

    world.clock = Clock()
    request_id = await world.order()
    binder = world.binder(log=Away(store=world.store))
    async with running(binder):
        assert isinstance(await world.final(request_id), Bound)
        assert said[:2] == ["no broker"] * 2
        assert binder.trouble() == ""


async def test_log_that_goes_away_while_requests_are_read_is_sat_out(world, pods):
    class Away(MemoryLog):
        left = 3

        async def read(self, topic, partition, start, *, follow):
            async for entries in super().read(topic, partition, start, follow=follow):
                if follow and entries:
                    self.left -= 1
                    yield entries
                    if self.left:
                        raise UnavailableError("away")
                else:
                    yield entries

    pods.pod("q")
    pods.pod("r")
    async with running(world.binder(log=Away(store=world.store))):
        for name in ("p", "q", "r"):
            assert isinstance(await world.final(await world.order(name)), Bound)
    assert len(pods.binds) == 3


async def test_requests_deleted_unread_stop_the_binder(world, pods):
    done = await world.order()
    await outcome(world, done)
    await world.order()
    await world.log.trim(BIND_REQUESTS, 0, Position(2))
    with pytest.raises(GoneError, match="requests were deleted unread"):
        await asyncio.wait_for(world.binder().run(), 5)


async def test_request_that_cannot_be_read_stops_the_binder(world, pods):
    await world.order()
    entry = world.store.partitions[BIND_REQUESTS, 0].entries[0]
    world.store.partitions[BIND_REQUESTS, 0].entries[0] = entry._replace(value=b"\x00")
    with pytest.raises((PoisonError, ExceptionGroup)) as caught:
        await asyncio.wait_for(world.binder().run(), 5)
    assert caught.group_contains(PoisonError) or caught.errisinstance(PoisonError)


async def test_lease_too_old_writes_nothing(world, pods):
    class Stale:
        age = 0.0

        def age_s(self):
            return self.age

        async def lost(self):
            await asyncio.Event().wait()

        async def release(self):
            pass

    lease = Stale()

    class Leadership:
        async def acquire(self, role, holder, waits):
            return lease

    binder = world.binder(leadership=Leadership())
    async with running(binder) as task:
        while not binder.leads():
            await asyncio.sleep(0.001)
        lease.age = 10.5
        request_id = await world.order()
        # Nobody would answer the request if it went on and its lease were renewed after all.
        with pytest.raises(FencedError):
            await asyncio.wait_for(task, 5)
        assert set(pods.calls) <= {"node", "get"}, "only looked"
        assert await world.results(request_id) == []
    lease.age = 0.0
    assert isinstance(await outcome(world, request_id), Bound)


async def test_second_binder_waits_and_fences_the_first(world, pods):
    first, second = world.binder(), world.binder(log=MemoryLog(store=world.store))
    async with running(first) as task, running(second):
        while not first.leads():
            await asyncio.sleep(0.001)
        await MemoryLog(store=world.store).take_over("binder")
        request_id = await world.order()
        with pytest.raises(FencedError):
            await asyncio.wait_for(task, 5)
        final = await world.final(request_id)
        assert isinstance(final, Bound)
        assert (final.binder, second.leads()) == ("b2", True)
    assert len(pods.binds) == 1


async def test_two_binders_share_the_partitions(world, pods):
    low = world.binder(share=Share("binder-0", (0, 1, 2, 3)))
    high = world.binder(share=Share("binder-1", (4, 5, 6, 7)), log=MemoryLog(store=world.store))
    pods.pod("q")
    async with running(low), running(high):
        a, b = await world.order("p", partition=1), await world.order("q", partition=6)
        assert [(await world.final(i)).binder for i in (a, b)] == ["b1", "b2"]


async def test_unavailable_log_delays_results_and_loses_none(world, pods):
    class Away(MemoryLog):
        away = 3

        async def append(self, epoch, batch):
            if self.away:
                self.away -= 1
                raise UnavailableError("away")
            return await super().append(epoch, batch)

    request_id = await world.order()
    async with running(world.binder(log=Away(store=world.store))):
        assert isinstance(await world.final(request_id), Bound)
