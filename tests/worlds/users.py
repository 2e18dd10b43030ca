"""What users ask of a world's cluster: jobs that come over time."""

import asyncio

from kai_es.kube.labels import GROUP_STAMP, NODE_POOL_LABEL, RUN_SECONDS
from kai_es.simulate.kinds import NODE, POD, POD_GROUP, PRIORITY_CLASS, QUEUE
from tests.worlds.jobs import group_home, make_workload
from tests.worlds.mishaps import UNREADABLE


class Users:
    """The workload of a seed.

    pools: values of the pool label that nodes, queues and jobs have, one per shard.
    jobs:  (name, min member, (namespace, name) of each pod) created.
    """

    def __init__(self, seed, chance, *, arrival_s):
        self.pools, self.workload = make_workload(seed, chance, arrival_s=arrival_s)
        self._longer = chance.choice((1, 1, 2, 4))
        self.jobs = []
        self._created = []

    async def furnish(self, site):
        """Nodes, queues and priority classes."""
        for kind, objects in (
            (PRIORITY_CLASS, self.workload.priority_classes),
            (QUEUE, self.workload.queues),
            (NODE, self.workload.nodes),
        ):
            for obj in objects:
                await site.create(kind, obj)

    async def run(self, site):
        """Create each job at its time; returns after the last."""
        begun_s = asyncio.get_running_loop().time()
        for job in self.workload.jobs:
            now_s = asyncio.get_running_loop().time()
            await asyncio.sleep(max(begun_s + job.at_ms / 1000 - now_s, 0))
            await self._create(site, job)

    async def repair(self, site):
        """After etcd was restored: make again what is lost, and put right what was once wrong."""
        await self.furnish(site)
        for node in self.workload.nodes:
            name, labels = node["metadata"]["name"], node["metadata"]["labels"]
            home = {NODE_POOL_LABEL: labels.get(NODE_POOL_LABEL)}
            changes = {"metadata": {"labels": home}, "spec": {"unschedulable": None}}
            await site.patch(NODE, name, changes)
            await site.patch(NODE, name, {"status": node["status"]}, subresource="status")
        for pod in site.live(POD):
            meta = pod["metadata"]
            if meta["name"].startswith("malformed"):
                await site.delete(POD, meta["name"], namespace=meta["namespace"], grace_s=0)
            elif UNREADABLE in meta.get("annotations", ()):
                changes = {"metadata": {"annotations": {UNREADABLE: None}}}
                await site.patch(POD, meta["name"], changes, namespace=meta["namespace"])
        for job in self._created:
            await self._create(site, job)
            meta = job.group["metadata"]
            for changes in group_home(job.group):
                await site.patch(POD_GROUP, meta["name"], changes, namespace=meta["namespace"])

    async def _create(self, site, job):
        meta = job.group["metadata"]
        made = await site.create(POD_GROUP, job.group)
        group = (made or site.get(POD_GROUP, meta["name"], meta["namespace"]))["metadata"]
        if job not in self._created:
            self._created.append(job)
            pods = [(p["metadata"]["namespace"], p["metadata"]["name"]) for p in job.pods]
            self.jobs.append((group["name"], job.group["spec"]["minMember"], pods))
        stamp, ended = f"{group['uid']}/{group['generation']}", site.ended()
        for pod in job.pods:
            meta = pod["metadata"]
            notes = dict(meta["annotations"]) | {GROUP_STAMP: stamp}
            notes[RUN_SECONDS] = f"{float(notes[RUN_SECONDS]) * self._longer:.3f}"
            if (meta["namespace"], meta["name"]) not in ended:
                await site.create(POD, pod | {"metadata": meta | {"annotations": notes}})
