"""Random clusters full of devices: no share of a GPU beyond it, no MIG or DRA device for two."""

import random

import pytest

from kai_es.scheduler.digest import decision_digest
from tests.scheduler_world.device_cluster import DeviceCluster

QUICK = range(40)
LONG = range(40, 1000)
CYCLES = 5


@pytest.mark.parametrize("part", range(4))
def test_devices_are_given_once(part):
    for seed in QUICK[part::4]:
        assert list(DeviceCluster(seed).run(CYCLES)) == [], f"seed {seed}"


class Shuffled(DeviceCluster):
    """Decides on the same rows in another order as well."""

    def decided(self, inputs):
        decision, kept = super().decided(inputs), {}
        for name in ("nodes", "pods", "claims", "groups"):
            kept[name] = getattr(self, name)
            items = list(kept[name].items())
            random.Random(inputs.cycle).shuffle(items)
            setattr(self, name, dict(items))
        again = super().decided(inputs)
        for name, value in kept.items():
            setattr(self, name, value)
        config = self.config.shard("s")
        assert decision_digest(config, inputs, again) == decision_digest(config, inputs, decision)
        return decision


def test_order_of_rows_does_not_matter():
    for seed in range(10):
        assert list(Shuffled(seed).run(CYCLES)) == [], f"seed {seed}"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_devices_are_given_once_on_many_clusters():
    for seed in LONG:
        assert list(DeviceCluster(seed).run(CYCLES)) == [], f"seed {seed}"


def test_the_clusters_see_every_kind_of_decision():
    """Or the test above would say nothing."""
    seen = set()
    for seed in range(12):
        cluster = DeviceCluster(seed)
        for _ in cluster.run(CYCLES):
            pass
        for member in cluster.pods.values():
            spec = member.pod().spec
            if member.node:
                seen.add(spec.request_type)
                seen |= {"claim"} if spec.resource_claims else set()
                seen |= {"card"} if member.extended else set()
                seen |= {"several"} if len(member.groups) > 1 else set()
            seen |= {"again"} if member.times else set()
    assert seen >= {"Fraction", "GpuMemory", "MigInstance", "Regular", "claim", "card", "several"}
    assert "again" in seen
