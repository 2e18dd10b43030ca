"""A made-up cluster's life as rows per source partition: what any stream might interleave.

Within a partition the order is the one in which the source said it; rows of one uid are all in one
partition. Between partitions anything goes, as long as a result's or cycle's own order holds.
"""

import random

from kai_es.events.catalogue import partition_of
from kai_es.events.decisions import GroupMark, Reason
from kai_es.events.objects import KindAlive
from kai_es.events.snapshot import (
    AliveSeen,
    Batch,
    Cursor,
    KindListed,
    Origin,
    Parked,
    ParkingEnded,
)
from kai_es.kube.objects import kind_of
from tests.histories.builders import (
    T0,
    a_bind,
    a_cycle,
    a_group,
    a_node,
    a_pod,
    a_queue,
    a_reign,
    an_evict,
    bound,
    evicted,
    failed,
    gone,
    refused,
    seen,
)

OBJECT_PARTS = 4
RESULT_PARTS = 2
PARTS = (
    *(("bindresults", n) for n in range(RESULT_PARTS)),
    ("decisions", 0),
    *(("objects", n) for n in range(OBJECT_PARTS)),
)
KINDS = ("Node", "Pod", "PodGroup", "Queue")


class Life:
    """Writes a history of `n_steps` random events into `rows`, by source partition."""

    def __init__(self, seed, n_steps):
        self.random = random.Random(seed)
        self.rows = {part: [] for part in PARTS}
        self.rv = 0
        self.cycle = 0
        self.epoch = 0
        self.nodes, self.groups, self.pods = {}, {}, {}
        self.requests = []
        self.dead = set()
        self.reasons = {}
        for n in range(3):
            self._node(n)
        for name in ("q", "r"):
            self._say(a_queue(name))
        self._reign()
        steps = (
            [self._pod] * 6
            + [self._group] * 3
            + [self._decide] * 4
            + [self._move] * 6
            + [self._answer] * 6
            + [self._park, self._alive, self._reign, self._change_node, self._delete]
        )
        for _ in range(n_steps):
            self.random.choice(steps)()

    def _say(self, obj, *, delete=False):
        self.rv += 1
        row = gone(obj, rv=self.rv) if delete else seen(obj, rv=self.rv)
        self._put(kind_of(obj), obj.uid, row)

    def _put(self, kind, uid, row):
        part = partition_of(f"{kind}/{uid}", OBJECT_PARTS)
        self.rows["objects", part].append(row)

    def _decided(self, row):
        self.rows["decisions", 0].append(row)

    def _node(self, n):
        node = a_node(f"n{n}", gpus=self.random.choice((2, 4, 8)))
        self.nodes[node.uid] = node
        self._say(node)

    def _change_node(self):
        uid = self.random.choice(sorted(self.nodes))
        node = self.nodes[uid]
        if self.random.random() < 0.2 and len(self.nodes) > 1:
            del self.nodes[uid]
            self._say(node, delete=True)
            self._node(self.rv + 100)
        else:
            self.nodes[uid] = a_node(
                node.name, gpus=node.gpu_count, ready=self.random.random() < 0.5
            )
            self._say(self.nodes[uid])

    def _group(self):
        name = f"g{self.random.randrange(6)}"
        if name in self.dead:
            return  # uids do not come back
        generation = self.groups[name].generation + 1 if name in self.groups else 1
        group = a_group(name, queue=self.random.choice("qr"), generation=generation)
        self.groups[name] = group
        self._say(group)

    def _pod(self):
        name = f"p{self.rv}"
        group = f"g{self.random.randrange(6)}"
        stamp = None
        if group in self.groups and self.random.random() < 0.7:
            stamp = (self.groups[group].uid, self.groups[group].generation)
        pod = a_pod(name, group=group, stamp=stamp)
        self.pods[pod.uid] = pod
        self._say(pod)

    def _move(self):
        """A pod of ours goes on with its life: runs, ends, is asked to go."""
        placed = [uid for uid, pod in sorted(self.pods.items()) if pod.node]
        if not placed:
            return
        uid = self.random.choice(placed)
        pod = self.pods[uid]
        fields = {
            "group": pod.group,
            "node": pod.node,
            "phase": pod.phase,
            "deleted_ms": pod.deleted_ms,
        }
        ended = pod.phase in ("Succeeded", "Failed")
        match self.random.randrange(4):
            case 0 if not ended:
                fields["phase"] = "Running"
            case 1 if not ended:
                fields["phase"] = self.random.choice(("Succeeded", "Failed"))
            case 2 if not pod.deleted_ms:
                fields["deleted_ms"] = T0 + self.rv
            case _:
                fields["labels"] = {"v": str(self.rv)}
        if pod.group_uid:
            fields["stamp"] = (pod.group_uid, pod.group_generation)
        self.pods[uid] = a_pod(pod.name, **fields)
        self._say(self.pods[uid])

    def _delete(self):
        if self.pods and self.random.random() < 0.7:
            pod = self.pods.pop(self.random.choice(sorted(self.pods)))
            self._say(pod, delete=True)
        elif self.groups:
            group = self.groups.pop(self.random.choice(sorted(self.groups)))
            self.dead.add(group.name)
            self._say(group, delete=True)

    def _reign(self):
        self.epoch += 1
        self._decided(a_reign(self.epoch, self.cycle + 1))

    def _decide(self):
        self.cycle += 1
        busy = {request[1].uid for request in self.requests}
        free = [p for uid, p in sorted(self.pods.items()) if uid not in busy]
        ops = []
        for pod in self.random.sample(free, min(len(free), self.random.randrange(4))):
            node = self.random.choice(sorted(self.nodes.values(), key=lambda n: n.name))
            if not pod.node:
                ops.append(a_bind(pod, node, gpu_count=1, gpu_portion=100))
                self.requests.append((self.cycle, pod, node, "bind"))
            elif pod.phase == "Running":
                ops.append(an_evict(pod, node))
                self.requests.append((self.cycle, pod, node, "evict"))
        why = {f"group-g{n}": (Reason(code="over-limit", count=n),) for n in range(6)}
        keep = [uid for uid in sorted(self.reasons) if self.random.random() < 0.5]
        new = {uid: why[uid] for uid in sorted(set(why) - set(keep)) if self.random.random() < 0.5}
        same = {uid: self.reasons[uid] for uid in keep}
        self.reasons = same | dict.fromkeys(new, self.cycle)
        marks = tuple(
            GroupMark(group_uid=group.uid, last_start_ms=T0 + self.cycle)
            for group in sorted(self.groups.values(), key=lambda g: g.name)
            if self.random.random() < 0.2
        )
        self._decided(
            a_cycle(
                self.cycle,
                *ops,
                epoch=self.epoch,
                now_ms=T0 + self.cycle,
                same=same,
                reasons=new,
                marks=marks,
            )
        )

    def _answer(self):
        """The binder answers one request, perhaps twice, and the cluster shows it."""
        if not self.requests:
            return
        number, pod, node, kind = self.requests.pop(self.random.randrange(len(self.requests)))
        part = ("bindresults", self.random.randrange(RESULT_PARTS))
        if self.random.random() < 0.3:
            self.rows[part].append(failed(number, pod, final=False))
        choice = self.random.random()
        if choice < 0.2:
            result = failed(number, pod, attempt=2, code=self.random.choice(("volume", "network")))
        elif choice < 0.3:
            result = refused(number, pod, attempt=2)
        elif kind == "bind":
            result = bound(number, pod, node, attempt=2)
            if pod.uid in self.pods and self.random.random() < 0.9:
                stamp = (pod.group_uid, pod.group_generation) if pod.group_uid else None
                now = a_pod(pod.name, group=pod.group, node=node.name, stamp=stamp)
                self.pods[pod.uid] = now
                self._say(now)
        else:
            result = evicted(number, pod, attempt=2)
        self.rows[part].extend([result] * self.random.choice((1, 1, 2)))

    def _park(self):
        if not self.pods:
            return
        self.rv += 1
        uid = self.random.choice(sorted(self.pods))
        pod = self.pods[uid]
        parked = Parked(
            kind="Pod",
            uid=uid,
            rv=self.rv,
            incarnation=0,
            namespace=pod.namespace,
            name=pod.name,
            error="made up",
            node=pod.node,
            phase=pod.phase,
            requests=self.random.choice((pod.spec.requests, {})),
        )
        self._put("Pod", uid, parked)
        if self.random.random() < 0.3:
            end = ParkingEnded(kind="Pod", uid=uid, rv=self.rv, incarnation=0)
            self.rows["objects", 0].append(end)

    def _alive(self):
        for part in range(OBJECT_PARTS):
            kinds = tuple(KindAlive(kind, self.rv, T0 + self.rv) for kind in KINDS)
            alive = AliveSeen(partition=part, incarnation=0, time=T0 + self.rv, kinds=kinds)
            listed = KindListed(partition=part, kind="Node", rv=self.rv, incarnation=0)
            self.rows["objects", part] += [alive, listed]


