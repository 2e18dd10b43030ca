"""Reason trees to the reference's texts and to plain language."""

import pytest

from kai_es.events.decisions import Reason
from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.reasons import codes, fit, plain, render

GPU = GPU_MICRO
OVER = Reason(
    code="over-limit",
    args={
        "queue": "team-a",
        "resource": "gpu",
        "bound": 8 * GPU,
        "used": 6 * GPU,
        "requested": 4 * GPU,
        "missing": 2 * GPU,
    },
    fix="gpu of queue team-a +2000000",
)
NO_NODE = Reason(
    code="no-node-fits",
    parts=(
        Reason(code="not-enough", args={"resource": "gpu"}, count=2, fix="gpu of node n1 +1000000"),
        Reason(
            code="node-not-ready",
            args={"problems": "node is unschedulable, node has NotReady condition"},
            count=1,
        ),
        Reason(code="taint", args={"key": "k", "value": "v"}, count=1),
    ),
)
GANG = Reason(
    code="gang-not-placed", args={"pod": "ns/p", "placed": 5, "needed": 6}, parts=(NO_NODE,)
)


def test_limit():
    assert render.pod_group_message([OVER]) == (
        "OverLimit: team-a quota has reached the allowable limit of GPUs. Limit is 8 GPUs, "
        "currently 6 GPUs allocated and workload requested 4 GPUs."
    )
    assert plain.plain_lines([OVER]) == [
        "Queue team-a may use at most 8 GPUs; 6 GPUs are in use and this asks for 4 GPUs: 2 GPUs "
        "too many.",
        "It would fit with 2 GPUs more for queue team-a.",
    ]


def test_gang_with_nodes():
    assert render.task_message(NO_NODE, "ns/p") == (
        "no nodes with enough resources were found: 1 node has NotReady condition. \n"
        "1 node is unschedulable. \n"
        "1 node(s) had untolerated taint {k: v}. \n"
        "2 node(s) didn't have enough resources: GPUs."
    )
    assert render.pod_group_message([GANG]).startswith(
        "PodSchedulingErrors: Resources were found for 5 pods while 6 are required for gang "
        "scheduling. Additional pods cannot be scheduled due to: no nodes"
    )
    assert plain.plain_lines([GANG]) == [
        "All 6 pods must start together and 1 of them has no place; pod ns/p: no node fits: "
        "2 nodes: too little free GPUs; 1 node: not ready (node is unschedulable, node has "
        "NotReady condition); 1 node: a taint that the pod does not tolerate (k).",
        "It would fit on node n1 with 1 GPU more.",
    ]


def test_hopeless_job_has_the_text_of_the_filter_alone():
    cause = Reason(
        code="larger-than-any-node",
        args={
            "resource": "cpu",
            "most": 500,
            "pool": "default",
            "request": render.request_text({"cpu": 1000, "memory": 0, "pods": 1}, 0, {}),
        },
    )
    text = (
        "The pod n1/name1 requires GPU: 0, CPU: 1 (cores), memory: 0 (GB), pods: 1. Max CPU "
        "resources available in a single node in the default node-pool is topped at 0.5 cores"
    )
    hopeless = Reason(code="hopeless", args={"pod": "n1/name1"}, parts=(cause,))
    (error,) = render.job_errors([hopeless])
    assert error.messages == (f"Resources were not found for pod n1/name1 due to: {text}",)
    assert render.task_message(cause, "n1/name1") == (
        f"Scheduling conditions were not met for pod n1/name1:\nMaxNodePoolResources: {text}.\n"
    )


def test_largest_node_has_none_of_it():
    cause = Reason(
        code="larger-than-any-node",
        args={"resource": "gpu", "most": 0, "pool": "p", "request": "r"},
    )
    assert render.general_text(cause, "n/p") == (
        "The pod n/p requires r. No node in the p node-pool has GPU resources"
    )


def test_topology():
    reasons = [
        Reason(
            code="domain-pods",
            args={"domain": rack, "sub_group": "default", "room": 3, "needed": 4},
        )
        for rack in ("rack1", "rack2")
    ]
    reasons.append(
        Reason(
            code="topology-unsatisfied",
            args={
                "topology": "cluster-topology",
                "level": "k8s.io/rack",
                "job": "/pending_job0",
                "sub_group": "default",
            },
        )
    )
    assert render.pod_group_detailed(reasons) == (
        "\nUnable to schedule podgroup."
        "\n<rack1>: node-group rack1 can allocate only 3 of 4 required pods."
        "\n<rack2>: node-group rack2 can allocate only 3 of 4 required pods."
        "\ntopology cluster-topology, requirement k8s.io/rack couldn't be satisfied for job "
        "</pending_job0>."
    )


def test_preemption_delay():
    reason = Reason(
        code="preemption-delay", args={"delay_ms": 600_000, "until_ms": 1_782_900_600_000}
    )
    assert render.pod_group_message([reason]) == (
        "PreemptionDelayNotElapsed: Workload is within its preemption delay window (10m0s) and may "
        "not trigger evictions before 2026-07-01T10:10:00Z."
    )


def test_a_back_off_names_its_end():
    """The arguments are those that `framework.waiting` gives."""
    reason = Reason(
        code="bind-backoff",
        args={"code": "gpusharing", "until_ms": 1_782_900_600_000, "attempts": 3},
    )
    assert plain.plain_lines([reason]) == [
        "Binding failed 3 times (gpusharing); the next try is at 2026-07-01T10:10:00Z."
    ]


def test_reasons_that_the_reference_has_no_word_for_are_left_out_of_its_texts():
    assert render.pod_group_message([Reason(code="not-tried")]) == fit.NO_GROUP
    assert render.pod_group_message([]) == fit.NO_GROUP


def test_not_ready_message():
    part = Reason(
        code="too-few-pods", args={"sub_group": "default", "needed": 3, "exist": 2, "gated": 1}
    )
    reason = Reason(code="not-ready", parts=(part,))
    assert render.not_ready_message(reason) == (
        "Job is not ready for scheduling. Waiting for 3 pods, currently 2 exist, 1 are gated"
    )
    assert plain.plain(reason) == "Not enough pods exist yet: 2 of 3 pods, 1 of them gated."


ALL_CODES = sorted(
    value for name, value in vars(codes).items() if name.isupper() and isinstance(value, str)
)


@pytest.mark.parametrize("code", ALL_CODES)
def test_every_code_has_plain_words_and_a_row(code):
    assert code in (codes.__doc__ or "")
    assert code in plain._SENTENCES or code in plain._NODE_WORDS


def test_searches_for_victims_name_their_action():
    why = {"why": "over deserved, would disrupt a queue below deserved", "action": "reclaim"}
    assert plain.plain(Reason(code="victims-refused", args=why)) == (
        "Reclaim: no fair victims, over deserved, would disrupt a queue below deserved."
    )
    assert plain.plain(Reason(code="search-exhausted", args={"action": "preempt"})) == (
        "Preempt: no set of victims makes enough room."
    )


def test_unknown_code_shows_itself():
    assert plain.plain(Reason(code="new-thing", args={"b": 2, "a": 1})) == "new-thing (a=1, b=2)"
    node = Reason(code="no-node-fits", parts=(Reason(code="odd", count=3),))
    assert plain.plain(node) == "No node fits: 3 nodes: refused (odd)."
    assert render.task_message(node, "n/p") == fit.NO_NODE
