"""Sums kept row by row are those of everything counted anew."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.events.snapshot import Removed
from kai_es.kube.labels import GPU_MEMORY_LABEL
from kai_es.kube.objects import kind_of
from kai_es.kube.parse import parse
from kai_es.snapshot.world import World
from kai_es.status.follow import Follower
from tests.histories.builders import Writer, seen

NAMES = ("a", "b", "c")
QUEUES = ("", "q", "r", "s")
VERSIONS = {
    "Pod": "v1",
    "Node": "v1",
    "PodGroup": "scheduling.run.ai/v2alpha2",
    "Queue": "scheduling.run.ai/v2",
    "PriorityClass": "scheduling.k8s.io/v1",
    "ResourceClaim": "resource.k8s.io/v1",
}


class Chance:
    """Raw objects of few names, so that they meet."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.live = {}
        self.rv = 0

    def row(self):
        self.rv += 1
        if self.live and self.rng.random() < 0.2:
            uid = self.rng.choice(sorted(self.live))
            obj = self.live.pop(uid)
            return Removed(kind=kind_of(obj), uid=uid, rv=self.rv, incarnation=0)
        make = self.rng.choice([self.pod] * 5 + [self.group] * 3 + [self.queue, self.node])
        make = self.rng.choice([make] * 9 + [self.priority_class, self.claim])
        kind, name, more = make()
        uid = f"{kind}-{name}-{self.rng.choice('xy')}"  # two uids of one name meet, too
        raw = {"apiVersion": VERSIONS[kind], "kind": kind, **more}
        raw["metadata"] = {"name": name, "namespace": "ns", "uid": uid, **more.get("metadata", {})}
        obj = self.live[uid] = parse(kind, raw)
        return seen(obj, rv=self.rv)

    def pod(self):
        pick = self.rng.choice
        annotations = {"pod-group-name": pick(NAMES)}
        annotations |= pick(
            [
                {},
                {"gpu-fraction": "0.3", "gpu-fraction-num-devices": "2"},
                {"gpu-memory": "1000", "received-resource-type": "Fraction"},
                {"gpu-fraction": "0.5", "received-resource-type": "Fraction"},
            ]
        )
        is_shared = len(annotations) > 1
        requests = {"cpu": pick(["1", "500m", "0"]), "memory": pick(["1Gi", "1G"])}
        if not is_shared and pick([0, 1]):
            requests["nvidia.com/gpu"] = "2"
        condition = {"type": "PodScheduled", "status": pick(["True", "False"])}
        spec = {
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            "schedulerName": pick(["kai-scheduler"] * 4 + ["other"]),
            "nodeName": pick(["", "a", "b"]),
            "resourceClaims": pick([[], [{"name": "d", "resourceClaimName": "a"}]]),
        }
        phase = pick(["Pending", "Running", "Running", "Succeeded", "Failed"])
        status = {"phase": phase, "conditions": [condition]}
        metadata = {"annotations": annotations}
        return "Pod", pick(NAMES) * 2, {"metadata": metadata, "spec": spec, "status": status}

    def group(self):
        pick = self.rng.choice
        spec = {"queue": pick(QUEUES), "priorityClassName": pick(NAMES)}
        return "PodGroup", pick(NAMES), {"spec": spec}

    def queue(self):
        spec = {"parentQueue": self.rng.choice(QUEUES)}
        return "Queue", self.rng.choice(QUEUES[1:]), {"spec": spec}

    def node(self):
        labels = {GPU_MEMORY_LABEL: self.rng.choice(["2000", "4000", "none"])}
        return "Node", self.rng.choice(NAMES), {"metadata": {"labels": labels}}

    def priority_class(self):
        more = {"value": self.rng.choice([50, 150])}
        if self.rng.random() < 0.3:
            more["globalDefault"] = True
        return "PriorityClass", self.rng.choice(NAMES), more

    def claim(self):
        exactly = {"deviceClassName": "gpu.example.com", "count": self.rng.choice([1, 3])}
        requests = [{"name": "r", "exactly": exactly}]
        return "ResourceClaim", "a", {"spec": {"devices": {"requests": requests}}}


def sums(tally):
    return (
        {key: one.as_tuple() for key, one in tally.groups.items()},
        {name: one.as_tuple() for name, one in tally.queues.items()},
    )


@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(1, 8), max_size=30))
@settings(max_examples=80)
def test_sums_kept_row_by_row_are_those_counted_anew(seed, sizes):
    chance, world, writer = Chance(seed), World(), Writer()
    follower = Follower(world)
    for size in sizes:
        offset, batch = writer.batch(*[chance.row() for _ in range(size)])
        world.apply(offset, batch)
        follower.fold(batch)
        assert sums(follower.tally) == sums(Follower(world).tally)
