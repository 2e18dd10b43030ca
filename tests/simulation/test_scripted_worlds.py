"""Invariant 22, and what else must go on while one thing is away: worlds with a script."""

import asyncio

import pytest

from kai_es.events.catalogue import DECISIONS
from kai_es.events.codec import decode, unpack
from kai_es.events.decisions import CycleChunk
from kai_es.simulate.faults import Fault
from tests.worlds.scripts import (
    SEED,
    binders_away,
    late_leader,
    nodes_made_again,
    of_kind,
    refused_for_ever,
)
from tests.worlds.world import run_seed


def n_cycles(world):
    """Cycles in the log, whether or not anybody has seen them."""
    records = [unpack(decode(e.value)) for e in world.store.partitions[DECISIONS, 0].entries]
    return len({record.cycle for record in records if isinstance(record, CycleChunk)})


@pytest.mark.parametrize("kind", ["informer", "snapshot", "scheduler", "binder", "status"])
def test_no_writer_sends_under_a_lease_that_is_too_old(kind):
    """Nobody has taken its role, so that no fence but its own look at the lease stops it."""

    run_seed(SEED, late_leader(kind))


def test_no_result_is_told_under_a_lease_that_is_too_old():
    run_seed(SEED, late_leader("binder", is_answered=True))


def test_of_two_leaders_one_goes_on():
    """The lease of a leader is given away while it believes to have it (invariant 12)."""
    seen = []

    async def script(world):
        of_kind(world, "scheduler")
        world.leadership.forget("scheduler-default")
        for _ in range(3):
            before = n_cycles(world)
            await asyncio.sleep(15)
            states = [
                slot.part.status.state
                for slot in world.slots
                if slot.name.startswith("scheduler") and slot.life is not None
            ]
            seen.append((n_cycles(world) - before, states.count("leading")))
            world.leadership.forget("scheduler-default")

    run_seed(SEED, script)
    assert all(made > 0 and leading == 1 for made, leading in seen), seen


def test_others_are_bound_while_one_group_is_refused_for_ever():
    figures = run_seed(SEED, refused_for_ever)
    assert figures.n_binds > 15


def test_what_was_to_be_done_before_is_not_done_when_the_binders_come_back():
    run_seed(SEED, binders_away)


def test_a_bind_that_another_binder_has_refused_is_not_done():
    run_seed(SEED, nodes_made_again)


def test_binds_continue_while_the_database_is_away():
    seen = []

    async def script(world):
        world.database.away = True
        await asyncio.sleep(world.trouble_s)
        seen.append((world.truth.n_binds, world.usage.at.offset))
        world.database.away = False

    run_seed(SEED, script)
    ((n_binds, offset),) = seen
    assert n_binds > 20
    assert offset == -1


def test_no_cycle_is_recorded_while_the_stream_is_down():
    seen = []

    async def script(world):
        streams = [slot for slot in world.slots if slot.name.startswith("snapshot")]
        await asyncio.sleep(8)
        for slot in streams:
            slot.is_down = True
            slot.crash()
        await asyncio.sleep(0.5)  # what was under way arrives
        before = n_cycles(world)
        await asyncio.sleep(20)
        seen.append((before, n_cycles(world)))
        for slot in streams:
            slot.is_down = False

    figures = run_seed(SEED, script)
    ((before, after),) = seen
    assert before > 0
    assert after - before <= 1, "at most the one that waits to be seen"
    assert figures.n_cycles > after


def test_informer_outlives_answers_that_make_no_sense():
    async def script(world):
        await asyncio.sleep(3)
        nonsense = Fault(action="error", code=409, client="informer", verb="list")
        world.site.api.faults.rules = [nonsense]
        world.site.store.compact(world.site.store.rv)
        world.site.api.administer("POST", "drop-watches", {})
        await asyncio.sleep(3)
        assert nonsense.acted

    run_seed(SEED, script)
