"""What goes wrong in a world, when, and for how long: all drawn from its seed."""

import asyncio
from types import MappingProxyType

from kai_es.kube.labels import NODE_POOL_LABEL, POD_GROUP_ANNOTATION, SCHEDULER_NAME
from kai_es.simulate.faults import Fault
from kai_es.simulate.kinds import NODE, POD, POD_GROUP, QUEUE
from kai_es.simulate.workload import PRIORITY_CLASSES
from tests.worlds.jobs import POOLS, group_home, pool_of

WRITERS = ("informer", "snapshot", "scheduler", "binder", "status")

WRITES_WITHIN_S = 5.0
"""A leader writes that often; a standby does not write."""

UNREADABLE = "nvidia.com/mig-1g.5gb"
"""An annotation of which a negative number cannot be read; a bad fraction counts as absent."""

RESTORE_MIN = 30
"""So many changes that the log knows are lost at least: what the binder writes meanwhile must not
fill the hole."""

NOTICED_S = 120.0
"""Everything that keeps informer and log from working is over by then."""

KINDS = ("Node", "Pod", "PodGroup", "Queue")

NOBODYS = "nobodys"
"""A pool without a shard."""

WAYS = (("",), ("b",), ("c",), (NOBODYS, ""), (NOBODYS, "b"))
"""Pools that a node gets into, one after the other."""

MOVES = (
    ("labels",),
    ("queue",),
    ("priority",),
    ("labels", "queue"),
    ("queue", "labels"),
    ("queue", "priority", "labels"),
    ("nobodys", "labels", "queue"),
)
"""What changes of a pod group that moves, one after the other."""


