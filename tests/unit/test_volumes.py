import pytest

from kai_es.events.decisions import Bind
from kai_es.kube.volumes import Claim, ConfigMap, CsiDriver, StorageCapacity, StorageClass, Volume
from kai_es.scheduler import flags
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import decide
from kai_es.scheduler.reasons.render import pod_group_message
from kai_es.snapshot.status import TaskStatus
from tests.scheduler_world import World, a_spec

CONFIG = Config(node_pool_key="", withheld=())
CSI = Config(node_pool_key="", withheld=(), schedule_csi_storage=True)
GIB = 2**30


class Cluster(World):
    """Two nodes `n0` and `n1`, with labels `host`; one queue; a class `disk` that waits."""

    def __init__(self):
        super().__init__()
        self.queue("q")
        for n in range(2):
            self.node(f"n{n}", 4, labels={"host": f"n{n}"})
        self.put(StorageClass(uid="disk", name="disk", provisioner="csi.example", waits=True))

    def put(self, thing):
        self.snapshot.set_object(thing, rv=1)

    def claim(self, name, **fields):
        values = {"phase": "Pending", "storage_class": "disk", "size": GIB}
        self.put(Claim(uid=name, namespace="ns", name=name, **(values | fields)))

    def bound_claim(self, name, host):
        self.claim(name, phase="Bound", bound=True, volume=f"pv-{name}")
        if host:
            self.put(
                Volume(uid=f"pv-{name}", name=f"pv-{name}", phase="Bound", node_terms=on(host))
            )

    def wants(self, *claims, name="g", pods=1, **fields):
        self.group(name, *[""] * pods, spec=a_spec(1, claims=claims, **fields))


def on(host):
    return [{"matchExpressions": [{"key": "host", "operator": "In", "values": [host]}]}]


def decided(cluster, config=CONFIG, rules=flags.NONE):
    return decide(cluster.snapshot, config.shard("s"), cluster.inputs(rules))


def places(decision):
    return {op.pod: op.node for op in decision.ops if isinstance(op, Bind)}


def message(decision, group="g"):
    return pod_group_message(decision.reasons[f"uid-{group}"])


def test_a_pod_goes_where_its_volume_is():
    cluster = Cluster()
    cluster.bound_claim("data", "n1")
    cluster.wants("data")
    assert places(decided(cluster)) == {"g-0": "n1"}


def test_claims_that_are_bound_with_the_pod_are_named():
    cluster = Cluster()
    cluster.bound_claim("data", "n1")
    cluster.claim("scratch")
    cluster.claim("more")
    cluster.wants("data", "scratch", "more")
    (bind,) = decided(cluster).ops
    assert bind.volumes == ("more", "scratch")


def test_a_volume_that_is_gone_is_told():
    cluster = Cluster()
    cluster.bound_claim("data", host=None)
    cluster.wants("data")
    decision = decided(cluster)
    assert not decision.ops
    assert "2 node(s) unavailable due to one or more pvc(s) bound to non-existent" in message(
        decision
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"deleted_ms": 1}, 'persistentvolumeclaim "data" is being deleted'),
        ({"phase": "Lost", "volume": "v"}, 'bound to non-existent persistentvolume "v"'),
        ({"storage_class": "none"}, "pod has unbound immediate PersistentVolumeClaims"),
    ],
)
def test_a_claim_that_cannot_be_used_keeps_its_pod_waiting(fields, text):
    cluster = Cluster()
    cluster.claim("data", **fields)
    cluster.wants("data")
    decision = decided(cluster)
    assert not decision.ops
    assert text in message(decision)


def test_a_missing_claim_is_named():
    cluster = Cluster()
    cluster.wants("data")
    assert 'persistentvolumeclaim "data" not found' in message(decided(cluster))


def test_an_ephemeral_claim_of_another_pod_is_refused():
    cluster = Cluster()
    cluster.claim("g-0-tmp", owners=(("Pod", "old", "uid-old"),))
    cluster.wants("g-0-tmp", ephemeral_claims=("g-0-tmp",))
    assert "was not created for pod ns/g-0 (pod is not owner)" in message(decided(cluster))


def test_a_waiting_claim_takes_a_free_volume_where_there_is_one():
    cluster = Cluster()
    cluster.put(StorageClass(uid="local", name="local", waits=True))
    cluster.put(
        Volume(
            uid="v",
            name="v",
            phase="Available",
            storage_class="local",
            size=2 * GIB,
            node_terms=on("n1"),
        )
    )
    cluster.claim("data", storage_class="local")
    cluster.wants("data")
    assert places(decided(cluster)) == {"g-0": "n1"}


def test_a_volume_serves_one_claim_of_a_pod():
    cluster = Cluster()
    cluster.put(StorageClass(uid="local", name="local", waits=True))
    cluster.put(Volume(uid="v", name="v", phase="Available", storage_class="local", size=2 * GIB))
    cluster.claim("a", storage_class="local")
    cluster.claim("b", storage_class="local")
    cluster.wants("a", "b")
    assert "2 node(s) didn't find available persistent volumes to bind" in message(decided(cluster))


def test_a_driver_that_tells_its_space_is_believed():
    cluster = Cluster()
    cluster.put(CsiDriver(uid="d", name="csi.example", tells_capacity=True))
    for host, size in (("n0", GIB), ("n1", 4 * GIB)):
        nodes = {"matchLabels": {"host": host}}
        cluster.put(
            StorageCapacity(
                uid=host, namespace="ns", name=host, storage_class="disk", size=size, nodes=nodes
            )
        )
    cluster.claim("data", size=2 * GIB)
    cluster.wants("data")
    assert places(decided(cluster)) == {"g-0": "n1"}


def storage_of(cluster, size):
    cluster.put(CsiDriver(uid="d", name="csi.example", tells_capacity=True))
    cluster.put(
        StorageCapacity(
            uid="c",
            namespace="ns",
            name="c",
            storage_class="disk",
            size=size,
            nodes={"matchLabels": {"host": "n0"}},
        )
    )


def test_claims_of_one_cycle_share_the_space():
    cluster = Cluster()
    storage_of(cluster, 3 * GIB)
    cluster.claim("a", size=2 * GIB)
    cluster.claim("b", size=2 * GIB)
    cluster.wants("a", name="one")
    cluster.wants("b", name="two")
    decision = decided(cluster, CSI)
    assert places(decision) == {"one-0": "n0"}
    assert "did not have enough free storage for storageclass disk" in message(decision, "two")


def test_a_pod_waits_for_space_that_leaves_with_another():
    cluster = Cluster()
    storage_of(cluster, 3 * GIB)
    cluster.claim("old", size=2 * GIB, owners=(("Pod", "a-0", "a-0"),))
    cluster.claim("new", size=2 * GIB)
    leaving = TaskStatus.RELEASING
    cluster.group("a", "n0", spec=a_spec(1, claims=("old",)), status=leaving)
    cluster.wants("new")
    decision = decided(cluster, CSI)
    assert [(type(op).__name__, op.node) for op in decision.ops] == [("Pipeline", "n0")]


def test_config_maps_must_be_there():
    cluster = Cluster()
    cluster.put(ConfigMap(uid="m", namespace="ns", name="here"))
    cluster.put(ConfigMap(uid="o", namespace="other", name="gone"))
    cluster.wants(config_maps=("here", "gone"))
    cluster.wants(config_maps=("here",), name="fine")
    decision = decided(cluster)
    assert set(places(decision)) == {"fine-0"}
    assert "Missing required configmaps: [gone]" in message(decision)
