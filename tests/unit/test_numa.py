import json

import msgspec

from kai_es.events.decisions import Bind, Cycle, CycleDecision, Evict, Pipeline, ZoneAmount
from kai_es.kube.labels import NUMA_OBSERVED, NUMA_PREDICTED
from kai_es.kube.objects import PriorityClass
from kai_es.kube.parse_pod import parse_pod
from kai_es.kube.topologies import NumaNode, NumaZone
from kai_es.scheduler import flags
from kai_es.scheduler.config import Config, PluginOption
from kai_es.scheduler.decide import decide
from kai_es.scheduler.reasons.render import pod_group_message
from kai_es.snapshot.lifecycle import Sighting, requests_of, task_state
from kai_es.snapshot.status import TaskStatus
from tests.scheduler_world import World, a_spec

CONFIG = Config(
    node_pool_key="", withheld=(), plugins=(*Config().plugins, PluginOption(name="numa"))
)


class Cluster(World):
    """One queue and node `n`; its zones `z0` and `z1` have 4 cores each."""

    def __init__(self, policy="single-numa-node", nodes=("n",)):
        super().__init__()
        self.queue("q")
        for name in nodes:
            self.node(name, 0)
            self.zones(name, policy)

    def zones(self, name, policy):
        zone = {"cpu": 4000}
        zones = tuple(NumaZone(name=z, allocatable=zone, available=zone) for z in ("z0", "z1"))
        self.snapshot.set_object(NumaNode(uid=name, name=name, policy=policy, zones=zones), rv=1)

    def runs(self, name, zone, cores=3, node="n", status=None, **fields):
        """A pod that was seen in a zone."""
        record = json.dumps([{"zone": zone, "amount": {"cpu": str(cores)}}])
        self.group(name, **fields)
        self.pod(
            f"{name}-0",
            name,
            node,
            spec=cores_of(cores),
            status=status,
            annotations={NUMA_OBSERVED: record},
        )


def cores_of(cores, **fields):
    return a_spec(0, cpu=1000 * cores, guaranteed=True, **fields)


def decided(cluster, rules=flags.NONE) -> CycleDecision:
    return decide(cluster.snapshot, CONFIG.shard("s"), cluster.inputs(rules))


def zones(decision):
    return {
        op.pod: {part.zone: part.amount["cpu"] for part in op.zones}
        for op in decision.ops
        if isinstance(op, Bind)
    }


def test_pods_fill_zone_by_zone_and_bind_requests_say_so():
    cluster = Cluster()
    for name in ("a", "b", "c"):
        cluster.group(name, "", spec=cores_of(3))
    decision = decided(cluster)
    assert zones(decision) == {"a-0": {"z0": "3"}, "b-0": {"z1": "3"}}
    assert "cannot NUMA-align" in pod_group_message(decision.reasons["uid-c"])


def test_a_pod_that_is_not_guaranteed_is_left_alone():
    cluster = Cluster()
    cluster.group("a", "", spec=a_spec(0, cpu=6000))
    assert zones(decided(cluster)) == {"a-0": {}}


def test_what_the_zones_of_a_node_hold_follows_from_its_pods():
    cluster = Cluster()
    cluster.runs("old", "z0")
    cluster.group("a", "", spec=cores_of(3))
    assert zones(decided(cluster)) == {"a-0": {"z1": "3"}}


def test_fewer_zones_are_better_on_other_nodes_too():
    cluster = Cluster("best-effort", nodes=("n", "o"))
    cluster.runs("x", "z0")
    cluster.runs("y", "z1")
    cluster.group("a", "", spec=cores_of(2))
    decision = decided(cluster)
    assert [op.node for op in decision.ops] == ["o"]


def test_a_zone_whose_pod_leaves_is_waited_for():
    cluster = Cluster()
    cluster.runs("old", "z0", status=TaskStatus.RELEASING)
    cluster.runs("other", "z1")
    cluster.group("a", "", spec=cores_of(3))
    kinds = [type(op) for op in decided(cluster).ops]
    assert kinds == [Pipeline]
    assert [type(op) for op in decided(cluster, flags.ALL).ops] == [Bind]


def test_a_victim_that_may_keep_its_zone_is_not_restarted():
    cluster = Cluster()
    for name, value in (("low", 50), ("high", 100)):
        cluster.snapshot.set_priority_class(PriorityClass(uid=name, name=name, value=value), rv=1)
    cluster.runs("stays", "z1", priority_class="low")
    cluster.runs("goes", "z0", priority_class="low")
    cluster.group("want", "", spec=cores_of(3), priority_class="high")
    ops = decided(cluster).ops
    assert {(type(op), op.pod) for op in ops} == {(Evict, "goes-0"), (Pipeline, "want-0")}


def test_a_job_that_cannot_be_aligned_does_not_hide_one_that_can():
    cluster = Cluster("restricted")
    cluster.snapshot.set_object(
        NumaNode(
            uid="n",
            name="n",
            policy="restricted",
            scope="pod",
            zones=tuple(
                NumaZone(name=z, allocatable={"cpu": 4000, "memory": 2**33}, available={})
                for z in ("z0", "z1")
            ),
        ),
        rv=2,
    )
    wide = cores_of(6, more={"memory": 2**30})  # two zones for the cores, one for the memory
    cluster.group("first", "", spec=wide)
    cluster.group("second", "", spec=cores_of(6, more={"memory": 2**33 + 2**30}))
    decision = decided(cluster)
    assert zones(decision) == {"second-0": {"z0": "4", "z1": "2"}}
    assert "cannot NUMA-align" in pod_group_message(decision.reasons["uid-first"])


def test_containers_and_class_are_read_from_pods():
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    raw = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {
            "initContainers": [{**container, "restartPolicy": "Always"}, container],
            "containers": [container],
        },
        "status": {"qosClass": "Guaranteed"},
    }
    spec = parse_pod(raw).spec
    assert spec.guaranteed
    assert [one.kind for one in spec.containers] == ["sidecar", "init", ""]
    raw["spec"].pop("initContainers")
    assert parse_pod(raw).spec.containers == ()


def test_the_annotation_is_what_is_read_back():
    cluster = Cluster()
    cluster.group("a", "", spec=cores_of(3))
    [bind] = decided(cluster).ops
    text = msgspec.json.encode(bind.zones).decode()
    assert json.loads(text) == [{"zone": "z0", "amount": {"cpu": "3"}}]
    again = Cluster()
    again.group("a", spec=cores_of(3))
    again.pod("a-0", "a", "n", spec=cores_of(3), annotations={NUMA_PREDICTED: text})
    again.group("b", "", spec=cores_of(3))
    assert zones(decided(again)) == {"b-0": {"z1": "3"}}


def test_zones_go_from_the_decision_to_the_pods_state():
    cluster = Cluster()
    cluster.group("a", "", spec=cores_of(3))
    decision = decided(cluster)
    cycle = Cycle(
        shard="s",
        epoch=1,
        cycle=1,
        offset=1,
        config_digest="",
        digest="",
        inputs=cluster.inputs(),
        decision=decision,
    )
    [request] = requests_of(cycle, incarnation=1)
    pod = msgspec.structs.replace(cluster.snapshot.pods["a-0"].pod, phase="Pending")
    state = task_state(Sighting(pod), [request])
    assert state.zones == (ZoneAmount(zone="z0", amount={"cpu": "3"}),)
    after = Cluster()
    after.group("a", spec=cores_of(3))
    after.snapshot.set_pod(pod, rv=1, task=state)
    after.group("b", "", spec=cores_of(3))
    assert zones(decided(after)) == {"b-0": {"z1": "3"}}
