"""The simulation can fail: whatever breaks an invariant is seen, one tampering for each."""

import asyncio
from functools import partial

import msgspec
import pytest

from kai_es.audit.replay import replay
from kai_es.eventlog.batch import code_one
from kai_es.eventlog.memory import MemoryLog
from kai_es.events.catalogue import BIND_REQUESTS, TOPICS
from kai_es.events.requests import BindRequested, Bound, EvictRequested, Refused
from kai_es.kube.labels import (
    AS_OF,
    GPU_FRACTION,
    GPU_GROUP_LABEL,
    RESERVATION_APP,
)
from kai_es.reader import View
from kai_es.scheduler import decide
from kai_es.simulate.api import Call
from kai_es.simulate.kinds import NODE, POD
from kai_es.simulate.verbs import Target
from kai_es.simulate.virtual import VirtualClock, run_virtual
from tests.histories.logs import out
from tests.worlds import ending
from tests.worlds.failure import Failures
from tests.worlds.loop import run_world
from tests.worlds.site import Site
from tests.worlds.truth import LEASE_MAX_S, Truth
from tests.worlds.world import World

SEED = 18


class Scene:
    """An API server with one node, and what the simulation sees of it."""

    def __init__(self):
        self.failures = Failures(0)
        self.truth = Truth(self.failures)
        self.site = Site(0, self.truth, page=500)

    async def furnish(self):
        await self.site.create(NODE, {"kind": "Node", "metadata": {"name": "n1"}})
        return self

    async def pod(self, name, *, group="", share="0.6", namespace="ns"):
        notes = {GPU_FRACTION: share} if group else {}
        meta = {"name": name, "namespace": namespace, "annotations": notes}
        meta["labels"] = {GPU_GROUP_LABEL: group} if group else {}
        containers = [{"name": "c", "image": "x"}]
        made = await self.site.create(
            POD, {"kind": "Pod", "metadata": meta, "spec": {"containers": containers}}
        )
        return made["metadata"]["uid"]

    async def bind(self, name, namespace="ns"):
        body = msgspec.json.encode({"target": {"kind": "Node", "name": "n1"}})
        target = Target(POD, namespace, name, "binding")
        answer = await self.site.api.write(Call("POST", target, {}, body, client="binder-a-1"))
        assert answer.status == 201, answer.body

    async def delete(self, name, namespace="ns"):
        target = Target(POD, namespace, name)
        body = b'{"gracePeriodSeconds": 0}'
        await self.site.api.write(Call("DELETE", target, {}, body, client="binder-a-1"))

    async def reserved(self, group="dev"):
        await self.pod(f"r-{group}", group=group, namespace=RESERVATION_APP)
        await self.bind(f"r-{group}", namespace=RESERVATION_APP)

    def ordered(self, uid, *, not_after_ms=1_000, evict=False):
        common = {
            "request_id": f"default/1/{uid}",
            "shard": "default",
            "cycle": 1,
            "epoch": 1,
            "namespace": "ns",
            "pod": "p",
            "pod_uid": uid,
            "pod_rv": 1,
            "node": "n1",
            "node_uid": "n",
            "group_uid": "g",
            "not_after_ms": not_after_ms,
        }
        request = EvictRequested(**common, action="preempt") if evict else BindRequested(**common)
        self.truth.requests.setdefault(uid, {})[request.request_id] = request
        return request.request_id

    def seen(self):
        """(invariant, text) of what was violated."""
        return [(text.split()[1], text.partition(": ")[2]) for text in self.failures.texts]


async def scene():
    return await Scene().furnish()


def refused(request_id):
    return Refused(
        request_id=request_id, attempt=1, binder="b", pod_uid="", code="expired", answer=None
    )


