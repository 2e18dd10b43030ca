"""What stands between a process and the world: calls that take time, get lost, or never return.

A call under way is the network's, not the process's: it may arrive after its process has died.
"""

import asyncio
import contextvars
import random
from contextlib import aclosing

from kai_es.events.catalogue import SNAPSHOT
from kai_es.kube.labels import RESERVATION_APP
from kai_es.ports.errors import FencedError, UnavailableError
from kai_es.simulate.cluster_local import LocalCluster
from kai_es.simulate.virtual import START_MS
from streams.snapshot import ROLE as SNAPSHOT_ROLE

CALL_TIMEOUT_S = 30.0
APPEND_TIMEOUT_S = 12.0


class Life:
    """One run of a process, from start to death.

    away: names of what it cannot reach (`log`, `api`, `lease`).
    slow_s: calls take up to so long.
    """

    def __init__(self, holder, seed, slot):
        self.holder = holder
        self.slot = slot
        self.chance = random.Random(f"{seed}/{holder}")
        self.is_paused = False
        self.is_dead = False
        self.held = []
        self.leases = {}

    def lease_age_s(self, role):
        """Seconds since the lease of a role was renewed."""
        return self.leases[role].age_s() if role in self.leases else 0.0

    async def sends(self):
        """What is stopped between its last look and its sending stands here until it goes on."""
        slot = self.slot
        if slot.zombie_s and slot.life is self:
            seconds, slot.zombie_s = slot.zombie_s, 0.0
            slot.pause()
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, slot.go_on, self, context=contextvars.Context())
            await asyncio.sleep(0)

    def check(self, what):
        """Raise if the call cannot be made."""
        if self.is_dead:
            raise asyncio.CancelledError(f"{self.holder} is dead")
        if what in self.slot.away:
            raise UnavailableError(f"{what} cannot be reached (simulated)")

    def latency_s(self):
        """How long the next way of a call takes."""
        slow_s = self.slot.slow_s
        if slow_s and self.chance.random() < 0.1:
            return self.chance.uniform(0, slow_s)
        return self.chance.uniform(0.0005, 0.004)

    async def call(self, what, make, timeout_s, late):
        """Make a call; `late` is raised when no answer comes in time."""
        self.check(what)
        travels = _on_the_way(self.latency_s(), make, self.latency_s())
        task = contextvars.Context().run(asyncio.get_running_loop().create_task, travels)
        task.add_done_callback(_looked_at)
        done, _ = await asyncio.wait([task], timeout=timeout_s)
        if not done:
            raise late
        if self.is_dead:
            raise asyncio.CancelledError
        return task.result()


async def _on_the_way(there_s, make, back_s):
    await asyncio.sleep(there_s)
    answer = await make()
    await asyncio.sleep(back_s)
    return answer


def _looked_at(task):
    if not task.cancelled():
        task.exception()


class LifeClock:
    """The Clock port, as wrong as its machine's."""

    def __init__(self, life):
        self._life = life

    def now_ms(self):
        now_s = asyncio.get_running_loop().time()
        return START_MS + self._life.slot.skew_ms + int(now_s * 1000)

    def monotonic_s(self):
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds):
        if self._life.is_dead:
            raise asyncio.CancelledError
        await asyncio.sleep(seconds)


class LinkedLog:
    """The EventLog port. `truth` sees who may append, and who does."""

    def __init__(self, life, log, truth):
        self._life = life
        self._log = log
        self._truth = truth

    async def take_over(self, producer_id):
        async def arrive():
            epoch = await self._log.take_over(producer_id)
            self._truth.taken_over(producer_id, self._life.holder)
            return epoch

        return await self._call(arrive)

    async def append(self, epoch, batch):
        role = epoch.producer_id
        self._truth.sends(self._life, role)
        await self._life.sends()

        async def arrive():
            positions = await self._log.append(epoch, batch)
            self._truth.appended(role, self._life.holder)
            return positions

        return await self._call(arrive)

    async def append_one(self, topic, key, envelope):
        if topic == SNAPSHOT:
            self._truth.sends(self._life, SNAPSHOT_ROLE)
            await self._life.sends()
        return await self._call(
            lambda: self._log.append_one(topic, key, envelope), UnavailableError("no answer")
        )

    async def begin(self, topic):
        self._life.check("log")
        return await self._log.begin(topic)

    async def end(self, topic):
        self._life.check("log")
        return await self._log.end(topic)

    async def trim(self, topic, partition, before):
        self._life.check("log")
        await self._log.trim(topic, partition, before)

    async def read(self, topic, partition, start, *, follow):
        self._life.check("log")
        async with aclosing(self._log.read(topic, partition, start, follow=follow)) as chunks:
            async for chunk in chunks:
                self._life.check("log")
                yield chunk

    async def close(self):
        await self._log.close()

    async def _call(self, make, late=None):
        late = late or FencedError("no answer: the outcome is unknown (simulated)")
        return await self._life.call("log", make, APPEND_TIMEOUT_S, late)


