"""What happened to one pod or pod group, line by line."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kai_es.events.decisions import Bind, Cycle, Evict, Pipeline, Reason
from kai_es.events.requests import AttemptFailed, Bound, Evicted, Refused
from kai_es.events.snapshot import Batch, Parked, ParkingEnded, Removed
from kai_es.kube.labels import DEFAULT_POD_SET, POD_GROUP_ANNOTATION, SUB_GROUP_LABEL
from kai_es.kube.objects import Pod, PodGroup
from kai_es.scheduler.jobs.tree import tree_error, tree_of
from kai_es.scheduler.reasons import codes
from kai_es.scheduler.reasons.plain import plain_lines, pod_lines
from kai_es.snapshot.reigns import Introduced
from kai_es.snapshot.snapshot import PodRow
from kai_es.snapshot.status import TaskStatus
from kai_es.snapshot.world import World

LINES_MAX: Final = 10_000
"""A story longer than this is cut at its beginning."""
ENDED: Final = (TaskStatus.SUCCEEDED, TaskStatus.FAILED)


class Line(NamedTuple):
    """One thing that happened.

    time_ms, offset: of the batch that showed it.
    what:   created | pending | bind | bound | … : a stable word.
    text:   for people.
    until_ms, cycles: of a run of cycles with the same reasons; `time_ms` and 1 otherwise. What
             differs only from node to node is told as it was last.
    codes:   of these reasons (`scheduler.reasons.codes`), dominant first.
    """

    time_ms: int
    offset: int
    what: str
    text: str
    until_ms: int
    cycles: int = 1
    codes: Sequence[str] = ()


class Story(NamedTuple):
    """What the log says of one uid.

    uid: the live one with the highest version, or the last one that was there.
    dominant: why it waited longest, or where it stands.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    dominant: str
    lines: Sequence[Line]


class Teller:
    """Collects the lines of one uid."""

    def __init__(self, kind: str, namespace: str, name: str, uid: str) -> None:
        self.kind = kind
        self.namespace = namespace
        self.name = name
        self.uid = uid
        self.lines: list[Line] = []
        self._status = ""
        self._group = ""
        self._gone = False
        self._run = -1
        self._key_of: dict[int, str] = {}
        self._now = 0
        self._offset = -1

    def tell(self, world: World, offset: int, batch: Batch) -> None:
        """Take in one batch, which is folded already."""
        self._now, self._offset = batch.time, offset
        if self.kind == "PodGroup":
            self._group = self.uid
        for row in batch.rows:
            match row:
                case Cycle():
                    self._cycle(row, world)
                case Bound() | Evicted() | AttemptFailed() | Refused():
                    self._result(row)
                case Parked() if row.uid == self.uid:
                    self._say("parked", f"a version cannot be read: {row.error}")
                case ParkingEnded() if row.uid == self.uid:
                    self._say("discarded", "the version that cannot be read was discarded by hand")
                case Removed() if row.uid == self.uid and not (self._status or self._gone):
                    self._gone = True  # no version of it could ever be read
                    self._say("deleted", "deleted")
                case _:
                    pass
        if self.kind == "Pod":
            self._pod(world)
        else:
            self._pod_group(world)

    def story(self) -> Story:
        """The lines, the dominant reason first."""
        lines = self.lines[-LINES_MAX:]
        cut = len(self.lines) - len(lines)
        waits = {key: self.lines[i] for i, key in self._key_of.items() if i >= cut}
        dominant = lines[-1].text if lines else "nothing is known of it"
        if waits and not self._gone and lines[-1].what == "pending":
            longest: dict[str, int] = {}
            for i, key in self._key_of.items():
                if i >= cut:
                    line = self.lines[i]
                    longest[key] = longest.get(key, 0) + line.until_ms - line.time_ms
            dominant = waits[max(sorted(longest), key=lambda key: longest[key])].text
        return Story(self.kind, self.namespace, self.name, self.uid, dominant, lines)

    def _say(self, what: str, text: str) -> None:
        if what in ("bind", "evict", "deleted"):
            self._run = -1
        self.lines.append(Line(self._now, self._offset, what, text, self._now))

    def _pod(self, world: World) -> None:
        row = world.snapshot.pods.get(self.uid)
        if row is None:
            if self._status and not self._gone:
                self._gone = True
                self._say("deleted", "deleted")
            return
        self._gone = False
        group = world.snapshot.groups.get((row.pod.namespace, row.pod.group))
        self._group = group.group.uid if group is not None else ""
        waits = row.state.status is TaskStatus.PENDING
        lacks = _lacks(row.pod, None if group is None else group.group, world) if waits else ""
        status = f"{row.state.status.name} {row.state.node}{lacks}".strip()
        if status != self._status:
            self._status = status
            what = "waiting" if waits else row.state.status.name.lower().replace("_", "-")
            on = f" on {row.state.node}" if row.state.node else ""
            self._say(what, f"{what}{on}{lacks}")

    def _pod_group(self, world: World) -> None:
        entry = world.objects.get("PodGroup", self.uid)
        if entry is None:
            if self._status and not self._gone:
                self._gone = True
                self._say("deleted", "deleted")
            return
        self._gone = False
        rows = world.snapshot.pods_of_group.get((self.namespace, self.name), {})
        counts: dict[str, int] = {}
        for row in rows.values():
            word = row.state.status.name.lower()
            counts[word] = counts.get(word, 0) + 1
        status = ", ".join(f"{n} {word}" for word, n in sorted(counts.items())) or "no pods"
        if status != self._status:
            self._status = status
            self._say("pods", status)

    def _cycle(self, cycle: Cycle, world: World) -> None:
        for op in cycle.decision.ops:
            if self.uid not in (op.pod_uid, op.group_uid):
                continue
            pod = f"{op.namespace}/{op.pod}"
            match op:
                case Bind():
                    self._say("bind", f"cycle {cycle.cycle}: {op.action} binds {pod} to {op.node}")
                case Pipeline():
                    self._say("pipeline", f"cycle {cycle.cycle}: {pod} waits for room on {op.node}")
                case Evict():
                    on_behalf = f" for {_group(world, op.beneficiary)}" if op.beneficiary else ""
                    self._say("evict", f"cycle {cycle.cycle}: {op.action} evicts {pod}{on_behalf}")
        held = world.reigns.reasons.get(cycle.shard, {}).get(self._group)
        if held is not None and (self.kind == "PodGroup" or self._status.startswith("PENDING")):
            self._waits(held, world)

    def _waits(self, held: Introduced, world: World) -> None:
        """Another cycle in which it waits: the same run if the reasons are the same."""
        key = "; ".join(_key(reason) for reason in held.reasons)
        text = self._why(held, world)
        if self._run >= 0 and self._key_of[self._run] == key:
            line = self.lines[self._run]
            cycles = line.cycles + 1
            self.lines[self._run] = line._replace(until_ms=self._now, cycles=cycles, text=text)
            return
        self._run = len(self.lines)
        self._key_of[self._run] = key
        found = tuple(reason.code for reason in held.reasons)
        self.lines.append(
            Line(self._now, self._offset, "pending", text, self._now, cycles=1, codes=found)
        )

    def _why(self, held: Introduced, world: World) -> str:
        """The reasons in sentences, behind the dominant one's code."""
        if self.kind == "Pod":
            said = pod_lines(held.reasons, f"{self.namespace}/{self.name}")
        else:
            said = plain_lines(held.reasons)
        if any(reason.code == codes.NOT_READY for reason in held.reasons):
            said += _ended(self._mates(world))
        text = " ".join(said)
        code = held.reasons[0].code if held.reasons else ""
        return text if text.startswith(code) else f"{code}: {text}"

    def _mates(self, world: World) -> Mapping[str, PodRow]:
        """The pods of its group."""
        name = self.name
        if self.kind == "Pod":
            row = world.snapshot.pods.get(self.uid)
            name = row.pod.group if row is not None else ""
        return world.snapshot.pods_of_group.get((self.namespace, name), {})

    def _result(self, row: Bound | Evicted | AttemptFailed | Refused) -> None:
        concerned = (row.pod_uid, row.group_uid if isinstance(row, AttemptFailed) else "")
        if self.uid not in concerned:
            return
        answer = row.answer.message if row.answer.message else ""
        detail = f": {answer}" if answer else ""
        match row:
            case Bound():
                self._say("bound", f"bound to {row.node}{detail}")
            case Evicted():
                self._say("evicted", f"evicted{detail}")
            case AttemptFailed():
                ending = "" if row.final else f" (attempt {row.attempt}, tried again)"
                self._say("failed", f"bind failed, {row.code}{detail}{ending}")
            case Refused():
                self._say("refused", f"refused, {row.code}{detail}")