async def test_what_is_right_violates_nothing():
    s = await scene()
    uid = await s.pod("p", group="dev")
    s.ordered(uid)
    await s.reserved()
    s.truth.bind_begins(uid, "n1", 1_000)
    await s.bind("p")
    s.ordered(uid, evict=True)
    s.truth.delete_begins(uid, 0)
    await s.delete("p")
    await s.delete("r-dev", namespace=RESERVATION_APP)
    assert s.seen() == []


async def test_1_a_pod_is_bound_twice():
    s = await scene()
    uid = await s.pod("p")
    s.ordered(uid)
    s.truth.bound[uid] = ("n1", "n")
    await s.bind("p")
    assert [number for number, _ in s.seen()] == ["1"]


async def test_2_a_bind_without_a_request():
    s = await scene()
    s.truth.bind_begins("u", "n1", 0)
    s.ordered("u")
    s.truth.bind_begins("u", "n2", 0)
    s.truth.delete_begins(await s.pod("p"), 0)
    assert [number for number, _ in s.seen()] == ["2"] * 3


async def test_2_a_bind_that_begins_too_late():
    s = await scene()
    s.ordered("u", not_after_ms=1_000)
    s.truth.bind_begins("u", "n1", 1_001)
    ((number, text),) = s.seen()
    assert number == "2"
    assert "after its not_after" in text


async def test_2_a_bind_and_a_delete_after_the_final_result():
    s = await scene()
    for name, evict in (("p", False), ("q", True)):
        uid = await s.pod(name)
        request_id = s.ordered(uid, evict=evict)
        s.truth.finals[request_id] = [refused(request_id)]
    await s.bind("p")
    await s.delete("q")
    assert [number for number, _ in s.seen()] == ["2", "2"]


async def test_5_a_device_is_given_out_more_than_once():
    s = await scene()
    await s.reserved()
    for name in "pq":
        s.ordered(await s.pod(name, group="dev"))
        await s.bind(name)
    assert s.seen() == [("5", "device dev of n1 is shared out 6/5")]


async def test_5_a_device_is_used_without_a_reservation():
    s = await scene()
    s.ordered(await s.pod("p", group="dev"))
    await s.bind("p")
    assert s.seen() == [("5", "ns/p is bound to n1 without a reservation")]


async def test_5_a_pod_gets_fewer_devices_than_it_asks_a_share_of():
    s = await scene()
    uid = await s.pod("p", group="dev")
    s.ordered(uid)
    notes = {"labels": {GPU_GROUP_LABEL: None}}
    await s.site.patch(POD, "p", {"metadata": notes}, namespace="ns")
    await s.bind("p")
    assert s.seen() == [("5", "ns/p is bound with 0 devices of 1")]


async def test_6_a_request_comes_without_its_cycle():
    s = await scene()
    uid = await s.pod("p")
    s.ordered(uid)
    (request,) = s.truth.requests[uid].values()
    s.truth.stored(
        [code_one(BIND_REQUESTS, uid, out(request, BIND_REQUESTS, uid).envelope, TOPICS)]
    )
    ((number, text),) = s.seen()
    assert (number, text) == ("6", f"default/1/{uid} comes without its cycle")


async def test_5_a_reservation_goes_while_it_is_used():
    s = await scene()
    await s.reserved()
    s.ordered(await s.pod("p", group="dev"))
    await s.bind("p")
    await s.delete("r-dev", namespace=RESERVATION_APP)
    ((number, text),) = s.seen()
    assert number == "5"
    assert "used by ['ns/p']" in text


class Loads:
    """What `log verify` excuses."""

    def __init__(self):
        self.excused = set()

    def is_excused(self, name):
        return name in self.excused


async def restored():
    """A pod that was deleted is back after a restore, and another one has got its place."""
    s = await scene()
    s.truth.loads = Loads()
    await s.reserved()
    first, second = await s.pod("p", group="dev"), await s.pod("q", group="dev")
    s.ordered(first)
    s.ordered(second)
    await s.bind("p")
    backup = s.site.backup()
    await s.delete("p")
    cluster_id = backup.cluster_id
    backup.load_facts()
    backup.cluster_id = cluster_id
    s.site._serve(backup)
    return s, first