class LinkedLeadership:
    """The Leadership port."""

    def __init__(self, life, leadership):
        self._life = life
        self._leadership = leadership

    async def acquire(self, role, holder, waits):
        self._life.check("lease")
        lease = await self._leadership.acquire(role, holder, waits)
        self._life.leases[role] = lease
        renew, release = lease._renew, lease._release

        async def renew_if_reached():
            self._life.check("lease")
            # others may send meanwhile
            await asyncio.sleep(self._life.latency_s() + self._life.slot.renewal_s)
            return await renew()

        async def release_if_reached():
            if not self._life.is_dead and "lease" not in self._life.slot.away:
                await release()

        lease._renew, lease._release = renew_if_reached, release_if_reached
        return lease


class LinkedOffsets:
    """The Offsets port."""

    def __init__(self, life, offsets):
        self._life = life
        self._offsets = offsets

    async def load(self, consumer, topic):
        self._life.check("log")
        return await self._offsets.load(consumer, topic)

    async def store(self, consumer, topic, marks):
        self._life.check("log")
        await self._offsets.store(consumer, topic, marks)


class LinkedCluster:
    """The cluster ports."""

    def __init__(self, life, site, truth):
        self._life = life
        self._site = site
        self._truth = truth

    @property
    def _cluster(self):
        """The API server that is there now."""
        return LocalCluster(self._site.api, self._life.holder)

    async def list_page(self, resource, *, limit, token):
        limit = min(limit, self._site.page)
        if token and self._site.cuts:
            await self._site.cut_list()
        return await self._call(lambda: self._cluster.list_page(resource, limit=limit, token=token))

    async def watch(self, resource, *, rv, silence_s):
        self._life.check("api")
        async with aclosing(self._cluster.watch(resource, rv=rv, silence_s=silence_s)) as chunks:
            async for chunk in chunks:
                if resource.kind in self._site.silent:
                    await self._site.heard(resource.kind, silence_s)
                    raise UnavailableError(f"watch of {resource.kind} is silent (simulated)")
                self._life.check("api")
                yield chunk

    async def get(self, resource, namespace, name):
        return await self._call(lambda: self._cluster.get(resource, namespace, name))

    async def bind(self, namespace, pod, *, uid, rv, node, annotations):
        self._truth.bind_begins(uid, node, self._now_ms())
        await self._sends()
        return await self._call(
            lambda: self._cluster.bind(
                namespace, pod, uid=uid, rv=rv, node=node, annotations=annotations
            )
        )

    async def delete(self, resource, namespace, name, *, uid, rv, grace_s=None):
        if namespace != RESERVATION_APP:
            self._truth.delete_begins(uid, self._now_ms())
        await self._sends()
        return await self._call(
            lambda: self._cluster.delete(resource, namespace, name, uid=uid, rv=rv, grace_s=grace_s)
        )

    async def evict(self, namespace, pod, *, uid, rv):
        self._truth.delete_begins(uid, self._now_ms())
        await self._sends()
        return await self._call(lambda: self._cluster.evict(namespace, pod, uid=uid, rv=rv))

    async def list(self, resource, namespace="", *, labels="", fields=""):
        return await self._call(
            lambda: self._cluster.list(resource, namespace, labels=labels, fields=fields)
        )

    async def create(self, resource, namespace, body):
        await self._sends()
        return await self._call(lambda: self._cluster.create(resource, namespace, body))

    async def replace(self, resource, namespace, name, body):
        await self._sends()
        return await self._call(lambda: self._cluster.replace(resource, namespace, name, body))

    async def patch(self, resource, namespace, name, changes, *, uid, rv, subresource=""):
        await self._sends()
        return await self._call(
            lambda: self._cluster.patch(
                resource, namespace, name, changes, uid=uid, rv=rv, subresource=subresource
            )
        )

    async def set_conditions(self, namespace, pod, conditions, **rest):
        await self._sends()
        return await self._call(
            lambda: self._cluster.set_conditions(namespace, pod, conditions, **rest)
        )

    async def _sends(self):
        """A write, for which the process must have its role."""
        for role in self._life.leases:
            self._truth.sends(self._life, role)
        await self._life.sends()

    def _now_ms(self):
        return LifeClock(self._life).now_ms()

    async def _call(self, make):
        late = UnavailableError("no answer in time (simulated)")
        return await self._life.call("api", make, CALL_TIMEOUT_S, late)
