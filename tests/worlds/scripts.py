"""What happens in worlds with a script."""

import asyncio

from kai_es.eventlog.lease import LEASE_S
from kai_es.simulate.faults import Fault
from kai_es.simulate.kinds import NODE
from tests.worlds.truth import LEASE_MAX_S
from tests.worlds.world import FOR_EVER

SEED = 18
"""A world with some competition for its nodes."""

AWAY_S = 130.0
"""Longer than a bind request is good for."""

ZOMBIE_S = 35.0
"""Long enough for another one to take the role and to answer all requests."""


async def late_leaders(world):
    """Each leader stands still for longer than its lease is good for; nobody takes its role."""
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
    binders = [slot for slot in world.slots if slot.name.startswith("binder")]
    await asyncio.sleep(2)
    for slot in binders:
        slot.is_down = True
        slot.crash()
    await asyncio.sleep(AWAY_S)
    for slot in binders:
        slot.is_down = False


async def nodes_made_again(world):
    """A binder stands still before its first bind; meanwhile another one has refused it.

    All nodes are made again under their names, so that the bind could still be done when the first
    binder goes on.
    """
    binders = [slot for slot in world.slots if slot.name.startswith("binder")]
    for slot in binders:
        slot.zombie_s = ZOMBIE_S
    while not any(slot.life is not None and slot.life.is_paused for slot in binders):
        await asyncio.sleep(0.01)
    for slot in binders:
        slot.zombie_s = 0.0
    for node in world.users.workload.nodes:
        await world.site.lose_node(node["metadata"]["name"])
        await world.site.create(NODE, node)
    await asyncio.sleep(ZOMBIE_S + 5)
