"""Source records on a log, and what a reader finds on `snapshot`."""

import asyncio
import contextlib

from kai_es.events.catalogue import BIND_RESULTS, DECISIONS, OBJECTS, SNAPSHOT
from kai_es.events.codec import pack
from kai_es.events.objects import ObjectDeleted, ObjectSeen
from kai_es.ports.eventlog import Out, Position
from kai_es.reader.records import batch_of
from kai_es.snapshot.world import Applied, Missed, World
from projectors.cycles import chunks_of
from tests.histories.builders import T0


def out(record, topic, key, *, partition=None, at_ms=T0, name=None):
    """A record ready to append."""
    envelope = pack(
        record,
        topic=topic,
        record_id=name or f"{key}@{at_ms}",
        event_time=at_ms,
        ingest_time=at_ms,
        producer="test",
    )
    return Out(topic, key, partition, envelope)


def raw_pod(name="p", *, rv=1, group="g", node=None, phase="Pending", cpu="1"):
    spec = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
    }
    if node:
        spec["nodeName"] = node
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"pod-{name}",
            "resourceVersion": str(rv),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"pod-group-name": group},
        },
        "spec": spec,
        "status": {"phase": phase},
    }


def seen_pod(name="p", *, rv=1, at_ms=T0, **fields):
    raw = raw_pod(name, rv=rv, **fields)
    record = ObjectSeen(
        kind="Pod",
        uid=f"pod-{name}",
        namespace="ns",
        name=name,
        rv=rv,
        incarnation=0,
        object=raw,
    )
    return out(record, OBJECTS, f"Pod/pod-{name}", at_ms=at_ms, name=f"Pod/pod-{name}/{rv}")


def gone_pod(name="p", *, rv=9, at_ms=T0):
    record = ObjectDeleted(
        kind="Pod", uid=f"pod-{name}", namespace="ns", name=name, rv=rv, incarnation=0
    )
    return out(record, OBJECTS, f"Pod/pod-{name}", at_ms=at_ms)


def decided(record, *, partition=0, at_ms=T0):
    return out(record, DECISIONS, record.shard, partition=partition, at_ms=at_ms)


def chunked(cycle, *, partition=0, at_ms=T0):
    return [decided(chunk, partition=partition, at_ms=at_ms) for chunk in chunks_of(cycle)]


def answered(result, *, partition=0, at_ms=T0):
    return out(result, BIND_RESULTS, result.pod_uid, partition=partition, at_ms=at_ms)


async def records(log, topic, partition=0, start=0):
    """Entries from `start` to the end."""
    begin = (await log.begin(topic))[partition]
    entries = []
    async for chunk in log.read(topic, partition, Position(max(start, begin)), follow=False):
        entries.extend(chunk)
    return entries


async def folded(log):
    """The world at the end of `snapshot`, its accepted batches, and how many were rejected."""
    world, accepted, n_rejected = World(), [], 0
    for entry in await records(log, SNAPSHOT):
        batch = batch_of(entry)
        outcome = world.apply(int(entry.position), batch)
        assert not isinstance(outcome, Missed)
        if isinstance(outcome, Applied):
            accepted.append((int(entry.position), batch))
        else:
            n_rejected += 1
    return world, accepted, n_rejected


async def covered(log, world):
    """Whether the history covers everything the sources hold."""
    for topic in (OBJECTS, DECISIONS, BIND_RESULTS):
        for partition, end in (await log.end(topic)).items():
            if world.chain.cursors.get((topic, partition), 0) < end:
                return False
    return True


async def until_covered(log, *, step_s=0.05, limit_s=60.0):
    """Wait until the stream has folded all sources; returns what `folded` does."""
    for _ in range(int(limit_s / step_s)):
        found = await folded(log)
        if await covered(log, found[0]):
            return found
        await asyncio.sleep(step_s)
    raise AssertionError(f"not covered after {limit_s} s")


@contextlib.asynccontextmanager
async def running(*coroutines):
    """Run services in the background; a failure of theirs is raised at the end."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        yield tasks
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
