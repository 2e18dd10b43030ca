"""Informer and binder on a real broker: what they publish, and what a successor finds."""

import asyncio
import contextlib

import pytest

from kai_es.binder.service import Binder
from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.kafka_lease import KafkaLeadership
from kai_es.eventlog.kafka_offsets import KafkaOffsets
from kai_es.events.catalogue import BIND_REQUESTS, BIND_RESULTS
from kai_es.events.codec import decode, pack, unpack
from kai_es.events.requests import BindRequested, Bound
from kai_es.intake.service import Informer
from kai_es.ports.eventlog import Out
from kai_es.runtime.clock import SystemClock
from tests.fake_cluster import FakeCluster
from tests.fake_pods import FakePods
from tests.intake_fold import PARTITIONS, fold, index

pytestmark = pytest.mark.broker


@pytest.fixture
def settings(kafka_bootstrap, kafka_prefix):
    return KafkaSettings(bootstrap=kafka_bootstrap, prefix=kafka_prefix)


@contextlib.asynccontextmanager
async def running(part):
    task = asyncio.create_task(part.run())
    try:
        async with asyncio.timeout(30):
            while not part.leads():
                if task.done():
                    task.result()
                await asyncio.sleep(0.01)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_informer_and_its_successor(settings):
    cluster = FakeCluster()
    log = KafkaLog(settings)
    await log.open()
    for n in range(7):
        cluster.put("Pod", f"p{n}")
    for holder in ("first", "second"):
        informer = Informer(
            cluster=cluster,
            eventlog=log,
            leadership=KafkaLeadership(settings, prepare=log.open),
            clock=SystemClock(),
            holder=holder,
        )
        async with running(informer), asyncio.timeout(30):
            while informer.problems():
                await asyncio.sleep(0.01)
            cluster.put("Pod", f"of-{holder}")
            while ("Pod", f"of-{holder}") not in (folded := await fold(log)).live:
                await asyncio.sleep(0.05)
        cluster.delete("Pod", "p0" if holder == "first" else "p1")
    assert {key: r.rv for key, r in folded.live.items()} == {
        key: rv for key, rv in cluster.live().items() if key != ("Pod", "p1")
    } | {("Pod", "p1"): folded.live["Pod", "p1"].rv}
    assert len(set(folded.ids)) == len(folded.ids)
    assert len([1 for kind, _ in folded.listed if kind == "Pod"]) == PARTITIONS
    assert (await index(log)).keys() == folded.live.keys()
    await log.close()


async def test_binder_and_its_successor(settings):
    pods = FakePods()
    pods.node("n")
    log = KafkaLog(settings)
    offsets = KafkaOffsets(settings)
    epoch = await log.take_over("scheduler-s")
    for holder in ("first", "second"):
        uid = pods.pod(holder)["metadata"]["uid"]
        request = BindRequested(
            request_id=f"s/1/{uid}",
            shard="s",
            cycle=1,
            epoch=1,
            namespace="ns",
            pod=holder,
            pod_uid=uid,
            pod_rv=pods.rv_of(holder),
            node="n",
            node_uid="uid-n",
            group_uid="g",
            not_after_ms=SystemClock().now_ms() + 60_000,
        )
        envelope = pack(
            request,
            topic=BIND_REQUESTS,
            record_id=request.request_id,
            event_time=0,
            ingest_time=0,
            producer="test",
        )
        await log.append(epoch, [Out(BIND_REQUESTS, uid, 4, envelope)])
        binder = Binder(
            cluster=pods,
            eventlog=log,
            leadership=KafkaLeadership(settings, prepare=log.open),
            offsets=offsets,
            clock=SystemClock(),
            holder=holder,
        )
        async with running(binder), asyncio.timeout(30):
            while (await log.end(BIND_RESULTS))[4] == 0 or binder.n_open():
                await asyncio.sleep(0.02)
    results = [
        unpack(decode(entry.value))
        async for entries in log.read(BIND_RESULTS, 4, 0, follow=False)
        for entry in entries
    ]
    assert [(type(r), r.binder) for r in results] == [(Bound, "first"), (Bound, "second")]
    assert len(pods.binds) == 2
    mark = (await offsets.load("binder", BIND_REQUESTS))[4]
    assert mark.position > 0
    await offsets.close()
    await log.close()
