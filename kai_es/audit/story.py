"""What happened to one pod or pod group, line by line."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kai_es.events.decisions import Bind, Cycle, Evict, Pipeline, Reason
from kai_es.events.requests import AttemptFailed, Bound, Evicted, Refused
from kai_es.events.snapshot import Batch, Parked, Removed
from kai_es.snapshot.reigns import Introduced
from kai_es.snapshot.status import TaskStatus
from kai_es.snapshot.world import World

LINES_MAX: Final = 10_000
"""A story longer than this is cut at its beginning."""


class Line(NamedTuple):
    """One thing that happened.

    time_ms, offset: of the batch that showed it.
    what:   created | pending | bind | bound | … : a stable word.
    text:   for people.
    until_ms, cycles: of a run of cycles with the same reasons; `time_ms` and 1 otherwise.
    """

    time_ms: int
    offset: int
    what: str
    text: str
    until_ms: int
    cycles: int = 1


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
        waits = [line for line in lines if line.what == "pending"]
        dominant = lines[-1].text if lines else "nothing is known of it"
        if waits and not self._gone and lines[-1].what == "pending":
            longest: dict[str, int] = {}
            for line in waits:
                longest[line.text] = longest.get(line.text, 0) + line.until_ms - line.time_ms
            dominant = max(sorted(longest), key=lambda text: longest[text])
        return Story(self.kind, self.namespace, self.name, self.uid, dominant, lines)

    def _say(self, what: str, text: str) -> None:
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
        status = f"{row.state.status.name} {row.state.node}".strip()
        if status != self._status:
            self._status = status
            what = row.state.status.name.lower().replace("_", "-")
            what = "waiting" if row.state.status is TaskStatus.PENDING else what
            on = f" on {row.state.node}" if row.state.node else ""
            self._say(what, f"{what}{on}")

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
                    on_behalf = f" for pod group {op.beneficiary}" if op.beneficiary else ""
                    self._say("evict", f"cycle {cycle.cycle}: {op.action} evicts {pod}{on_behalf}")
        held = world.reigns.reasons.get(cycle.shard, {}).get(self._group)
        if held is not None and (self.kind == "PodGroup" or self._status.startswith("PENDING")):
            self._waits(held)

    def _waits(self, held: Introduced) -> None:
        """Another cycle in which it waits: the same run if the reasons are the same."""
        text = "; ".join(reason_text(reason) for reason in held.reasons)
        for i in range(len(self.lines) - 1, -1, -1):
            line = self.lines[i]
            if line.what in ("bind", "evict", "deleted"):
                break
            if line.what == "pending":
                if line.text == text:
                    self.lines[i] = line._replace(until_ms=self._now, cycles=line.cycles + 1)
                    return
                break
        self.lines.append(Line(self._now, self._offset, "pending", text, self._now, cycles=1))

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


def reason_text(reason: Reason) -> str:
    """A reason in one line: its code and arguments."""
    args = ", ".join(f"{name}={value}" for name, value in sorted(reason.args.items()))
    count = f" ×{reason.count}" if reason.count else ""
    return f"{reason.code}{count}" + (f" ({args})" if args else "")
