"""Pods are where their volumes are, and drivers never promise more space than they have."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.events.decisions import Bind
from kai_es.kube.volumes import Claim, CsiDriver, StorageCapacity, StorageClass, Volume
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import decide
from kai_es.snapshot.status import TaskStatus
from tests.scheduler_world import World, a_spec

CONFIG = Config(node_pool_key="", withheld=(), schedule_csi_storage=True)
RUNS, LEAVES, WAITS = TaskStatus.RUNNING, TaskStatus.RELEASING, TaskStatus.PENDING

claims = st.lists(
    st.one_of(
        st.tuples(st.just("bound"), st.integers(0, 2)),  # to a volume of that node
        st.tuples(st.just("made"), st.integers(1, 4)),  # where the pod goes, of that size
    ),
    max_size=2,
)
pods = st.lists(
    st.tuples(claims, st.sampled_from([RUNS, LEAVES, WAITS, WAITS, WAITS]), st.integers(0, 2)),
    max_size=8,
)


class Cluster(World):
    """Three nodes, each with its own storage of a size; pods with claims."""

    def __init__(self, sizes, pods):
        super().__init__()
        self.queue("q")
        self.sizes = sizes
        self.put(StorageClass(uid="disk", name="disk", provisioner="csi.example", waits=True))
        self.put(CsiDriver(uid="d", name="csi.example", tells_capacity=True))
        for n, size in enumerate(sizes):
            self.node(f"n{n}", 4, labels={"host": f"n{n}"})
            self.put(
                StorageCapacity(
                    uid=f"c{n}",
                    namespace="ns",
                    name=f"c{n}",
                    storage_class="disk",
                    size=size,
                    nodes={"matchLabels": {"host": f"n{n}"}},
                )
            )
        self.home, self.made, self.taken = {}, {}, Counter()
        for number, (wanted, status, n) in enumerate(pods):
            self._pod(f"p{number}", wanted, status, n)

    def put(self, thing):
        self.snapshot.set_object(thing, rv=1)

    def _pod(self, name, wanted, status, n):
        names, node = [], "" if status is WAITS else f"n{n}"
        made = sum(size for kind, size in wanted if kind == "made")
        if node and self.taken[node] + made > self.sizes[n]:
            return  # it could not have come there
        self.taken[node] += made if node else 0
        self.made[name] = made
        for k, (kind, value) in enumerate(wanted):
            claim = f"{name}-{k}"
            names.append(claim)
            fields = {"uid": claim, "namespace": "ns", "name": claim, "storage_class": "disk"}
            if kind == "made":
                owners = (("Pod", f"{name}-0", f"{name}-0"),)
                self.put(Claim(phase="Pending", size=value, owners=owners, **fields))
                continue
            home = n if node else value
            self.home.setdefault(name, set()).add(f"n{home}")
            self.put(Claim(phase="Bound", bound=True, volume=claim, size=1, **fields))
            terms = [
                {"matchExpressions": [{"key": "host", "operator": "In", "values": [f"n{home}"]}]}
            ]
            self.put(Volume(uid=claim, name=claim, phase="Bound", size=1, node_terms=terms))
        spec = a_spec(0, claims=tuple(names))
        self.group(name, node, spec=spec, status=None if status is WAITS else status)


@settings(max_examples=80)
@given(st.lists(st.integers(0, 6), min_size=3, max_size=3), pods)
def test_volumes_decide_where_pods_go(sizes, pods):
    cluster = Cluster(sizes, pods)
    decision = decide(cluster.snapshot, CONFIG.shard("s"), cluster.inputs())
    taken = Counter(cluster.taken)  # those that leave have theirs until they are gone
    for op in decision.ops:
        name = op.pod.rpartition("-")[0]
        assert cluster.home.get(name, {op.node}) == {op.node}
        if isinstance(op, Bind):
            taken[op.node] += cluster.made[name]
    for n, size in enumerate(sizes):
        assert taken[f"n{n}"] <= size
