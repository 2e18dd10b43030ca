import asyncio

import pytest

from kai_es.events.decisions import Evict, Pipeline, Reason, ShareAt
from kai_es.events.requests import Answer, AttemptFailed, Bound, Refused
from kai_es.ports.books import Place
from kai_es.ports.stores import CheckpointHead, DivergedError, StoredCheckpoint
from kai_es.snapshot.world import World
from kai_es.storage.checkpoint import PostgresCheckpoints
from kai_es.storage.engine import to_time
from kai_es.storage.history import PostgresHistory
from projectors.history import History
from tests.books.story import START, Story, a_group
from tests.histories.builders import a_bind, a_cycle, a_node, a_pod, a_reign
from tests.postgres.test_usage_books import rows

pytestmark = pytest.mark.postgres

FULL = Reason(code="not-enough-resources", args={"resource": "gpu", "missing": 2})
FULLER = Reason(code="not-enough-resources", args={"resource": "gpu", "missing": 3})
LIMIT = Reason(code="over-limit", args={"queue": "team-a"})


def keep(engine, batches, *, cuts=None, history=None, expected=-1):
    store, history = PostgresHistory(engine), history or History()

    async def run():
        at = expected
        for n, (offset, batch) in enumerate(batches):
            history.fold(offset, batch)
            if cuts is None or n in cuts or n == len(batches) - 1:
                to = Place(offset, batch.time)
                assert await store.commit(history.take(), expected=at, to=to)
                at = offset

    asyncio.run(run())
    return history


def a_story():
    """Eight cycles of one group that waits for this, then that, then runs."""
    story = Story()
    group = a_group("g1", "team-a")
    story.batch(START, story.upsert(group), a_reign())
    pod, node = a_pod("p", group="g1"), a_node("n1")
    uid = group.uid
    cycles = [
        a_cycle(1, reasons={uid: (FULL,)}),
        a_cycle(2, same={uid: 1}),
        a_cycle(3, reasons={uid: (FULLER,)}),
        a_cycle(4, reasons={uid: (LIMIT, FULL)}),
        a_cycle(5),
        a_cycle(6, reasons={uid: (FULL,)}),
        a_cycle(7, a_bind(pod, node, score=1.5)),
    ]
    for n, cycle in enumerate(cycles):
        story.batch(START + n * 1000, cycle)
    return story, uid


def runs(engine):
    return rows(
        engine,
        "SELECT codes, reasons->0->'args'->>'missing', first_cycle, last_cycle, cycles, gang, queue"
        " FROM pending_reason ORDER BY first_cycle",
    )


def test_runs_of_reasons(database):
    story, _ = a_story()
    keep(database, story.batches)
    assert runs(database) == [
        (["not-enough-resources"], "3", 1, 3, 3, "g1", "team-a"),
        (["over-limit", "not-enough-resources"], None, 4, 4, 1, "g1", "team-a"),
        (["not-enough-resources"], "2", 6, 6, 1, "g1", "team-a"),
    ]


def test_open_run_has_no_end(database):
    story, uid = a_story()
    keep(database, story.batches[:3])
    assert runs(database) == [(["not-enough-resources"], "2", 1, None, None, "g1", "team-a")]
    assert asyncio.run(PostgresHistory(database).stored()) == {
        ("default", uid): (1, ("not-enough-resources",))
    }


@pytest.mark.parametrize("cuts", [None, (), {0, 3, 5}])
def test_cuts_make_no_difference(database, cuts):
    story, _ = a_story()
    keep(database, story.batches, cuts=cuts)
    found = asyncio.run(PostgresHistory(database).digest())
    assert found.n_rows == 11
    keep_whole = runs(database)
    assert [row[2] for row in keep_whole] == [1, 4, 6]


@pytest.mark.parametrize("at", range(8))
def test_rebuild_from_anywhere_gives_the_same_rows(database, at):
    story, _ = a_story()
    store = PostgresHistory(database)
    keep(database, story.batches)
    live = asyncio.run(store.digest())
    offset, batch = story.batches[at]
    asyncio.run(store.rewind(Place(offset, batch.time)))
    world, history = World(), History()
    for n, entry in story.batches[: at + 1]:
        world.apply(n, entry)
    history.restore(world.objects, time_ms=batch.time, runs=asyncio.run(store.stored()))
    if at < len(story.batches) - 1:
        keep(database, story.batches[at + 1 :], history=history, expected=offset)
    assert asyncio.run(store.digest()) == live


