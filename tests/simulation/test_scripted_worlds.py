"""Invariant 22, and what else must go on while one thing is away: worlds with a script."""

import asyncio

from kai_es.eventlog.lease import LEASE_S
from kai_es.events.catalogue import DECISIONS
from kai_es.events.codec import decode, unpack
from kai_es.events.decisions import CycleChunk
from kai_es.simulate.faults import Fault
from tests.worlds.truth import LEASE_MAX_S
from tests.worlds.world import FOR_EVER, run_seed

SEED = 18
"""A world with some competition for its nodes."""


def n_cycles(world):
    """Cycles in the log, whether or not anybody has seen them."""
    records = [unpack(decode(e.value)) for e in world.store.partitions[DECISIONS, 0].entries]
    return len({record.cycle for record in records if isinstance(record, CycleChunk)})


def test_no_writer_sends_under_a_lease_that_is_too_old():
    """Nobody has taken its role, so that no fence but its own look at the lease stops it."""

    async def script(world):
        for name in ("binder", "scheduler", "informer", "snapshot"):
            await asyncio.sleep(1)
            leader, *others = [slot for slot in world.slots if slot.name.startswith(name)]
            for slot in others:
                slot.is_down = True
                slot.crash()
            await asyncio.sleep(LEASE_S + 1)  # by now the first one leads
            life = leader.life
            leader.pause()
            await asyncio.sleep(LEASE_MAX_S + 2)
            leader.resume()
            await asyncio.sleep(3)
            assert leader.life is not life, f"{leader.name} found nothing to send"
            for slot in others:
                slot.is_down = False

    run_seed(SEED, script)


def test_of_two_leaders_one_goes_on():
    """The lease of a leader is given away while it believes to have it (invariant 12)."""
    seen = []

    async def script(world):
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
    async def script(world):
        refused = world.users.workload.jobs[0]
        world.spared.add(refused.group["metadata"]["name"])
        world.site.api.faults.rules = [
            Fault(
                action="error",
                code=403,
                reason=FOR_EVER,
                client="binder",
                subresource="binding",
                namespace=pod["metadata"]["namespace"],
                name=pod["metadata"]["name"],
            )
            for pod in refused.pods
        ]

    figures = run_seed(SEED, script)
    assert figures.n_binds > 20


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
