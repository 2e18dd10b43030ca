"""A pod group that failed in its pool is left alone until it is moved (scheduler-core §4.10)."""

import msgspec

from kai_es.kube.objects import Pod, PodGroup, PodSpec, SchedulingCondition
from kai_es.scheduler.columns.columns import Columns
from kai_es.scheduler.columns.lens import Lens
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus


def test_group_is_no_job_until_it_changes_its_pool():
    group = PodGroup(
        uid="g",
        namespace="ns",
        name="g",
        scheduling_backoff=1,
        scheduling_conditions=(SchedulingCondition(node_pool="default", transition_id="1"),),
    )
    snapshot = Snapshot()
    pod = Pod(uid="p", namespace="ns", name="p", group="g", spec=PodSpec(requests={"cpu": 1}))
    snapshot.set_pod(pod, rv=1, task=TaskState(status=TaskStatus.PENDING))
    snapshot.set_group(group, rv=1, state=GroupState())
    columns = Columns(snapshot, Lens(pool_key="pool"))
    columns.refresh(0)
    assert not columns.jobs

    elsewhere = (SchedulingCondition(node_pool="other", transition_id="2"),)
    moved = msgspec.structs.replace(group, scheduling_conditions=elsewhere)
    snapshot.set_group(moved, rv=2, state=GroupState())
    columns.refresh(0)
    assert list(columns.pending) == [("ns", "g")]
