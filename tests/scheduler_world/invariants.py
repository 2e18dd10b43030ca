"""What must be true of every decision, whatever the cluster. Returns what is not."""

from collections import Counter
from collections.abc import Iterator

from kai_es.events.decisions import Bind, CycleDecision, Evict, Pipeline
from kai_es.kube.labels import UNLIMITED
from kai_es.kube.objects import Node
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.columns.pod_terms import terms_of
from kai_es.scheduler.fairness.shares import quota_of
from kai_es.scheduler.flags import DISPLACED_COUNTS, LEAVING_PODS_STAY, PINNED_BY_ASKING
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_ACTIVE, IS_ALLOCATED
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.tree import Member, SubGroupSet, leaves_below
from kai_es.scheduler.solve.port_rule import clash
from kai_es.snapshot.snapshot import PodRow
from kai_es.snapshot.status import TaskStatus


def violations(session: Session, decision: CycleDecision) -> list[str]:
    """All broken invariants of a closed session."""
    return [
        *_nodes(session),
        *_queues(session),
        *_gangs(session, decision),
        *_ops(session, decision),
        *_evictions(session, decision),
        *_topologies(session),
        *_apart(session, decision),
    ]


def _nodes(session: Session) -> Iterator[str]:
    state, columns = session.nodes, session.nodes.columns
    names = session.columns.index.names
    # under compat some defects of the reference make its own books wrong
    is_exact = DISPLACED_COUNTS not in session.flags
    for n, facts in enumerate(columns.facts):
        for row, name in enumerate(names):
            idle, free = int(state.idle[row, n]), int(state.free[row, n])
            if is_exact and idle < min(0, int(columns.amounts[0, row, n])):
                yield f"node {facts.name}: {name} idle is {idle}"
            if is_exact and free < min(0, int(columns.amounts[1, row, n])):
                yield f"node {facts.name}: {name} idle and releasing is {free}"
        for group, device in state.devices[n].items():
            held = (device.allocated or 0) - device.releasing
            if held > facts.gpu_memory:
                yield f"node {facts.name}: device {group} holds {held} of {facts.gpu_memory} MiB"
    assert not session.journal, "a statement was left open"


def _queues(session: Session) -> Iterator[str]:
    queues, shares = session.columns.queues, session.shares
    assert shares is not None
    if DISPLACED_COUNTS in session.flags:
        return
    for row, queue in enumerate(queues.queues):
        quota = quota_of(queue)
        for r in range(3):
            was, now = queues.uses[row].allocated[r], shares.allocated[row][r]
            if quota.limit[r] < UNLIMITED and now > max(quota.limit[r], was):
                yield f"queue {queue.name}: resource {r} at {now}, limit {quota.limit[r]}"
            was, now = queues.uses[row].fixed[r], shares.fixed[row][r]
            if quota.deserved[r] < UNLIMITED and now > max(quota.deserved[r], was):
                yield f"queue {queue.name}: non-preemptible {r} at {now}, quota {quota.deserved[r]}"


def _gangs(session: Session, decision: CycleDecision) -> Iterator[str]:
    bound = Counter(op.group_uid for op in decision.ops if isinstance(op, Bind))
    for job in session.columns.jobs.values():
        if not bound[job.uid]:
            continue
        there = session.tally(Work(job), IS_ALLOCATED)
        needed = job.tree.root.needed
        full = sum(1 for leaf in job.tree.leaves if there[leaf.leaf] >= leaf.min_available)
        if all(member in job.tree.leaves for member in job.tree.root.members) and full < needed:
            minimum = [leaf.min_available for leaf in job.tree.leaves]
            yield f"job {job.name}: bound with {there} of {minimum}"


def _ops(session: Session, decision: CycleDecision) -> Iterator[str]:
    pods = session.columns.rows.pods
    kinds: dict[str, set[str]] = {}
    for op in decision.ops:
        kind = type(op).__name__
        before = kinds.setdefault(op.pod_uid, set())
        if kind in before or (before and before | {kind} != {"Evict", "Pipeline"}):
            yield f"pod {op.pod}: {kind} after {sorted(before)}"
        before.add(kind)
        status = pods[op.pod_uid].state.status
        is_moved = isinstance(op, Pipeline) and op.moved
        if not isinstance(op, Evict) and not is_moved and status is not TaskStatus.PENDING:
            yield f"pod {op.pod}: {kind} while {status.name}"
        if isinstance(op, Bind | Pipeline) and session.columns.nodes.row.get(op.node) is None:
            yield f"pod {op.pod}: on unknown node {op.node}"


