"""Any interleaving, any checkpoint, duplicates: the same state (invariants 8, 9)."""

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.snapshot import checkpoint
from kai_es.snapshot.ranking import Live
from kai_es.snapshot.rows import BackoffRow, LogRow, TombstoneRow
from kai_es.snapshot.standing import Mark
from kai_es.snapshot.world import Applied, Missed, Rejected, World
from tests.histories.sources import Life, batches

SEEDS = st.integers(0, 2**32)


def fold_all(history, world=None):
    world = world or World()
    for offset, batch in history:
        assert isinstance(world.apply(offset, batch), Applied)
    return world


def timeless(world):
    """Rows without the times and offsets at which things were observed."""
    return [timeless_row(row) for row in checkpoint.rows_of(world)]


def timeless_row(row):
    match row:
        case LogRow():
            return msgspec.structs.replace(row, offset=0, time=0)
        case Live():
            return msgspec.structs.replace(row, seen=None, pending=None, bound=None, stood=None)
        case TombstoneRow() | Mark():
            return msgspec.structs.replace(row, time_ms=0)
        case BackoffRow():
            return msgspec.structs.replace(row, not_before_ms=0)
    return row


def shown(world):
    """What the columns are built from, in one order, without times of observation."""
    snapshot = world.snapshot
    pods = {uid: (row.pod, row.rv, row.state) for uid, row in snapshot.pods.items()}
    groups = {}
    for uid, row in snapshot.groups.rows.items():
        state = msgspec.structs.replace(
            row.state, backoff=tuple((code, n) for code, _, n in row.state.backoff)
        )
        groups[uid] = (row.group, row.rv, state)
    return (
        sorted(pods.items()),
        sorted(snapshot.nodes.rows.items()),
        sorted(groups.items()),
        sorted(snapshot.queues.rows.items()),
        sorted(world.parking.closed.items()),
        {key: sorted(rows) for key, rows in snapshot.pods_of_group.items()},
        {key: sorted(rows) for key, rows in snapshot.pods_of_node.items()},
    )


@given(seed=SEEDS, n_steps=st.integers(0, 120), other=SEEDS)
@settings(max_examples=60)
def test_any_interleaving_of_the_sources_gives_the_same_rows(seed, n_steps, other):
    life = Life(seed, n_steps)
    one = fold_all(batches(life.rows, random.Random(seed)))
    two = fold_all(batches(life.rows, random.Random(other)))
    assert timeless(one) == timeless(two)
    assert shown(one) == shown(two)


@given(seed=SEEDS, n_steps=st.integers(1, 120), data=st.data())
@settings(max_examples=60)
def test_incremental_equals_rebuild_equals_checkpoint_and_tail(seed, n_steps, data):
    history = batches(Life(seed, n_steps).rows, random.Random(seed))
    whole = fold_all(history)
    at = data.draw(st.integers(0, len(history)))
    early = fold_all(history[:at])
    encoded = checkpoint.encode(early)
    restored = checkpoint.decode(encoded.payload)
    assert checkpoint.digest(restored) == checkpoint.digest(early) == encoded.digest
    assert checkpoint.encode(restored) == encoded
    assert shown(restored) == shown(early)
    assert restored.offset == early.offset
    resumed = fold_all(history[at:], restored)
    assert checkpoint.digest(resumed) == checkpoint.digest(whole)
    assert shown(resumed) == shown(whole)
    rebuilt = checkpoint.decode(checkpoint.encode(whole).payload)
    assert shown(rebuilt) == shown(whole)


@given(seed=SEEDS, n_steps=st.integers(1, 60), data=st.data())
@settings(max_examples=40)
def test_rejected_batches_change_nothing_and_missed_ones_lead_back(seed, n_steps, data):
    """The log repeats batches, and others' batches name older ones (invariant 8)."""
    history = batches(Life(seed, n_steps).rows, random.Random(seed))
    log = with_strangers(history, random.Random(seed))
    last = max(batch.prev for batch in log)
    world, position = World(), 0
    lost = data.draw(st.integers(0, len(log)))  # from here on, the next record that can get lost
    for reads in range(4 * len(log)):
        if world.offset > last:
            break
        if reads >= lost and position + 1 < len(log) and log[position + 1].prev == position:
            position, lost = position + 1, len(log) * 4
        match world.apply(position, log[position]):
            case Missed(resume=resume):
                position = resume
            case Applied() | Rejected():
                position += 1
    plain = fold_all(history)
    assert world.offset > last
    assert timeless(world) == timeless(plain)
    assert shown(world) == shown(plain)


def with_strangers(history, rng):
    """A log of these batches, each followed by batches that must be rejected."""
    log, offset = [], -1
    for _, batch in history:
        log.append(msgspec.structs.replace(batch, prev=offset))
        offset = len(log) - 1
        for _ in range(rng.choice((0, 0, 1, 2))):
            older = rng.choice([b.prev for b in log])
            log.append(msgspec.structs.replace(rng.choice(history)[1], prev=older))
    return log