async def test_5_a_pod_that_came_back_with_a_restore_excuses_its_node_until_it_is_known():
    s, _ = await restored()
    await s.bind("q")
    assert s.seen() == []


@pytest.mark.parametrize("is_excused", [True, False])
async def test_5_then_the_node_is_excused_as_by_log_verify(is_excused):
    s, first = await restored()
    s.truth.shown(first)
    s.truth.loads.excused = {"n1"} if is_excused else set()
    await s.bind("q")
    assert [number for number, _ in s.seen()] == ([] if is_excused else ["5"])


class Life:
    """A process with a lease."""

    holder = "binder-a-1"

    def __init__(self, age_s):
        self._age_s = age_s

    def lease_age_s(self, role):
        return self._age_s


async def test_12_somebody_writes_who_may_not():
    s = await scene()
    s.truth.sends(Life(LEASE_MAX_S), "binder")
    s.truth.taken_over("binder", "binder-a-1")
    s.truth.appended("binder", "binder-a-1")
    assert s.seen() == []
    s.truth.sends(Life(LEASE_MAX_S + 0.1), "binder")
    s.truth.taken_over("binder", "binder-b-1")
    s.truth.appended("binder", "binder-a-1")
    assert [number for number, _ in s.seen()] == ["12", "12"]


async def test_16_a_status_replaces_a_newer_one():
    s = await scene()
    await s.pod("p")
    for offset in (7, 9, 8):
        notes = {"metadata": {"annotations": {AS_OF: str(offset)}}}
        await s.site.patch(POD, "p", notes, namespace="ns")
    assert s.seen() == [("16", "Pod ns/p: a status as of 9 became one of 8")]


# -- at the end of a world


@pytest.fixture(scope="module")
def ended():
    """A world that has ended well."""

    async def live():
        world = World(SEED, script=lambda _: asyncio.sleep(0))
        await world.run()
        return world

    return run_world(live())


class Ended:
    """Looks at it again."""

    def __init__(self, world):
        self.world = world
        self.failures = Failures(world.seed)
        world.failures = self.failures
        self.log = MemoryLog(store=world.store)

    async def folded(self):
        view = View(self.log, VirtualClock())
        await view.catch_up()
        return view.world

    def numbers(self):
        return sorted({text.split()[1] for text in self.failures.texts})


def look(world, scenario):
    """Numbers of invariants that `scenario(Ended)` violates."""

    async def run():
        again = Ended(world)
        await scenario(again)
        return again.numbers()

    return run_virtual(run())


def test_it_has_violated_nothing(ended):
    async def everything(again):
        folded = await again.folded()
        ending._requests(again.world)
        ending._present(again.world, folded)
        ending._equal_views(again.world, folded)
        ending._statuses(again.world, folded)
        await ending._verified(again.world, again.log)
        await ending._replayed(again.world, again.log)
        await ending._rebuilt(again.world, again.log)
        ending._accounts(again.world)
        ending._kubelets(again.world)

    assert look(ended, everything) == []


def test_1_and_3_a_request_has_no_final_result(ended, monkeypatch):
    finals = ended.truth.finals
    lost = next(r for r, found in finals.items() if isinstance(found[0], Bound))
    monkeypatch.delitem(finals, lost)

    async def tampered(again):
        ending._requests(again.world)

    assert look(ended, tampered) == ["1", "3"]


def test_1_a_result_names_another_node(ended, monkeypatch):
    truth = ended.truth
    uid, (node, _) = next(iter(truth.bound.items()))
    other = next(uid for uid, name in truth.alive["Node"].items() if name != node)
    monkeypatch.setitem(truth.bound, uid, (node, other))

    async def tampered(again):
        ending._requests(again.world)

    assert look(ended, tampered) == ["1"]