def _lacks(pod: Pod, group: PodGroup | None, world: World) -> str:
    """Why no cycle tries a pod, "" = one does, and says more."""
    if not pod.group:
        return f": it names no pod group (annotation {POD_GROUP_ANNOTATION}), and waits for that"
    name = f"{pod.namespace}/{pod.group}"
    if group is not None:
        return _stranger(pod, group)
    mine = ("PodGroup", pod.namespace, pod.group)
    for row in world.parking.entries.values():
        if isinstance(row, Parked) and (row.kind, row.namespace, row.name) == mine:
            return f": its pod group {name} cannot be read, and it waits for that: {row.error}"
    return f": there is no pod group {name}, and it waits for that"


def _stranger(pod: Pod, group: PodGroup) -> str:
    """That a pod belongs to none of the sub-groups of its group."""
    known = tree_of(group).leaf_of
    named = pod.sub_group or DEFAULT_POD_SET
    if named in known:
        return ""
    fault = tree_error(group)
    why = f"its sub-groups are not used: {fault}" if fault else f"it has {', '.join(sorted(known))}"
    return (
        f": pod group {group.namespace}/{group.name} has no sub-group {named} (label "
        f"{SUB_GROUP_LABEL}) that takes pods, {why}"
    )


def _group(world: World, uid: str) -> str:
    """A pod group as people call it; one that is gone has only its uid."""
    entry = world.objects.get("PodGroup", uid)
    if entry is None or not isinstance(entry.obj, PodGroup):
        return f"pod group {uid}"
    return f"pod group {entry.obj.namespace}/{entry.obj.name}"


def _ended(pods: Mapping[str, PodRow]) -> list[str]:
    """What pods that have ended mean for a group that has too few."""
    n = sum(row.state.status in ENDED for row in pods.values())
    if not n:
        return []
    which = "1 of its pods has ended and does" if n == 1 else f"{n} of its pods have ended and do"
    return [
        f"{which} not count: the others wait until more are made, as too few are left to run "
        "together."
    ]


def _key(reason: Reason) -> str:
    """What makes it another reason."""
    args = ", ".join(f"{name}={value}" for name, value in sorted(reason.args.items()))
    return f"{reason.code} ×{reason.count} ({args})"
