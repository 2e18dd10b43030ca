"""What every adapter of `ports.eventlog.Leadership` must do."""

import asyncio

import pytest

WAIT_S = 10.0


async def acquire(leadership, role, holder, timeout_s=WAIT_S):
    return await asyncio.wait_for(leadership.acquire(role, holder), timeout_s)


async def test_one_leads_and_a_standby_waits_for_the_release(world):
    first = await acquire(await world.leadership(), "snapshot", "one")
    waits = asyncio.Event()
    standby = asyncio.create_task((await world.leadership()).acquire("snapshot", "two", waits.set))
    await asyncio.sleep(1.5 * world.lease_s)
    assert waits.is_set(), "it knows that another one leads"
    assert not standby.done(), "a lease that is renewed does not run out"
    assert first.age_s() < world.lease_s
    await first.release()
    second = await asyncio.wait_for(standby, WAIT_S)
    await asyncio.wait_for(first.lost(), WAIT_S)
    await second.release()


async def test_a_standby_that_comes_and_goes_disturbs_nobody(world):
    first = await acquire(await world.leadership(), "snapshot", "one")
    lost = asyncio.create_task(first.lost())
    for n in range(2):
        with pytest.raises(asyncio.TimeoutError):
            await acquire(await world.leadership(), "snapshot", f"standby-{n}", 0.3)
    await asyncio.sleep(0.5 * world.lease_s)
    assert not lost.done()
    lost.cancel()
    await first.release()


async def test_roles_are_independent(world):
    leadership, waits = await world.leadership(), []
    leases = [
        await asyncio.wait_for(leadership.acquire(role, "one", lambda: waits.append(1)), WAIT_S)
        for role in ("informer", "scheduler-a")
    ]
    assert not waits, "nobody was in the way"
    for lease in leases:
        await lease.release()


async def test_a_role_passes_on_when_its_holder_dies(world):
    first = await world.holder("snapshot", "one")
    standby = asyncio.create_task((await world.leadership()).acquire("snapshot", "two"))
    await asyncio.sleep(0.3)
    assert not standby.done()
    await first.die()
    second = await asyncio.wait_for(standby, WAIT_S)
    assert second.age_s() < world.lease_s
    await second.release()


async def test_a_holder_that_was_overtaken_while_paused_hears_of_it(world):
    first = await world.holder("snapshot", "one")
    await first.pause()
    second = await acquire(await world.leadership(), "snapshot", "two")
    await first.resume()
    await asyncio.wait_for(first.lost(), WAIT_S)
    await asyncio.sleep(0.3)
    assert second.age_s() < world.lease_s, "and the new holder keeps the role"
    await second.release()
