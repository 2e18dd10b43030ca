"""Whatever happens to the API server or the informer, the log folds to the live objects."""

import asyncio
import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kai_es.eventlog.faults import LogFaults
from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.intake.kinds import SOURCES
from kai_es.intake.service import Informer
from kai_es.ports.errors import FencedError
from tests.clocks import HastyClock
from tests.fake_cluster import FakeCluster
from tests.intake_fold import PARTITIONS, fold, index

KINDS = ("Node", "Pod", "Queue")
SETTLE_S = 5.0

OPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 2)),
    st.tuples(st.just("delete"), st.sampled_from(KINDS), st.integers(0, 5)),
    st.tuples(st.just("heartbeat"), st.integers(0, 5)),
    st.tuples(
        st.sampled_from(["cut", "compact", "back_up", "restore", "mid_list_gone", "bookmark"])
    ),
    st.tuples(st.sampled_from(["stop", "start", "settle", "yield"])),
)


def history(text):
    """`put2` = Pod 2 is written, `delete` = Pod 1 goes, other words as they are."""
    ops = []
    for word in text.split(", "):
        name, n = word.rstrip("0123456789"), int(word[-1]) if word[-1].isdigit() else 1
        what = {"put": ("put", "Pod", n, len(ops) % 3), "delete": ("delete", "Pod", n)}
        ops.append(what.get(name, (word,)))
    return ops


class Run:
    """A cluster, a log, and an informer that is restarted by whoever kills it."""

    def __init__(self, store):
        self.cluster = FakeCluster()
        self.store = store
        self.leadership = MemoryLeadership()
        self.task = None
        self.stopping = False
        self.numbers = itertools.count()
        self.informer = None

    def start(self):
        if self.task is None:
            self.stopping = False
            self.task = asyncio.create_task(self._supervise())

    async def stop(self):
        if self.task is not None:
            self.stopping = True
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            self.task = None

    async def _supervise(self):
        while True:
            self.informer = Informer(
                cluster=self.cluster,
                eventlog=MemoryLog(store=self.store),
                leadership=self.leadership,
                clock=HastyClock(),
                holder=f"h{next(self.numbers)}",
                configs=[{"metadata": {"name": "default"}, "settings": {"n": 1}}],
            )
            try:
                await self.informer.run()
            except FencedError:
                # A task group that ends by its own error forgets a cancellation of that moment.
                if self.stopping:
                    return

    async def apply(self, op):
        cluster = self.cluster
        match op:
            case ("put", kind, n, content):
                cluster.put(kind, f"{kind}-{n}", spec={"n": content})
            case ("delete", kind, n):
                if f"{kind}-{n}" in cluster.objects.get(kind, {}):
                    cluster.delete(kind, f"{kind}-{n}")
            case ("heartbeat", n):
                raw = cluster.objects.get("Node", {}).get(f"Node-{n}")
                if raw is not None:
                    beat = {"conditions": [{"type": "Ready", "lastHeartbeatTime": cluster.rv}]}
                    cluster.put("Node", f"Node-{n}", spec=raw["spec"], status=beat)
            case ("restore",):
                if cluster._backups and cluster.restores < 7:
                    cluster.restore()
                    await self.noticed()
            case ("mid_list_gone",):
                cluster.mid_list_gone += 1
            case ("bookmark",):
                cluster.bookmark("Pod")
            case ("cut",) | ("compact",) | ("back_up",):
                getattr(cluster, op[0])()
            case ("start",):
                self.start()
            case ("stop",):
                await self.stop()
            case ("settle",):
                self.start()
                await self.settled()
            case ("yield",):
                await asyncio.sleep(0.002)

    async def noticed(self):
        """A restored server is not written to before a running informer has come back to it."""
        before = len(self.cluster.lists)
        for _ in range(1000):
            again = {kind for kind, _ in self.cluster.lists[before:]}
            if len(again) == len(SOURCES) or self.task is None:
                return
            await asyncio.sleep(0.001)

    async def settled(self):
        """Wait until the log shows what is live, then check all that must hold."""
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        while difference := await self.difference():
            assert asyncio.get_running_loop().time() < deadline, difference
            await asyncio.sleep(0.01)
        folded = await fold(MemoryLog(store=self.store))
        assert len(set(folded.ids)) == len(folded.ids), "nothing is published twice"

    async def difference(self):
        if self.informer is None or not self.informer.leads():
            return "nobody leads"
        if self.informer.problems():
            return self.informer.problems()
        folded = await fold(MemoryLog(store=self.store))
        live, found = self.cluster.live(), folded.live
        wrong = {
            key
            for key in live.keys() | found.keys()
            if key[0] != "ShardConfig" and not self.same(key, live.get(key), found.get(key))
        }
        latest = max((record.incarnation for record in folded.listed.values()), default=0)
        for kind in (*(source.kind for source in SOURCES), "ShardConfig"):
            for partition in range(PARTITIONS):
                mark = folded.listed.get((kind, partition))
                if mark is None or mark.incarnation != latest:
                    wrong.add((kind, partition))
        indexed = await index(MemoryLog(store=self.store))
        wrong |= {
            ("index", key) for key in found.keys() | indexed if indexed.get(key) != found.get(key)
        }
        for key, record in found.items():
            if record.incarnation != latest:
                wrong.add(key)
        return wrong

    def same(self, key, rv, record):
        if rv is None or record is None:
            return False
        kind, uid = key
        if kind == "Node":  # heartbeats are not published
            return self.cluster.objects[kind][uid]["spec"] == record.object["spec"]
        return rv == record.rv


async def run(ops, faults):
    run = Run(MemoryStore(faults=faults))
    run.start()
    try:
        for op in ops:
            await run.apply(op)
        run.start()
        await run.settled()
    finally:
        await run.stop()


HANGS_S = 20.0  # real time; a run takes milliseconds


@given(st.lists(OPS, max_size=25), st.none() | st.integers(0, 5))
@settings(max_examples=40)
@example(history("put, settle, stop, delete"), None)
@example(history("put, put2, put3, put4, mid_list_gone, settle"), None)
@example(history("back_up, put, settle, restore, put2"), None)
@example(history("back_up, put, settle, stop, restore"), None)
@example(history("put, back_up, delete, settle, stop, restore"), None)
@example(history("put, back_up, settle, delete, settle, stop, restore, put2, put3"), None)
@example(history("put, settle, delete, stop, start, cut, settle, stop, put"), 2)
@example(history("put, settle, cut, put, delete, put, compact"), 1)
def test_log_folds_to_the_live_objects(ops, seed):
    faults = None if seed is None else LogFaults(seed=seed, fenced_rate=0.05)
    asyncio.run(asyncio.wait_for(run(ops, faults), HANGS_S))