def test_decision_ledger(database):
    story = Story()
    story.batch(START, story.upsert(a_group("g1", "team-a", namespace="ns")))
    pod, node = a_pod("p", group="g1"), a_node("n1")
    share = ShareAt("team-a", (1, 2, 3), (4, 5, 6))
    evict = Evict(
        pod_uid=pod.uid,
        pod_rv=1,
        namespace="ns",
        pod="p",
        group_uid="group-g1",
        node="n1",
        node_uid=node.uid,
        action="reclaim",
        message="queue team-b\ttakes back\nits share",
        beneficiary="group-g2",
        gang_size=4,
        before=(share,),
        after=(share,),
    )
    pipeline = Pipeline(
        pod_uid="other",
        namespace="ns",
        pod="o",
        group_uid="group-g2",
        node="n1",
        node_uid=node.uid,
        action="reclaim",
    )
    story.batch(START + 10, a_cycle(1, evict, pipeline, a_bind(pod, node, score=0.1)))
    keep(database, story.batches)
    assert rows(
        database,
        "SELECT n, decision, pod, gang, queue, node, rule, beneficiary, score, gang_size, message,"
        " shares->'before'->0->>'queue' FROM decision ORDER BY n",
    ) == [
        (
            *(0, "evict", "p", "g1", "team-a", "n1", "reclaim", "group-g2", None, 4),
            *("queue team-b\ttakes back\nits share", "team-a"),
        ),
        (1, "pipeline", "o", "", "", "n1", "reclaim", "", None, 1, "", None),
        (2, "bind", "p", "g1", "team-a", "n1", "allocate", "", 0.1, 1, "", None),
    ]
    assert rows(
        database, "SELECT cycle, binds, evictions, pipelines, pending, verdict, digest FROM cycle"
    ) == [(1, 1, 1, 1, 0, "open", "digest-1")]


def test_attempts_of_the_binder(database):
    answer = Answer(status=403, reason="Forbidden", message="webhook says \x00no")
    common = {"attempt": 1, "binder": "b1", "pod_uid": "u"}
    story = Story()
    story.batch(
        START,
        AttemptFailed(
            request_id="default/1/u",
            group_uid="g",
            code="refused-by-api",
            answer=answer,
            final=False,
            duration_ms=12,
            **common,
        ),
        Bound(request_id="default/1/u", node="n1", node_uid="n", **{**common, "attempt": 2}),
        Refused(request_id="default/2/u", code="expired", **common),
    )
    keep(database, story.batches)
    assert rows(
        database,
        "SELECT time, n, request_id, attempt, outcome, final, code, node, status, message"
        " FROM bind_attempt ORDER BY n",
    ) == [
        (
            *(to_time(START), 0, "default/1/u", 1, "failed", False, "refused-by-api", "", 403),
            "webhook says no",
        ),
        (to_time(START), 1, "default/1/u", 2, "bound", True, "", "n1", 0, ""),
        (to_time(START), 2, "default/2/u", 1, "refused", True, "expired", "", 0, ""),
    ]


def test_checkpoints_are_inserted_never_changed(database):
    store = PostgresCheckpoints(database)
    first = StoredCheckpoint(CheckpointHead(5, 1, "aa", START), b"\x00payload")
    second = StoredCheckpoint(CheckpointHead(9, 1, "bb", START + 7), b"more")

    async def run():
        assert await store.newest() is None
        for checkpoint in (first, second, first):
            await store.put(checkpoint)
        assert await store.newest() == second
        assert await store.newest(8) == first
        assert await store.newest(4) is None
        assert await store.heads() == [first.head, second.head]
        with pytest.raises(DivergedError, match="two readers of one log disagree"):
            await store.put(first._replace(head=first.head._replace(digest="cc")))
        assert await store.newest(5) == first

    asyncio.run(run())