class Mishaps:
    """Draws mishaps and lets them happen; `told` is what happened, for people."""

    def __init__(self, world, chance, *, n, until_s):
        self._world = world
        self._chance = chance
        self._n = n
        self._until_s = until_s
        self.told = []

    async def run(self):
        """Let all of them happen; returns when the last one is over."""
        plan = sorted(
            (self._chance.uniform(1, self._until_s), self._chance.choice(sorted(self.KINDS)))
            for _ in range(self._n)
        )
        async with asyncio.TaskGroup() as tasks:
            for at_s, name in plan:
                await asyncio.sleep(max(at_s - asyncio.get_running_loop().time(), 0))
                tasks.create_task(self._happen(name))

    async def _happen(self, name):
        now_s = asyncio.get_running_loop().time()
        what = await self.KINDS[name](self, self._chance)
        self.told.append(f"{now_s:8.3f} s  {name} {what or ''}")

    def _slot(self, chance):
        return chance.choice(self._world.slots)

    # -- processes

    async def crash(self, chance):
        slot = self._slot(chance)
        slot.crash()
        return slot.name

    async def crash_all(self, chance):
        for slot in self._world.slots:
            slot.crash()

    async def stop(self, chance):
        slot = self._slot(chance)
        slot.end()
        return slot.name

    async def pause(self, chance):
        slot, seconds = self._slot(chance), chance.choice((0.5, 3, 7, 12, 35))
        life = slot.life
        slot.pause()
        await asyncio.sleep(seconds)
        if slot.life is life:
            slot.resume()
        return f"{slot.name} for {seconds} s"

    async def zombie(self, chance):
        """A writer stands still between looking at its lease and sending; then it sends."""
        slots = [s for s in self._world.slots if s.name.startswith(WRITERS)]
        slot, seconds = chance.choice(slots), chance.choice((3, 7, 12, 35))
        slot.zombie_s = seconds
        await asyncio.sleep(WRITES_WITHIN_S)
        is_stopped = not slot.zombie_s
        slot.zombie_s = 0.0
        await asyncio.sleep(seconds)
        return f"{slot.name} for {seconds} s" if is_stopped else ""

    async def two_leaders(self, chance):
        """A role is given to another one while its holder still believes to have it."""
        roles = self._world.leadership.roles()
        if not roles:
            return ""
        role = chance.choice(roles)
        self._world.leadership.forget(role)
        return role

    async def down(self, chance):
        slot, seconds = self._slot(chance), chance.uniform(5, 30)
        slot.is_down = True
        slot.crash()
        await asyncio.sleep(seconds)
        slot.is_down = False
        return f"{slot.name} for {seconds:.1f} s"

    async def cut_off(self, chance):
        slot, seconds = self._slot(chance), chance.choice((0.3, 2, 8, 15, 30))
        what = chance.choice(("log", "api", "lease"))
        slot.away.add(what)
        await asyncio.sleep(seconds)
        slot.away.discard(what)
        return f"{slot.name} from the {what} for {seconds} s"

    async def slow(self, chance):
        slot, seconds = self._slot(chance), chance.uniform(5, 30)
        slot.slow_s = chance.choice((0.2, 2, 20))
        await asyncio.sleep(seconds)
        slot.slow_s = 0.0
        return f"{slot.name} for {seconds:.1f} s"

    async def skew(self, chance):
        slot, seconds = self._slot(chance), chance.uniform(5, 30)
        slot.skew_ms = chance.choice((-5000, -1500, -300, 300, 1500, 5000))
        await asyncio.sleep(seconds)
        slot.skew_ms = 0
        return f"{slot.name} for {seconds:.1f} s"

    # -- the API server

    async def drop_watches(self, chance):
        graceful = chance.random() < 0.5
        kind = chance.choice((None, "pods", "nodes"))
        self._world.site.api.administer(
            "POST", "drop-watches", {"graceful": graceful, "resource": kind}
        )

    async def silent_watch(self, chance):
        kind, seconds = chance.choice(KINDS), chance.uniform(1, 40)
        self._world.site.silent.add(kind)
        await asyncio.sleep(seconds)
        self._world.site.silent.discard(kind)
        return f"{kind} for {seconds:.1f} s"

    async def compact(self, chance):
        self._world.site.store.compact(self._world.site.store.rv)
        self._world.site.api.administer("POST", "drop-watches", {})

    async def cut_lists(self, chance):
        """Everything is listed anew; in mid-list the state that pages come from is compacted."""
        self._world.site.cuts += chance.randint(1, 4)
        await self.compact(chance)

    async def restart_api(self, chance):
        """The API server is away for a moment; then every watch is to be begun anew."""
        seconds = chance.choice((0, 0.5, 5))
        for slot in self._world.slots:
            slot.away.add("api")
        await asyncio.sleep(seconds)
        await self._world.site.restart()
        for slot in self._world.slots:
            slot.away.discard("api")
        return f"after {seconds} s"

    async def restore_etcd(self, chance):
        """etcd goes back to a backup of some seconds ago, and users repair what was lost."""
        world, seconds = self._world, chance.choice((2, 5, 10))
        if world.site.n_restores:
            return ""
        backup, rv = world.site.backup(), world.site.store.rv
        await asyncio.sleep(seconds)
        n_lost = min(world.site.store.rv, self._newest_rv()) - rv
        if n_lost < RESTORE_MIN or world.site.n_restores:
            return ""
        await world.site.restore(backup, self._noticed)
        await world.users.repair(world.site)
        return f"by {seconds} s and {n_lost} changes"

    def _newest_rv(self):
        """What the log knows of: only what it loses can be told from what it has."""
        known = self._world.watcher.reading.world.objects.live.values()
        return max((entry.rank.rv for of in known for entry in of.values()), default=0)

    async def _noticed(self):
        """Return when the log says that etcd was restored."""
        liveness = self._world.watcher.reading.world.liveness
        before = liveness.incarnation
        until_s = asyncio.get_running_loop().time() + NOTICED_S
        while liveness.incarnation == before:
            await asyncio.sleep(0.1)
            if asyncio.get_running_loop().time() > until_s:
                self._world.failures.violated("14", "a restore of etcd is not noticed")
                return

    async def api_down(self, chance):
        seconds = chance.uniform(1, 10)
        for slot in self._world.slots:
            slot.away.add("api")
        self._world.site.api.administer("POST", "drop-watches", {})
        await asyncio.sleep(seconds)
        for slot in self._world.slots:
            slot.away.discard("api")
        return f"for {seconds:.1f} s"

    async def bad_answers(self, chance):
        seconds = chance.uniform(2, 20)
        faults = self._world.site.api.faults
        rule = Fault(
            action=chance.choice(("error", "close", "lose", "delay")),
            code=chance.choice((429, 500, 503, 504, 409)),
            delay_ms=chance.choice((50, 2000)),
            client=chance.choice(("informer", "binder", "binder", "status")),
            verb=chance.choice((None, "list", "watch", "get", "create", "delete", "patch")),
            probability=chance.choice((0.2, 0.5, 1.0)),
        )
        faults.rules.append(rule)
        await asyncio.sleep(seconds)
        if rule in faults.rules:
            faults.rules.remove(rule)
        return f"{rule.action} {rule.code} {rule.verb} to {rule.client} for {seconds:.1f} s"

    async def restart_kubelet(self, chance):
        await self._world.site.restart_kubelet()

    # -- the log and the database

    async def log_down(self, chance):
        seconds = chance.choice((0.5, 3, 12, 20))
        for slot in self._world.slots:
            slot.away |= {"log", "lease"}
        await asyncio.sleep(seconds)
        for slot in self._world.slots:
            slot.away -= {"log", "lease"}
        return f"for {seconds} s"

    async def database_away(self, chance):
        seconds = chance.uniform(1, 40)
        self._world.database.away = True
        await asyncio.sleep(seconds)
        self._world.database.away = False
        return f"for {seconds:.1f} s"

    async def lost_commits(self, chance):
        fates = [chance.choice(("", "before", "after")) for _ in range(6)]
        self._world.database.fail += fates
        return " ".join(fates)

    # -- users and nodes

    async def delete_pod(self, chance):
        pods = self._world.site.live(POD)
        if not pods:
            return ""
        meta = chance.choice(pods)["metadata"]
        grace_s = chance.choice((0, None))
        await self._world.site.delete(
            POD, meta["name"], namespace=meta["namespace"], grace_s=grace_s
        )
        return meta["name"]

    async def cordon(self, chance):
        name, seconds = self._node(chance), chance.uniform(2, 20)
        await self._world.site.patch(NODE, name, {"spec": {"unschedulable": True}})
        await asyncio.sleep(seconds)
        await self._world.site.patch(NODE, name, {"spec": {"unschedulable": None}})
        return f"{name} for {seconds:.1f} s"

    async def not_ready(self, chance):
        name, seconds = self._node(chance), chance.uniform(2, 20)
        await self._ready(name, "False")
        await asyncio.sleep(seconds)
        await self._ready(name, "True")
        return f"{name} for {seconds:.1f} s"

    async def _ready(self, name, status):
        conditions = [{"type": "Ready", "status": status, "reason": "Simulated"}]
        changes = {"status": {"conditions": conditions}}
        await self._world.site.patch(NODE, name, changes, subresource="status")

    async def lose_node(self, chance):
        """A node goes, and another one comes under its name."""
        name, seconds = self._node(chance), chance.choice((0, 0.05, 3, 15))
        await self._world.site.lose_node(name)
        await asyncio.sleep(seconds)
        raw = next(n for n in self._world.users.workload.nodes if n["metadata"]["name"] == name)
        await self._world.site.create(NODE, raw)
        return f"{name} for {seconds} s"

    async def move_node(self, chance):
        """A node goes to the pool of another shard, or of none in between, and comes back."""
        name, seconds = self._node(chance), chance.uniform(1, 25)
        raw = next(n for n in self._world.users.workload.nodes if n["metadata"]["name"] == name)
        way = chance.choice(WAYS)
        for pool in way:
            await self._label(name, pool)
            await asyncio.sleep(chance.choice((0, 0.02, 0.5)))
        await asyncio.sleep(seconds)
        await self._label(name, pool_of(raw))
        return f"{name} to {way} for {seconds:.1f} s"

    async def _label(self, node, pool):
        changes = {"metadata": {"labels": {NODE_POOL_LABEL: pool or None}}}
        await self._world.site.patch(NODE, node, changes)

    async def shrink(self, chance):
        name, seconds = self._node(chance), chance.uniform(2, 20)
        raw = next(n for n in self._world.users.workload.nodes if n["metadata"]["name"] == name)
        amounts = raw["status"]["allocatable"]
        await self._allocatable(name, {**amounts, "cpu": "4", "nvidia.com/gpu": "1"})
        await asyncio.sleep(seconds)
        await self._allocatable(name, {"nvidia.com/gpu": None, **amounts})
        return f"{name} for {seconds:.1f} s"

    async def _allocatable(self, name, amounts):
        changes = {"status": {"allocatable": amounts}}
        await self._world.site.patch(NODE, name, changes, subresource="status")

    async def foreign_pod(self, chance):
        """A pod that somebody else put on a node."""
        name, number = self._node(chance), chance.randrange(10**6)
        seconds = chance.uniform(1, 10)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"foreign-{number}",
                "namespace": "elsewhere",
                "annotations": {"kai.scheduler/simulated-run-seconds": f"{seconds:.1f}"},
            },
            "spec": {
                "nodeName": name,
                "containers": [
                    {
                        "name": "main",
                        "image": "x",
                        "resources": {"requests": {"cpu": "8", "memory": "1Gi"}},
                    }
                ],
            },
        }
        await self._world.site.create(POD, pod)
        return f"on {name} for {seconds:.1f} s"

    async def unreadable_pod(self, chance):
        """A pod, bound or not, gets a version that cannot be parsed, and a good one later."""
        pods = self._world.site.live(POD)
        if not pods:
            return ""
        meta, seconds = chance.choice(pods)["metadata"], chance.uniform(0.1, 20)
        for value in ("-1", None):
            notes = {"metadata": {"annotations": {UNREADABLE: value}}}
            await self._world.site.patch(POD, meta["name"], notes, namespace=meta["namespace"])
            await asyncio.sleep(seconds if value else 0)
        return f"{meta['name']} for {seconds:.1f} s"

    async def malformed_pod(self, chance):
        """A pod of which no version can be parsed comes and goes; once on a node, once on none."""
        name, seconds = f"malformed-{chance.randrange(10**6)}", chance.uniform(0.1, 20)
        requests = {"cpu": "-1"}
        containers = [{"name": "main", "image": "x", "resources": {"requests": requests}}]
        spec = {"schedulerName": SCHEDULER_NAME, "containers": containers}
        if chance.random() < 0.5:
            spec["nodeName"] = self._node(chance)
        meta = {"name": name, "namespace": "elsewhere"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        await self._world.site.create(POD, pod)
        await asyncio.sleep(seconds)
        await self._world.site.delete(POD, name, namespace="elsewhere", grace_s=0)
        return f"{spec.get('nodeName', 'nowhere')} for {seconds:.1f} s"

    async def lose_queue(self, chance):
        """A queue is deleted, and made again under its name."""
        raw, seconds = chance.choice(self._world.users.workload.queues), chance.uniform(0, 15)
        name = raw["metadata"]["name"]
        await self._world.site.delete(QUEUE, name)
        await asyncio.sleep(seconds)
        await self._world.site.create(QUEUE, raw)
        return f"{name} for {seconds:.1f} s"

    async def change_priority(self, chance):
        """A pod group gets another generation."""
        groups = self._world.site.live(POD_GROUP)
        if not groups:
            return ""
        meta = chance.choice(groups)["metadata"]
        changes = {"spec": {"priorityClassName": chance.choice(("train", "build-preemptible"))}}
        await self._world.site.patch(POD_GROUP, meta["name"], changes, namespace=meta["namespace"])
        return meta["name"]

    async def move_group(self, chance):
        """A pod group changes its pool, queue or priority, or several one by one; later all back.

        It may run in the other shard meanwhile, or belong to none, or to a queue of another one.
        """
        workload = self._world.users.workload
        names = self._groups_waiting()
        if not names:
            return ""
        name = chance.choice(names)
        home = next(j.group for j in workload.jobs if j.group["metadata"]["name"] == name)
        others = [pool for pool in self._world.users.pools if pool != pool_of(home)]
        pool = chance.choice((*others, *others, *POOLS))
        leaves = [queue for queue in workload.queues if "parentQueue" in queue["spec"]]
        leaves = [queue for queue in leaves if pool_of(queue) == pool] or leaves
        away = {
            "nobodys": {"metadata": {"labels": {NODE_POOL_LABEL: NOBODYS}}},
            "labels": {"metadata": {"labels": {NODE_POOL_LABEL: pool or None}}},
            "queue": {"spec": {"queue": chance.choice(leaves)["metadata"]["name"]}},
            "priority": {"spec": {"priorityClassName": chance.choice(sorted(PRIORITY_CLASSES))}},
        }
        steps = chance.choice(MOVES)
        for step in steps:
            await self._patch_group(home, away[step])
            await asyncio.sleep(chance.choice((0, 0.05, 1)))
        seconds = chance.uniform(0.1, 20)
        await asyncio.sleep(seconds)
        for changes in group_home(home):
            await self._patch_group(home, changes)
            await asyncio.sleep(chance.choice((0, 0.05, 1)))
        return f"{name}: {', '.join(steps)} for {seconds:.1f} s"

    def _groups_waiting(self):
        """Names of pod groups of which a pod waits, or of all if there is none."""
        site = self._world.site
        waiting = {
            pod["metadata"].get("annotations", {}).get(POD_GROUP_ANNOTATION)
            for pod in site.live(POD)
            if "nodeName" not in pod["spec"]
        }
        names = [group["metadata"]["name"] for group in site.live(POD_GROUP)]
        return [name for name in names if name in waiting] or names

    async def _patch_group(self, group, changes):
        meta = group["metadata"]
        await self._world.site.patch(POD_GROUP, meta["name"], changes, namespace=meta["namespace"])

    def _node(self, chance):
        nodes = self._world.users.workload.nodes
        return chance.choice(nodes)["metadata"]["name"]

    KINDS = MappingProxyType(
        {
            "crash": crash,
            "crash-all": crash_all,
            "stop": stop,
            "pause": pause,
            "zombie": zombie,
            "two-leaders": two_leaders,
            "down": down,
            "cut-off": cut_off,
            "slow": slow,
            "skew": skew,
            "drop-watches": drop_watches,
            "silent-watch": silent_watch,
            "compact": compact,
            "cut-lists": cut_lists,
            "restart-api": restart_api,
            "restore-etcd": restore_etcd,
            "api-down": api_down,
            "bad-answers": bad_answers,
            "restart-kubelet": restart_kubelet,
            "log-down": log_down,
            "database-away": database_away,
            "lost-commits": lost_commits,
            "delete-pod": delete_pod,
            "cordon": cordon,
            "not-ready": not_ready,
            "lose-node": lose_node,
            "move-node": move_node,
            "shrink": shrink,
            "foreign-pod": foreign_pod,
            "unreadable-pod": unreadable_pod,
            "malformed-pod": malformed_pod,
            "lose-queue": lose_queue,
            "change-priority": change_priority,
            "move-group": move_group,
        }
    )
