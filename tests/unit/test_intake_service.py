"""The informer's own promises against a scripted cluster; histories are in tests/property."""

import asyncio
import contextlib

import pytest

from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.events.catalogue import OBJECTS_INDEX
from kai_es.events.codec import decode, unpack
from kai_es.intake import reflector
from kai_es.intake.kinds import SOURCES
from kai_es.intake.publisher import BATCH_RECORDS
from kai_es.intake.service import Informer
from kai_es.ports.cluster import WatchItem
from kai_es.ports.errors import FencedError, UnavailableError
from tests.clocks import HastyClock, let_run
from tests.fake_cluster import FakeCluster
from tests.intake_fold import PARTITIONS, fold, records_of

KINDS = {source.kind for source in SOURCES}


class CountingLog(MemoryLog):
    """Notes the size of every append; `away` of them fail as if the log were away."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.sizes = []
        self.away = 0

    async def append(self, epoch, batch):
        if self.away:
            self.away -= 1
            raise UnavailableError("away")
        self.sizes.append(len(batch))
        return await super().append(epoch, batch)


@pytest.fixture
def cluster():
    return FakeCluster(page=1000)


@pytest.fixture
def log():
    return CountingLog(store=MemoryStore())


@pytest.fixture
def informer(cluster, log):
    return an_informer(cluster, log)


def an_informer(cluster, log, **changes):
    return Informer(
        cluster=cluster,
        eventlog=log,
        leadership=changes.pop("leadership", None) or MemoryLeadership(),
        clock=HastyClock(),
        holder="h",
        **changes,
    )


@contextlib.asynccontextmanager
async def running(informer):
    task = asyncio.create_task(informer.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition):
    async with asyncio.timeout(10):
        while not (result := condition()):
            await asyncio.sleep(0.001)
    return result


def ready(informer):
    return lambda: informer.leads() and not informer.problems()


async def test_every_partition_gets_listed_and_alive_marks(cluster, log, informer):
    cluster.put("Queue", "q")
    async with running(informer):
        await until(ready(informer))
        await let_run(0.05)
    folded = await fold(log)
    assert {kind for kind, _ in folded.listed} == KINDS
    assert len(folded.listed) == len(KINDS) * PARTITIONS
    assert folded.alive.keys() == set(range(PARTITIONS))
    kinds = {k.kind: k for k in folded.alive[3].kinds}
    assert kinds.keys() == KINDS
    assert kinds["Queue"].rv == cluster.rv
    assert kinds["Queue"].seen_ms > 0


async def test_unserved_kinds_are_empty_lists_unless_nothing_goes_without(cluster, log, informer):
    cluster.put("PriorityClass", "c")
    async with running(informer):
        await until(ready(informer))
        cluster.unserved = {"PriorityClass", "Queue"}
        cluster.compact()
        await until(informer.problems)
        assert informer.problems().keys() == {"Queue"}
        assert "install the CRDs" in informer.problems()["Queue"]
        await let_run(0.02)
        folded = await fold(log)
        assert ("PriorityClass", "c") not in folded.live
        assert folded.listed["PriorityClass", 0].served is False
        assert folded.listed["Queue", 0].served is True, "the last list stays in force"
        watches = [kind for kind, _ in cluster.watches].count("PriorityClass")
        cluster.unserved = set()
        await until(ready(informer))
        await until(lambda: [k for k, _ in cluster.watches].count("PriorityClass") > watches)
    assert ("PriorityClass", "c") in (await fold(log)).live


async def test_forbidden_kind_is_named_and_not_listed(cluster, log, informer):
    cluster.forbidden = {"Pod"}
    async with running(informer):
        await until(lambda: informer.problems().keys() == {"Pod"})
        assert "grant list and watch of pods" in informer.problems()["Pod"]
        await let_run(0.03)
        folded = await fold(log)
        assert "Pod" not in {kind for kind, _ in folded.listed}
        assert "Pod" not in {k.kind for k in folded.alive[0].kinds}
        cluster.forbidden = set()
        await until(ready(informer))


async def test_broken_watch_resumes_where_it_was_without_a_list(cluster, informer):
    cluster.put("Pod", "p")
    async with running(informer):
        await until(ready(informer))
        await until(lambda: ("Pod", cluster.rv) in cluster.watches)
        lists = len(cluster.lists)
        cluster.put("Pod", "p", spec={"n": 2})
        await let_run(0.01)
        cluster.cut()
        await until(lambda: cluster.watches.count(("Pod", cluster.rv)) == 1)
        checks = [kind for kind, _ in cluster.lists[lists:]]
        assert checks.count("Pod") <= 1, "one look whether history is shorter, no list"


async def test_watch_that_cannot_be_resumed_is_listed_anew(cluster, informer, monkeypatch):
    async with running(informer):
        await until(ready(informer))
        lists = len(cluster.lists)
        original = cluster.watch

        async def refuse(resource, *, rv, silence_s):
            raise UnavailableError("refused")
            yield

        monkeypatch.setattr(cluster, "watch", refuse)
        cluster.cut()
        await until(lambda: [k for k, _ in cluster.lists[lists:]].count("Pod") > 3)
        monkeypatch.setattr(cluster, "watch", original)
        await until(ready(informer))


@pytest.mark.parametrize("is_quiet", [True, False])
async def test_kind_without_any_bookmark_is_listed_anew_not_taken_for_lost(
    cluster, informer, monkeypatch, is_quiet
):
    """The gate closes for evictions 15 s after a watch was given up as silent."""
    monkeypatch.setattr(reflector, "SILENCE_S", 0.02 if is_quiet else 60)
    asked = []
    list_page, watch = cluster.list_page, cluster.watch

    async def listed(resource, *, limit, token):
        if resource.kind == "ConfigMap":
            asked.append("list" if limit > 1 else "look")
        return await list_page(resource, limit=limit, token=token)

    async def silent(resource, *, rv, silence_s):
        if resource.kind == "ConfigMap":
            asked.append("watch")
            await asyncio.sleep(0.03)
            raise UnavailableError("Timeout on reading data from socket")
        async for items in watch(resource, rv=rv, silence_s=silence_s):
            yield items

    monkeypatch.setattr(cluster, "list_page", listed)
    monkeypatch.setattr(cluster, "watch", silent)
    async with running(informer):
        await until(lambda: asked.count("watch") > 3)
    wanted = ["list", "watch"] * 3 if is_quiet else ["list", "watch", "look", "watch", "look"]
    assert asked[: len(wanted)] == wanted


async def test_bookmark_behind_what_is_known_means_restore(cluster, log, informer, monkeypatch):
    async with running(informer):
        await until(ready(informer))
        cluster.put("Pod", "p")
        await let_run(0.01)
        behind = {"metadata": {"resourceVersion": "1"}}
        cluster.history.append((cluster.rv + 1, "BOOKMARK", "Pod", behind))
        cluster._wake()
        await asyncio.sleep(0)
        cluster.history.pop()
        await until(lambda: [k for k, _ in cluster.lists].count("Node") > 1)
        await until(ready(informer))
        await let_run(0.05)
    folded = await fold(log)
    assert {r.incarnation for r in folded.listed.values()} == {2}
    assert folded.live["Pod", "p"].incarnation == 2
    assert folded.alive[0].incarnation == 2


async def test_batches_are_bounded_and_gather_under_load(cluster, log, informer):
    for n in range(2 * BATCH_RECORDS + 7):
        cluster.put("Pod", f"p{n}")
    async with running(informer):
        await until(ready(informer))
        assert max(log.sizes) <= 2 * BATCH_RECORDS + len(KINDS) * PARTITIONS + PARTITIONS + 1
        assert len(log.sizes) < 30
    assert len((await fold(log)).live) == 2 * BATCH_RECORDS + 7


async def test_unavailable_log_loses_nothing_and_repeats_nothing(cluster, log, informer):
    log.away = 3
    cluster.put("Pod", "a")
    async with running(informer):
        await until(ready(informer))
        log.away = 2
        cluster.put("Pod", "b")
        cluster.delete("Pod", "a")
        await until(lambda: log.away == 0)
        await let_run(0.02)
    folded = await fold(log)
    assert {uid for _, uid in folded.live} == {"b"}
    assert len(set(folded.ids)) == len(folded.ids)


async def test_second_informer_waits_and_a_fenced_one_ends(cluster, log):
    leadership = MemoryLeadership()
    first = an_informer(cluster, log, leadership=leadership)
    second = an_informer(cluster, MemoryLog(store=log.store), leadership=leadership)
    async with running(first) as task, running(second):
        await until(ready(first))
        assert not second.leads()
        await MemoryLog(store=log.store).take_over("informer")
        cluster.put("Pod", "p")
        with pytest.raises(FencedError):
            await asyncio.wait_for(task, 5)
        await until(second.leads)
        await until(ready(second))
    assert {uid for _, uid in (await fold(log)).live} == {"p"}


async def test_lease_too_old_ends_the_leader_before_it_appends(cluster, log, monkeypatch):
    class Stale:
        def age_s(self):
            return 11.0

        async def lost(self):
            await asyncio.Event().wait()

        async def release(self):
            pass

    class Leadership:
        async def acquire(self, role, holder, waits):
            return Stale()

    informer = an_informer(cluster, log, leadership=Leadership())
    with pytest.raises(FencedError, match=r"last renewed 11\.0 s ago"):
        await asyncio.wait_for(informer.run(), 5)
    assert log.sizes == []


async def test_file_configuration_is_published_once_per_content(cluster, log):
    def config(n):
        return {"metadata": {"name": "default"}, "settings": {"n": n}}

    for n, rv in ((1, 1), (1, 1), (2, 2)):
        informer = an_informer(cluster, log, configs=[config(n)])
        async with running(informer):
            await until(ready(informer))
        record = (await fold(log)).live["ShardConfig", "ShardConfig//default"]
        assert (record.rv, record.object["settings"]) == (rv, {"n": n})
    informer = an_informer(cluster, log, configs=[config(2)])
    async with running(informer):
        await until(ready(informer))
        informer.configure([])
        await let_run(0.02)
    folded = await fold(log)
    assert folded.live == {}
    assert folded.listed["ShardConfig", 0].rv == 3


async def test_index_keeps_how_far_history_had_come_over_a_crash(cluster, log, informer):
    cluster.put("Pod", "p")
    async with running(informer):
        await until(ready(informer))
        cluster.delete("Pod", "p")
        await let_run(0.01)
    marks = [
        unpack(decode(entry.value))
        async for _, entry in records_of(log, OBJECTS_INDEX)
        if entry.key == "Alive"
    ]
    assert {k.kind: k.rv for k in marks[-1].kinds}["Pod"] == cluster.rv


async def test_odd_events_are_passed_over(cluster, log, informer, monkeypatch):
    async def odd(resource, *, rv, silence_s):
        if resource.kind == "Pod":
            good = {"metadata": {"uid": "u", "name": "n", "resourceVersion": "99"}}
            yield [
                WatchItem("ADDED", {"metadata": {}}),
                WatchItem("WHATEVER", {}),
                WatchItem("ADDED", good),
            ]
        await asyncio.Event().wait()

    monkeypatch.setattr(cluster, "watch", odd)
    async with running(informer):
        await until(ready(informer))
        await let_run(0.02)
    assert ("Pod", "u") in (await fold(log)).live
