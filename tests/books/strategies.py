"""Random histories of a small cluster, with stale, repeated and late versions."""

from hypothesis import strategies as st

from kai_es.events.snapshot import Upserted
from tests.books.story import START, Story, a_group, a_node, a_pod, a_queue, alive

NODES = ("n1", "n2")
PODS = ("p1", "p2", "p3", "p4")
GROUPS = ("g1", "g2")
QUEUES = ("a", "b", "c")
SHORT = (0, 10, 50, 2_000, 5_000, 5_001, 30_000)
LONG = (0, 50, 2_000, 5_001, 900_000, 3_600_000)


@st.composite
def actions(draw, story, time, *, stale):
    """One row. `stale`: it may be old, or follow its successor."""
    kinds = ("pod",) * 8 + ("node",) * 3 + ("group", "queue", "alive") + ("old",) * stale
    what = draw(st.sampled_from(kinds))
    if what == "alive":
        return alive(time, partition=draw(st.integers(0, 1)))
    if what == "old":
        rows = [row for _, batch in story.batches for row in batch.rows]
        return draw(st.sampled_from(rows)) if rows else alive(time)
    if what == "pod":
        obj = _pod(draw)
    elif what == "node":
        name = draw(st.sampled_from(NODES))
        obj = a_node(
            name,
            uid=f"{name}-{draw(st.integers(1, 2))}",
            gpus=draw(st.sampled_from((0, 2, 8))),
            ready=draw(st.booleans()),
            cordoned=draw(st.booleans()),
            pool=draw(st.sampled_from(("train", "serve"))),
        )
    elif what == "group":
        name = draw(st.sampled_from(GROUPS))
        obj = a_group(
            name,
            draw(st.sampled_from((*QUEUES, ""))),
            uid=f"{name}-{draw(st.integers(1, 2))}",
        )
    else:
        obj = a_queue(
            draw(st.sampled_from(QUEUES)),
            parent=draw(st.sampled_from(("", *QUEUES))),
            gpu=draw(st.sampled_from((-1.0, 0.0, 1.0, 4.0))),
        )
    if draw(st.integers(0, 9)) == 0:
        return story.remove(obj)
    row = story.upsert(obj)
    lag = draw(st.sampled_from((0, 0, 0, 1, 5))) if stale else 0
    # no two versions have one rv
    return Upserted(rv=row.rv - lag * 1000, incarnation=0, obj=obj)


def _pod(draw):
    node = draw(st.sampled_from(("", *NODES, *NODES, "ghost")))
    phases = ("Running", "Pending", "Succeeded", "Failed") if node else ("Pending", "Failed")
    gpus = draw(st.sampled_from((0, 1, 4)))
    return a_pod(
        draw(st.sampled_from(PODS)),
        node=node,
        phase=draw(st.sampled_from(phases)),
        gpus=gpus,
        group=draw(st.sampled_from(("", *GROUPS))),
        queue=draw(st.sampled_from(QUEUES)),
        gated=draw(st.booleans()) and not node,
    )


@st.composite
def stories(draw, max_batches=12):
    """A `Story`. Stale rows only where time is short: deletes are remembered for a while."""
    story = Story()
    time = START
    stale = draw(st.booleans())
    steps = SHORT if stale else LONG
    for _ in range(draw(st.integers(1, max_batches))):
        step = draw(st.sampled_from(steps))
        rows, ingest = [], []
        for _ in range(draw(st.integers(0, 5))):
            at = time + draw(st.integers(-100, step + 100))
            rows.append(draw(actions(story, at, stale=stale)))
            ingest.append(at)
        time += step
        story.batch(time, *rows, ingest=ingest)
    return story
