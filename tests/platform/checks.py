"""The invariants that a run must show afterwards; numbers are those of the list of invariants."""

import asyncio
from collections import Counter, defaultdict

import aiohttp
import sqlalchemy

from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.replay import replay
from kai_es.audit.verify import verify
from kai_es.binder.plan import EXPIRED
from kai_es.events.catalogue import BIND_REQUESTS, BIND_RESULTS, TOPICS
from kai_es.events.codec import decode, unpack
from kai_es.events.requests import Refused, is_final
from kai_es.ports.eventlog import Position
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.parts import catch_up
from kai_es.simulate.database import read_ledger
from kai_es.simulate.runs import read_runs
from kai_es.storage.checkpoint import PostgresCheckpoints
from kai_es.storage.history import PostgresHistory
from kai_es.storage.identity import check_identity
from kai_es.storage.usage import PostgresUsage
from streams.projection import history_projection, usage_projection
from streams.rebuild import rebuild

PATHS = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "PodGroup": "/apis/scheduling.run.ai/v2alpha2/podgroups",
    "Queue": "/apis/scheduling.run.ai/v2/queues",
}
LATENCY_MS = 2_000
"""A pod's end is seen by informer and stream within this time when nothing fails."""


def no_double_bind(cluster):
    """1: two 2xx bindings of one uid never happen."""
    bound = Counter(
        row.uid
        for row in read_ledger(cluster / "apiserver.db")
        if row.subresource == "binding" and 200 <= row.status < 300
    )
    twice = {uid: n for uid, n in bound.items() if n > 1}
    assert not twice, f"bound twice: {twice}"
    return bound


async def truth(settings, cluster, world):
    """14, 15: uid and resourceVersion of all live objects equal the projection's."""
    url = (cluster / "url").read_text().strip()
    token = (cluster / "token").read_text().strip()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        for kind, path in PATHS.items():
            async with session.get(url + path) as response:
                items = (await response.json())["items"]
            live = {i["metadata"]["uid"]: int(i["metadata"]["resourceVersion"]) for i in items}
            folded = {uid: e.rv for uid, e in world.objects.live.get(kind, {}).items()}
            if kind == "Node":  # heartbeats move a node's version and are not published
                live, folded = set(live), set(folded)
            assert live == folded, f"{kind}: live objects and their projection differ"
    assert not world.parking.closed, f"closed nodes: {world.parking.closed}"


async def log_holds(log, checkpoints):
    """1, 3, 4, 6, 7, 8, 10, 11, 13 and 17."""
    report = await verify(log, checkpoints=checkpoints)
    assert report.holds, report.violations
    assert not any("no final result" in note for note in report.notes), report.notes
    cycles = await recorded_cycles(log)
    async for replayed in replay(log, cycles):
        assert replayed.is_identical, f"cycle {replayed.recorded.cycle}: {replayed.difference}"
    return cycles


async def one_result_each(log):
    """2, 3: every request has results of one final kind, and no bind follows a refusal.

    Returns uids of pods of which a request was too old once a binder came to it.
    """
    finals, expired = defaultdict(set), set()
    async for _, result in _all_of(log, BIND_RESULTS):
        if is_final(result):
            finals[result.request_id].add(type(result))
        if isinstance(result, Refused) and result.code == EXPIRED:
            expired.add(result.pod_uid)
    odd = {request for request, kinds in finals.items() if len(kinds) > 1}
    told = [
        f"{topic} {where}: {record}"
        for topic in (BIND_REQUESTS, BIND_RESULTS)
        if odd
        async for where, record in _all_of(log, topic)
        if record.request_id in odd
    ]
    assert not odd, f"{len(odd)} requests with several final results: {told}"
    return expired


async def _all_of(log, topic):
    """All records of a topic, and where they stand."""
    for partition in range(TOPICS[topic].partitions):
        async for chunk in log.read(topic, partition, Position(0), follow=False):
            for entry in chunk:
                if entry.value is not None:
                    envelope = decode(entry.value)
                    where = f"{partition}/{entry.position} {envelope.ingest_time}"
                    yield f"{where} {envelope.producer}", unpack(envelope)


async def books_exact(settings, engine, log):
    """18, 19: projections rebuilt from nothing equal the live ones; the identity is exact."""
    await catch_up(settings, engine)
    checkpoints, clock = PostgresCheckpoints(engine), SystemClock()
    for store, projection in (
        (PostgresUsage(engine), usage_projection),
        (PostgresHistory(engine), history_projection),
    ):
        live = await store.digest()
        again = await rebuild(log, checkpoints, projection(store, clock), clock)
        assert (again.n_rows, again.digest) == (live.n_rows, live.digest), projection.__name__
        assert live.n_rows > 0
    violation = await asyncio.to_thread(check_identity, engine)
    assert violation is None, violation


def kubelet_agrees(engine, cluster, *, slack_ms):
    """20: allocated time per queue equals the kubelet's own ledger, within latency and gaps."""
    held = defaultdict(int)
    n_runs = Counter()
    for run in read_runs(cluster / "kubelet.db"):
        held[run.queue] += (run.ended_ms - run.bound_ms) * run.resources.get("cpu", 0)
        n_runs[run.queue] += run.resources.get("cpu", 0)
    question = sqlalchemy.text(
        "SELECT queue_path[cardinality(queue_path)], sum(amount::numeric * "
        "round(extract(epoch FROM end_at - start_at) * 1000)) FROM allocation_interval "
        "WHERE resource = 'cpu' GROUP BY 1"
    )
    with engine.connect() as connection:
        booked = {queue: int(total) for queue, total in connection.execute(question)}
    assert set(booked) == set(held)
    for queue, total in held.items():
        assert abs(booked[queue] - total) <= n_runs[queue] * slack_ms, queue
