"""What users ask of a world's cluster: jobs that come over time."""

import asyncio

from kai_es.kube.labels import GROUP_STAMP, RUN_SECONDS
from kai_es.simulate.kinds import NODE, POD, POD_GROUP, PRIORITY_CLASS, QUEUE
from tests.worlds.jobs import make_workload


class Users:
    """The workload of a seed.

    pools: values of the pool label that nodes, queues and jobs have, one per shard.
    jobs:  (name, min member, (namespace, name) of each pod) created.
    """

    def __init__(self, seed, chance, *, arrival_s):
        self.pools, self.workload = make_workload(seed, chance, arrival_s=arrival_s)
        self._longer = chance.choice((1, 1, 2, 4))
        self.jobs = []

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

    async def _create(self, site, job):
        group = (await site.create(POD_GROUP, job.group))["metadata"]
        pods = []
        self.jobs.append((group["name"], job.group["spec"]["minMember"], pods))
        stamp = f"{group['uid']}/{group['generation']}"
        for pod in job.pods:
            meta = pod["metadata"]
            notes = dict(meta["annotations"]) | {GROUP_STAMP: stamp}
            notes[RUN_SECONDS] = f"{float(notes[RUN_SECONDS]) * self._longer:.3f}"
            pods.append((meta["namespace"], meta["name"]))
            await site.create(POD, pod | {"metadata": meta | {"annotations": notes}})