def interleaved(rows, chooser):
    """All rows as (part, position, row), each partition in its order; `chooser` picks the next."""
    left = dict.fromkeys(PARTS, 0)
    out = []
    while True:
        open_parts = [part for part in PARTS if left[part] < len(rows[part])]
        if not open_parts:
            return out
        part = chooser.choice(open_parts)
        for _ in range(chooser.choice((1, 1, 2, 5))):
            if left[part] < len(rows[part]):
                out.append((part, left[part], rows[part][left[part]]))
                left[part] += 1


def batches(rows, chooser, *, step_ms=7):
    """One interleaving cut into batches that join: (offset, batch), offsets with gaps."""
    queue = interleaved(rows, chooser)
    cursors = dict.fromkeys(PARTS, 0)
    prev, offset, time = -1, -1, T0
    out = []
    while queue:
        n = chooser.randint(1, 12)
        taken, queue = queue[:n], queue[n:]
        stop = dict(cursors)
        origins = []
        for part, position, _ in taken:
            stop[part] = position + 1
            origins.append(Origin(PARTS.index(part), position, time))
        time += step_ms
        batch = Batch(
            prev=prev,
            time=time,
            cursors=tuple(Cursor(*part, cursors[part], stop[part]) for part in PARTS),
            rows=tuple(row for _, _, row in taken),
            origins=tuple(origins),
        )
        offset += chooser.choice((1, 1, 3))
        out.append((offset, batch))
        cursors, prev = stop, offset
    return out
