"""What every adapter of `ports.eventlog.Leadership` must do."""

import asyncio

WAIT_S = 5.0


async def acquire(leadership, role, holder, timeout_s=WAIT_S):
    return await asyncio.wait_for(leadership.acquire(role, holder), timeout_s)


async def test_one_leads_and_a_standby_waits_for_the_release(world):
    first = await acquire(await world.leadership(), "snapshot", "one")
    standby = asyncio.create_task((await world.leadership()).acquire("snapshot", "two"))
    await asyncio.sleep(1.0)
    assert not standby.done(), "a lease that is renewed does not run out"
    assert first.age_s() < 0.6
    await first.release()
    second = await asyncio.wait_for(standby, WAIT_S)
    await asyncio.wait_for(first.lost(), WAIT_S)
    await second.release()


async def test_roles_are_independent(world):
    leadership = await world.leadership()
    leases = [await acquire(leadership, role, "one") for role in ("informer", "scheduler-a")]
    for lease in leases:
        await lease.release()


async def test_a_role_passes_on_when_its_holder_dies(world):
    first = await acquire(await world.leadership(), "snapshot", "one")
    first.abandon()
    second = await acquire(await world.leadership(), "snapshot", "two")
    await first.release()  # too late: it must not take the role from its new holder
    await asyncio.sleep(0.4)
    assert second.age_s() < 0.4
    third = asyncio.create_task((await world.leadership()).acquire("snapshot", "three"))
    await asyncio.sleep(0.8)
    assert not third.done()
    third.cancel()
    await second.release()


async def test_a_holder_that_was_overtaken_hears_of_it(world):
    first = await acquire(await world.leadership(), "snapshot", "one")
    # What a paused process looks like: no renewal, then life goes on.
    first._task.cancel()
    second = await acquire(await world.leadership(), "snapshot", "two")
    assert first.age_s() > 0.5
    first._task = asyncio.create_task(first._keep())
    first._task.add_done_callback(first._ended)
    await asyncio.wait_for(first.lost(), WAIT_S)
    await second.release()