def _topologies(session: Session) -> Iterator[str]:
    """Pods that must be together are, unless they were not before."""
    if PINNED_BY_ASKING in session.flags:
        return
    for job in session.columns.jobs.values():
        for member in _members(job.tree.root):
            constraint = member.topology
            tree = session.columns.topology(constraint.topology) if constraint else None
            if constraint is None or tree is None or constraint.required not in tree.levels:
                continue
            domain = tree.domain[tree.levels.index(constraint.required)]
            tasks = [task for leaf in leaves_below(member) for task in job.tasks[leaf.leaf]]
            row = session.nodes.columns.row
            before = {
                int(domain[row.get(session.row(task).state.node, NO_ROW)])
                for task in tasks
                if session.columns.status[task] in IS_ACTIVE
            }
            now = {
                int(domain[session.node_of(task)])
                for task in tasks
                if session.status[task] in IS_ACTIVE
            }
            if len(before) < 2 and len(now) > 1:
                names = sorted(tree.ids[d] for d in now)
                yield f"job {job.name}: {member.name or 'all'} in {names} of {constraint.required}"


def _apart(session: Session, decision: CycleDecision) -> Iterator[str]:
    """Whoever was given a place is apart from those it must be apart from, or they from it."""
    if LEAVING_PODS_STAY in session.flags:
        return
    bound = {op.pod_uid for op in decision.ops if isinstance(op, Bind)}
    placed = {op.pod_uid for op in decision.ops if isinstance(op, Bind | Pipeline)}
    facts, row_of = session.nodes.columns.facts, session.nodes.columns.row
    rows = [row for row in session.rows if row is not None]
    there = [
        (row, facts[n].node)
        for row in rows
        if session.status[row.row] in IS_ACTIVE
        if (n := session.node_of(row.row)) != NO_ROW
    ]
    leaving = [
        (row, facts[n].node)
        for row in rows
        if row.state.status is TaskStatus.RELEASING
        if (n := row_of.get(row.state.node, NO_ROW)) != NO_ROW
    ]
    for row, node in there:
        if row.pod.uid not in placed:
            continue
        for other, at in there + leaving if row.pod.uid in bound else there:
            if other is not row:
                yield from _clashes(session, (row, node), (other, at))


def _clashes(
    session: Session, one: tuple[PodRow, Node], other: tuple[PodRow, Node]
) -> Iterator[str]:
    names = f"{one[0].pod.name} and {other[0].pod.name}"
    for (row, node), (met, at) in ((one, other), (other, one)):
        for term in terms_of(row.shape.spec, row.pod.namespace).anti:
            pod, domain = met.pod, node.labels.get(term.key)
            if domain is not None and domain == at.labels.get(term.key):
                labels_of = session.columns.labels_of_space
                if term.pods.match(pod.namespace, pod.labels, labels_of):
                    yield f"pods {names} are both in {term.key} {domain}"
    ports = [row.shape.spec.host_ports for row, _ in (one, other)]
    if one[1] is other[1] and clash(*ports):
        yield f"pods {names} want one port of {one[1].name}"


def _members(member: Member) -> Iterator[Member]:
    yield member
    if isinstance(member, SubGroupSet):
        for child in member.members:
            yield from _members(child)


def _evictions(session: Session, decision: CycleDecision) -> Iterator[str]:
    pods = session.columns.rows.pods
    jobs = {job.uid: job for job in session.columns.jobs.values()}
    placed = {op.group_uid for op in decision.ops if not isinstance(op, Evict)}
    moved = {op.pod_uid for op in decision.ops if isinstance(op, Pipeline) and op.moved}
    for op in decision.ops:
        if not isinstance(op, Evict):
            continue
        row = pods[op.pod_uid]
        job = session.job(row.row)
        if int(row.state.status) not in IS_ACTIVE:
            yield f"pod {op.pod}: evicted while {row.state.status.name}"
        if op.action == "stalegangeviction":
            continue
        if not job.preemptible:
            yield f"pod {op.pod}: evicted by {op.action} though its job is not preemptible"
        taker = jobs[op.beneficiary]
        if taker.uid not in placed and op.pod_uid not in moved:
            yield f"pod {op.pod}: evicted for {taker.name}, which is not placed"
        if op.action == "preempt" and (job.queue, job.priority) >= (job.queue, taker.priority):
            yield f"pod {op.pod}: preempted by {taker.name} of no higher priority"
        if op.action == "preempt" and job.queue != taker.queue:
            yield f"pod {op.pod}: preempted across queues"
        is_direct = taker.uid not in session.ledger.displaced_by.values()
        if op.action == "reclaim" and job.queue == taker.queue and is_direct:
            yield f"pod {op.pod}: reclaimed inside its queue"
        if op.action == "consolidation" and session.node_of(row.row) == NO_ROW:
            yield f"pod {op.pod}: moved to nowhere"