def test_9_a_reader_has_folded_to_something_else(ended):
    async def tampered(again):
        folded = await again.folded()
        folded.objects.live["Queue"].popitem()
        ending._equal_views(again.world, folded)

    assert look(ended, tampered) == ["9"]


def test_14_the_log_lacks_an_object(ended):
    async def tampered(again):
        folded = await again.folded()
        folded.objects.live["Pod"].popitem()
        ending._present(again.world, folded)

    assert look(ended, tampered) == ["14"]


def test_17_a_cycle_is_decided_otherwise(ended, monkeypatch):
    def forgetful(snapshot, config, inputs):
        decision = decide(snapshot, config, inputs)
        return msgspec.structs.replace(decision, ops=decision.ops[:-1])

    monkeypatch.setattr(ending, "replay", partial(replay, decide=forgetful))

    async def tampered(again):
        await ending._replayed(again.world, again.log)

    assert look(ended, tampered) == ["17"]


def row_of(books, name):
    """A row of a table that has an end: (key, row)."""
    table = books.tables[name]
    return next((key, row) for key, row in table.items() if row.end_offset is not None)


def test_18_and_20_a_row_of_the_books_is_wrong(ended, monkeypatch):
    """By a millisecond, at its end or at its beginning."""
    books = ended.usage.books
    key, row = row_of(books, "allocations")

    async def tampered(again):
        await ending._rebuilt(again.world, again.log)
        ending._accounts(again.world)

    for end, start in ((row.end + 1, row.start), (row.end, row.start + 1)):
        monkeypatch.setitem(books.tables["allocations"], key, row._replace(start=start, end=end))
        assert look(ended, tampered) == ["18", "20"]


def test_20_a_pod_is_not_in_the_books_or_was_never_bound(ended, monkeypatch):
    books, use = ended.usage.books, ended.truth.use
    key, _ = row_of(books, "allocations")

    async def tampered(again):
        ending._accounts(again.world)

    with monkeypatch.context() as patch:
        patch.delitem(books.tables["allocations"], key)
        assert look(ended, tampered) == ["20"]
    monkeypatch.delitem(use._starts, key[0])
    monkeypatch.delitem(use._ends, key[0])
    assert look(ended, tampered) == ["20"]


def test_20_a_kubelet_ran_what_is_not_booked(ended, monkeypatch):
    runs = ended.site.runs.all()
    run = next(run for run in runs if run.ended_ms)
    longer = run._replace(ended_ms=run.ended_ms + 61_000)
    monkeypatch.setattr(ended.site.runs, "all", lambda: [longer])

    async def tampered(again):
        ending._kubelets(again.world)

    assert look(ended, tampered) == ["20"]


def test_19_a_node_has_two_capacities_at_once(ended, monkeypatch):
    table = ended.usage.books.tables["capacities"]
    (node, start, offset), row = next(iter(table.items()))
    monkeypatch.setitem(table, (node, start + 1, offset), row._replace(start=row.start + 1))

    async def tampered(again):
        ending._accounts(again.world)

    assert look(ended, tampered) == ["19"]
    with pytest.raises(AssertionError, match="begins at"):
        ended.usage.books.check()


def test_19_a_pod_waits_and_runs_at_once(ended, monkeypatch):
    books = ended.usage.books
    key, row = row_of(books, "requests")
    monkeypatch.setitem(books.tables["requests"], key, row._replace(end=row.end + 1))
    with pytest.raises(AssertionError, match="begins at"):
        books.check()


def test_8_a_batch_is_missing(ended, monkeypatch):
    entries = ended.store.partitions["snapshot", 0].entries
    monkeypatch.setattr(
        ended.store.partitions["snapshot", 0], "entries", [*entries[:20], *entries[21:]]
    )

    async def tampered(again):
        await ending._verified(again.world, again.log)

    assert look(ended, tampered) == ["8"]
