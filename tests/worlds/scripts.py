"""What happens in worlds with a script."""

import asyncio

from kai_es.binder.service import MARK_S
from kai_es.eventlog.lease import LEASE_S
from kai_es.simulate.faults import Fault
from kai_es.simulate.kinds import NODE, POD
from streams.snapshot import ROLE as SNAPSHOT_ROLE
from tests.worlds.truth import LEASE_MAX_S
from tests.worlds.world import FOR_EVER

SEED = 32
"""A world with two of each process, status writers among them, and no shared devices."""

AWAY_S = 130.0
"""Longer than a bind request is good for."""

RENEWAL_S = 3.0
"""Long enough to send something meanwhile."""

ZOMBIE_S = 35.0
"""Long enough for another one to take the role and to answer all requests."""


def of_kind(world, name):
    """Both processes of a kind."""
    found = [slot for slot in world.slots if slot.name.startswith(name)]
    assert len(found) == 2, f"the world of this seed has {len(found)} of {name}"
    return found


def late_leader(kind, *, is_answered=False):
    """A leader stands still for longer than its lease is good for, and nobody takes its role.

    When it goes on, it has something to do before its lease is renewed; first of all, if
    `is_answered`, to tell of a bind whose answer has come meanwhile.
    """

    async def script(world):
        leader, *others = of_kind(world, kind)
        for slot in others:
            slot.is_down = True
            slot.crash()
        await asyncio.sleep(LEASE_S + 1)  # by now the first one leads
        life, n_binds = leader.life, world.truth.n_binds
        while is_answered and world.truth.n_binds == n_binds:
            await asyncio.sleep(0.0002)
        leader.pause()
        await asyncio.sleep(LEASE_MAX_S + 2)
        leader.renewal_s = RENEWAL_S
        leader.resume()
        await _another_pod(world)
        await asyncio.sleep(RENEWAL_S)
        is_ended = leader.life is not life
        assert is_ended or kind == "status", f"{leader.name} found nothing to send"
        leader.renewal_s = 0.0
        for slot in others:
            slot.is_down = False

    return script


async def _another_pod(world):
    """A pod comes that can be bound by itself."""
    jobs = world.users.workload.jobs
    pod = next(job for job in jobs if job.group["spec"]["minMember"] == 1).pods[0]
    await world.site.create(POD, pod | {"metadata": pod["metadata"] | {"name": "another"}})


async def refused_for_ever(world):
    """The pods of one group are never bound."""
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


async def binders_away(world):
    """Requests are read when it is too late to carry them out."""
    binders = of_kind(world, "binder")
    await asyncio.sleep(2)
    for slot in binders:
        slot.is_down = True
        slot.crash()
    await asyncio.sleep(AWAY_S)
    for slot in binders:
        slot.is_down = False


async def nodes_made_again(world):
    """A binder stands still before its first bind; meanwhile another one has refused it.

    All nodes are made again under their names, and nobody decides anew, so that the bind could
    still be done when the first binder goes on.
    """
    binders = of_kind(world, "binder")
    for slot in binders:
        slot.zombie_s = ZOMBIE_S
    while not any(slot.life is not None and slot.life.is_paused for slot in binders):
        await asyncio.sleep(0.01)
    for slot in binders:
        slot.zombie_s = 0.0
    schedulers = of_kind(world, "scheduler")
    for slot in schedulers:
        slot.is_down = True
        slot.crash()
    for node in world.users.workload.nodes:
        await world.site.lose_node(node["metadata"]["name"])
        await world.site.create(NODE, node)
    await asyncio.sleep(ZOMBIE_S + 5)
    for slot in schedulers:
        slot.is_down = False


async def two_streams(world):
    """Every second the role of the snapshot stream is given to another one, too."""
    of_kind(world, SNAPSHOT_ROLE)
    for _ in range(20):
        await asyncio.sleep(1)
        world.leadership.forget(SNAPSHOT_ROLE)


async def binders_restart(world):
    """The binders die while requests are open; their marks are stored a moment before."""
    binders = of_kind(world, "binder")
    await asyncio.sleep(3)
    for slot in binders:
        slot.away.add("api")
    await asyncio.sleep(2 * MARK_S)
    for slot in binders:
        slot.crash()
    for slot in binders:
        slot.away.discard("api")
