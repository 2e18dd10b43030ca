"""What clients may rely on of an API server. Nothing here is specific to the simulated one."""

import json
import threading
import time

import pytest
from kubernetes import client

from tests.simulation.api_client import (
    GROUPS,
    JSON_PATCH,
    MERGE_PATCH,
    PODS,
    STRATEGIC_PATCH,
    Api,
    a_binding,
    a_group,
    a_pod,
)

NODES = "/api/v1/nodes"
QUEUES = "/apis/scheduling.run.ai/v2/queues"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
MAPS = "/api/v1/namespaces/{ns}/configmaps"


# -- the unmodified typed client


def test_typed_client_creates_reads_lists_patches_and_deletes(api: Api):
    made = api.core.create_namespaced_pod(api.namespace, a_pod("a", labels={"app": "x"}))
    assert made.metadata.uid
    assert made.metadata.creation_timestamp
    assert made.status.phase == "Pending"
    patched = api.core.patch_namespaced_pod(
        "a", api.namespace, {"metadata": {"labels": {"b": "c"}}}
    )
    assert patched.metadata.labels == {"app": "x", "b": "c"}
    assert [p.metadata.name for p in api.core.list_namespaced_pod(api.namespace).items] == ["a"]
    api.core.delete_namespaced_pod("a", api.namespace)
    with pytest.raises(client.ApiException) as caught:
        api.core.read_namespaced_pod("a", api.namespace)
    assert caught.value.status == 404
    assert json.loads(caught.value.body)["details"] == {"name": "a", "kind": "pods"}


def test_typed_client_reads_version_and_discovery(api: Api):
    assert client.VersionApi(api.client).get_code().major == "1"
    groups = {g.name for g in client.ApisApi(api.client).get_api_versions().groups}
    assert {"scheduling.run.ai", "policy", "batch", "coordination.k8s.io"} <= groups
    names = {r.name for r in api.core.get_api_resources().resources}
    assert {"pods", "pods/status", "pods/binding", "pods/eviction", "nodes"} <= names


def test_custom_objects_client_works_on_custom_kinds(api: Api):
    custom = client.CustomObjectsApi(api.client)
    where = ("scheduling.run.ai", "v2alpha2", api.namespace, "podgroups")
    made = custom.create_namespaced_custom_object(*where, a_group("g"))
    assert made["metadata"]["generation"] == 1
    made["spec"]["minMember"] = 2
    made = custom.replace_namespaced_custom_object(*where, "g", made)
    assert made["metadata"]["generation"] == 2
    assert len(custom.list_namespaced_custom_object(*where)["items"]) == 1


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_needs_no_token(api: Api, path: str):
    assert api.call("GET", path, Authorization="") == (200, "ok")


def test_no_token_is_forbidden_and_a_wrong_one_unauthorized(api: Api):
    assert api.fails(403, "GET", PODS, Authorization="")["reason"] == "Forbidden"
    assert api.fails(401, "GET", PODS, Authorization="Bearer wrong")["reason"] == "Unauthorized"


def test_unknown_kinds_are_not_found(api: Api):
    for path in (
        "/api/v1/nothings",
        "/apis/no.such/v1/things",
        "/apis/scheduling.run.ai/v9/queues",
    ):
        assert api.call("GET", path)[0] == 404


# -- create


def test_create_needs_a_name(api: Api):
    answer = api.fails(422, "POST", PODS, a_pod(""))
    assert answer["reason"] == "Invalid"
    causes = answer["details"]["causes"]
    assert ("metadata.name", "FieldValueRequired") in {(c["field"], c["reason"]) for c in causes}


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "x" * 254])
def test_create_needs_a_well_formed_name(api: Api, name: str):
    assert api.fails(422, "POST", PODS, a_pod(name))["details"]["kind"] == "Pod"


def test_create_makes_up_a_name_from_a_prefix(api: Api):
    pod = a_pod("")
    pod["metadata"] = {"generateName": "job-"}
    names = {api.ok("POST", PODS, pod)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


def test_create_of_a_name_that_exists_is_refused(api: Api):
    api.pod("a")
    answer = api.fails(409, "POST", PODS, a_pod("a"))
    assert answer["reason"] == "AlreadyExists"
    assert answer["message"] == 'pods "a" already exists'


def test_create_ignores_what_the_server_owns(api: Api):
    group = a_group("g", uid="mine", creationTimestamp="2001-01-01T00:00:00Z", generation=7)
    group["status"] = {"phase": "Done"}
    made = api.ok("POST", GROUPS, group)
    assert made["metadata"]["uid"] != "mine"
    assert made["metadata"]["creationTimestamp"] > "2020"
    assert made["metadata"]["generation"] == 1
    assert "status" not in made


def test_create_with_a_resource_version_is_refused(api: Api):
    group = a_group("g", resourceVersion="5")
    assert api.call("POST", GROUPS, group)[0] in (400, 500)


def test_create_in_another_namespace_than_the_path_is_refused(api: Api):
    assert api.fails(400, "POST", GROUPS, a_group("g", namespace="else"))["reason"] == "BadRequest"


def test_create_of_another_kind_is_refused(api: Api):
    answer = api.fails(422, "POST", GROUPS, a_group("g") | {"kind": "Queue"})
    assert answer["details"]["causes"][0]["field"] == "kind"
    api.fails(400, "POST", GROUPS, a_group("g") | {"apiVersion": "scheduling.run.ai/v2"})
    api.fails(400, "POST", PODS, a_pod("a") | {"apiVersion": "v1", "kind": "Node"})


def test_create_of_something_that_is_not_json_is_refused(api: Api):
    assert api.fails(400, "POST", PODS, b"{")["reason"] == "BadRequest"


def test_body_of_more_than_the_limit_is_refused(api: Api):
    body = {"metadata": {"name": "m"}, "data": {"x": "y" * 3_200_000}}
    assert api.fails(413, "POST", MAPS, body)["reason"] == "RequestEntityTooLarge"


def test_dry_run_creates_nothing(api: Api):
    api.ok("POST", PODS + "?dryRun=All", a_pod("a"))
    api.fails(404, "GET", PODS + "/a")


def test_body_of_unknown_type_is_refused(api: Api):
    answer = api.fails(415, "PATCH", "/api/v1/namespaces/{ns}", b"x", Content_Type="text/plain")
    assert answer["reason"] == "UnsupportedMediaType"


def test_pod_gets_its_defaults(api: Api):
    spec = api.pod("a")["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["priority"] == 0
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert {t["key"] for t in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


def test_pod_gets_the_priority_of_its_class(api: Api):
    name = f"class-{api.namespace}"
    api.ok("POST", CLASSES, {"metadata": {"name": name}, "value": 75})
    deadline = time.monotonic() + 20
    while api.call("POST", PODS, a_pod("a", priorityClassName=name))[0] == 403:
        assert time.monotonic() < deadline, "the real server admits pods by a watch of its own"
        time.sleep(0.02)
    assert api.ok("GET", f"{PODS}/a")["spec"]["priority"] == 75
    answer = api.fails(403, "POST", PODS, a_pod("b", priorityClassName="no-such-class"))
    assert "no PriorityClass with name no-such-class was found" in answer["message"]
    answer = api.fails(422, "PATCH", f"{CLASSES}/{name}", {"value": 5}, Content_Type=MERGE_PATCH)
    assert answer["details"]["causes"][0]["field"] == "value"
    api.ok("DELETE", f"{CLASSES}/{name}")


def test_pod_needs_containers(api: Api):
    answer = api.fails(422, "POST", PODS, {"metadata": {"name": "a"}, "spec": {}})
    assert "spec.containers" in {c["field"] for c in answer["details"]["causes"]}


# -- update


def test_update_with_an_old_version_conflicts(api: Api):
    old = api.pod("a")
    api.patch(PODS + "/a", {"metadata": {"labels": {"x": "y"}}})
    answer = api.fails(409, "PUT", PODS + "/a", old)
    assert answer["reason"] == "Conflict"
    assert "the object has been modified" in answer["message"]


def test_update_without_a_version_is_for_built_in_kinds_only(api: Api):
    pod = api.pod("a")
    del pod["metadata"]["resourceVersion"]
    pod["metadata"]["labels"] = {"x": "y"}
    assert api.ok("PUT", PODS + "/a", pod)["metadata"]["labels"] == {"x": "y"}
    group = api.ok("POST", GROUPS, a_group("g"))
    del group["metadata"]["resourceVersion"]
    answer = api.fails(422, "PUT", GROUPS + "/g", group)
    assert answer["details"]["causes"][0]["field"] == "metadata.resourceVersion"


def test_update_with_another_uid_conflicts(api: Api):
    group = api.ok("POST", GROUPS, a_group("g"))
    group["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    assert api.fails(409, "PUT", GROUPS + "/g", group)["reason"] == "Conflict"


def test_patch_with_another_uid_is_invalid(api: Api):
    api.pod("a")
    patch = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "labels": {"x": "y"}}}
    answer = api.fails(422, "PATCH", PODS + "/a", patch, Content_Type=MERGE_PATCH)
    assert answer["details"]["causes"][0]["field"] == "metadata.uid"
    patch["metadata"]["resourceVersion"] = "1"
    api.fails(409, "PATCH", PODS + "/a", patch, Content_Type=MERGE_PATCH)


def test_patch_with_an_old_version_conflicts(api: Api):
    old = api.pod("a")["metadata"]["resourceVersion"]
    api.patch(PODS + "/a", {"metadata": {"labels": {"x": "y"}}})
    patch = {"metadata": {"resourceVersion": old, "labels": {"x": "z"}}}
    assert api.fails(409, "PATCH", PODS + "/a", patch, Content_Type=MERGE_PATCH)["code"] == 409


def test_update_that_changes_nothing_writes_nothing(api: Api):
    group = api.ok("POST", GROUPS, a_group("g"))
    same = api.ok("PUT", GROUPS + "/g", group)
    assert same["metadata"]["resourceVersion"] == group["metadata"]["resourceVersion"]


def test_update_of_another_name_is_refused(api: Api):
    group = api.ok("POST", GROUPS, a_group("g"))
    group["metadata"]["name"] = "h"
    assert api.fails(400, "PUT", GROUPS + "/g", group)["reason"] == "BadRequest"


def test_status_is_changed_by_its_subresource_only(api: Api):
    group = api.ok("POST", GROUPS, a_group("g"))
    group["status"] = {"phase": "Running"}
    group["spec"]["minMember"] = 3
    group = api.ok("PUT", GROUPS + "/g", group)
    assert "status" not in group
    assert group["metadata"]["generation"] == 2
    group |= {"status": {"resourcesStatus": {}}}
    group["spec"]["minMember"] = 4
    group["metadata"]["labels"] = {"x": "y"}
    group = api.ok("PUT", GROUPS + "/g/status", group)
    assert group["status"] == {"resourcesStatus": {}}
    assert group["spec"]["minMember"] == 3
    assert group["metadata"]["generation"] == 2
    assert "labels" not in group["metadata"]


def test_status_of_a_pod_may_be_patched_with_its_metadata(api: Api):
    api.pod("a")
    patch = {"metadata": {"annotations": {"x": "y"}}, "status": {"phase": "Running"}}
    pod = api.patch(PODS + "/a/status", patch, STRATEGIC_PATCH)
    assert pod["status"]["phase"] == "Running"
    assert pod["metadata"]["annotations"] == {"x": "y"}


def test_node_of_a_pod_is_changed_by_binding_only(api: Api):
    api.bound_pod("a")
    patch = {"spec": {"nodeName": "else"}}
    answer = api.fails(422, "PATCH", PODS + "/a", patch, Content_Type=MERGE_PATCH)
    assert answer["reason"] == "Invalid"
    api.pod("b")
    api.fails(422, "PATCH", PODS + "/b", patch, Content_Type=MERGE_PATCH)


def test_scheduling_gates_may_be_taken_but_not_added(api: Api):
    pod = api.pod("a", schedulingGates=[{"name": "x"}, {"name": "y"}])
    api.patch(PODS + "/a", [{"op": "remove", "path": "/spec/schedulingGates/0"}], JSON_PATCH)
    pod = api.patch(PODS + "/a", {"spec": {"schedulingGates": None}})
    assert not pod["spec"].get("schedulingGates")
    patch = {"spec": {"schedulingGates": [{"name": "z"}]}}
    api.fails(422, "PATCH", PODS + "/a", patch, Content_Type=MERGE_PATCH)


# -- patch


def test_json_patch_operations(api: Api):
    api.ok("POST", MAPS, {"metadata": {"name": "m"}, "data": {"a": "1", "b": "2"}})
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "3"},
        {"op": "move", "from": "/data/b", "path": "/data/c"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/x~1y", "value": "z"},
        {"op": "copy", "from": "/data/a", "path": "/data/d"},
    ]
    operations.append({"op": "replace", "path": "/data/new", "value": "5"})
    got = api.patch(MAPS + "/m", operations, JSON_PATCH)
    assert got["data"] == {"a": "3", "c": "2", "d": "3", "new": "5"}
    assert got["metadata"]["annotations"] == {"x/y": "z"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "2"},
        {"op": "remove", "path": "/data/z"},
        {"op": "add", "path": "/nothing/here/x", "value": "1"},
        {"op": "explode", "path": "/data/a"},
    ],
)
def test_json_patch_that_does_not_apply_is_refused(api: Api, operation: object):
    api.ok("POST", MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    answer = api.fails(422, "PATCH", MAPS + "/m", [operation], Content_Type=JSON_PATCH)
    assert answer["reason"] == "Invalid"


def test_merge_patch_deletes_with_null_and_replaces_lists(api: Api):
    api.ok("POST", GROUPS, a_group("g", annotations={"a": "1", "b": "2"}, finalizers=["x/y"]))
    patch = {"metadata": {"annotations": {"a": None, "c": "3"}, "finalizers": None}}
    got = api.patch(GROUPS + "/g", patch)["metadata"]
    assert got["annotations"] == {"b": "2", "c": "3"}
    assert "finalizers" not in got


def test_strategic_patch_merges_lists_by_key(api: Api):
    api.pod("a")
    for condition in ({"type": "X", "status": "True"}, {"type": "Y", "status": "True"}):
        api.patch(PODS + "/a/status", {"status": {"conditions": [condition]}}, STRATEGIC_PATCH)
    patch = {"status": {"conditions": [{"type": "X", "status": "False", "reason": "R"}]}}
    got = api.patch(PODS + "/a/status", patch, STRATEGIC_PATCH)["status"]["conditions"]
    assert [(c["type"], c["status"]) for c in got] == [("Y", "True"), ("X", "False")]
    assert got[0]["lastTransitionTime"] is None, "new elements come first"
    patch = {"status": {"conditions": [{"type": "Y", "$patch": "delete"}]}}
    got = api.patch(PODS + "/a/status", patch, STRATEGIC_PATCH)["status"]["conditions"]
    assert [c["type"] for c in got] == ["X"]


def test_strategic_patch_of_a_custom_kind_is_refused(api: Api):
    api.ok("POST", GROUPS, a_group("g"))
    api.fails(415, "PATCH", GROUPS + "/g", {}, Content_Type=STRATEGIC_PATCH)


# -- binding


def test_binding_puts_the_pod_on_the_node(api: Api):
    api.pod("a")
    binding = a_binding("a", "no-such-node", annotations={"x": "y"}, labels={"l": "m"})
    status, answer = api.call("POST", PODS + "/a/binding", binding)
    assert (status, answer["status"]) == (201, "Success")
    pod = api.ok("GET", PODS + "/a")
    assert pod["spec"]["nodeName"] == "no-such-node"
    assert pod["metadata"]["annotations"]["x"] == "y"
    assert pod["metadata"]["labels"]["l"] == "m"
    conditions = {c["type"]: c["status"] for c in pod["status"]["conditions"]}
    assert conditions == {"PodScheduled": "True"}


def test_binding_through_the_typed_client(api: Api):
    api.pod("a")
    response = api.core.create_namespaced_pod_binding(
        "a", api.namespace, a_binding("a", "n"), _preload_content=False
    )
    assert response.status == 201


def test_second_binding_conflicts(api: Api):
    api.bound_pod("a")
    answer = api.fails(409, "POST", PODS + "/a/binding", a_binding("a", "node-2"))
    assert answer["reason"] == "Conflict"
    assert 'pod a is already assigned to node "node-1"' in answer["message"]


def test_binding_demands_uid_and_version(api: Api):
    pod = api.pod("a")
    uid, rv = pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]
    wrong = "00000000-0000-0000-0000-000000000000"
    api.fails(409, "POST", PODS + "/a/binding", a_binding("a", "n", uid=wrong))
    api.patch(PODS + "/a", {"metadata": {"labels": {"x": "y"}}})
    old = a_binding("a", "n", uid=uid, resourceVersion=rv)
    assert api.fails(409, "POST", PODS + "/a/binding", old)["reason"] == "Conflict"
    rv = api.ok("GET", PODS + "/a")["metadata"]["resourceVersion"]
    api.ok("POST", PODS + "/a/binding", a_binding("a", "n", uid=uid, resourceVersion=rv))


def test_binding_of_a_gated_pod_conflicts(api: Api):
    api.pod("a", schedulingGates=[{"name": "x"}])
    answer = api.fails(409, "POST", PODS + "/a/binding", a_binding("a", "n"))
    assert "schedulingGates" in answer["message"]


def test_binding_of_a_pod_that_is_not_there_is_not_found(api: Api):
    api.fails(404, "POST", PODS + "/a/binding", a_binding("a", "n"))


def test_binding_of_a_pod_that_is_going_conflicts(api: Api):
    pod = a_pod("a")
    pod["metadata"]["finalizers"] = ["kai.scheduler/test"]
    api.ok("POST", PODS, pod)
    api.ok("DELETE", PODS + "/a")
    api.fails(409, "POST", PODS + "/a/binding", a_binding("a", "n"))
    api.patch(PODS + "/a", {"metadata": {"finalizers": None}})
    api.fails(404, "GET", PODS + "/a")


# -- delete


def test_deleted_pod_stays_on_its_node_until_it_is_deleted_without_grace(api: Api):
    api.bound_pod("a", terminationGracePeriodSeconds=20)
    gone = api.ok("DELETE", PODS + "/a")
    assert gone["metadata"]["deletionGracePeriodSeconds"] == 20
    pod = api.ok("GET", PODS + "/a")
    assert pod["metadata"]["deletionTimestamp"] > pod["metadata"]["creationTimestamp"]
    api.ok("DELETE", PODS + "/a", {"gracePeriodSeconds": 40})
    assert api.ok("GET", PODS + "/a")["metadata"]["deletionGracePeriodSeconds"] == 20
    api.ok("DELETE", PODS + "/a", {"gracePeriodSeconds": 0})
    api.fails(404, "GET", PODS + "/a")


def test_deleted_pod_without_a_node_goes_at_once(api: Api):
    api.pod("a")
    api.ok("DELETE", PODS + "/a")
    api.fails(404, "GET", PODS + "/a")


def test_deleted_pod_that_has_ended_goes_at_once(api: Api):
    api.bound_pod("a")
    api.patch(PODS + "/a/status", {"status": {"phase": "Succeeded"}})
    api.ok("DELETE", PODS + "/a")
    api.fails(404, "GET", PODS + "/a")


def test_delete_demands_uid_and_version(api: Api):
    pod = api.pod("a")
    wrong = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    assert api.fails(409, "DELETE", PODS + "/a", wrong)["reason"] == "Conflict"
    conditions = {"uid": pod["metadata"]["uid"], "resourceVersion": "1"}
    api.fails(409, "DELETE", PODS + "/a", {"preconditions": conditions})
    conditions["resourceVersion"] = pod["metadata"]["resourceVersion"]
    api.ok("DELETE", PODS + "/a", {"preconditions": conditions})


def test_delete_of_a_custom_object_answers_with_a_status(api: Api):
    uid = api.ok("POST", GROUPS, a_group("g"))["metadata"]["uid"]
    answer = api.ok("DELETE", GROUPS + "/g")
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"]["uid"] == uid
    assert answer["details"]["group"] == "scheduling.run.ai"


def test_finalizers_hold_an_object_back(api: Api):
    api.ok("POST", GROUPS, a_group("g", finalizers=["kai.scheduler/test"]))
    gone = api.ok("DELETE", GROUPS + "/g")
    assert gone["metadata"]["deletionTimestamp"]
    patch = {"metadata": {"finalizers": ["kai.scheduler/test", "kai.scheduler/more"]}}
    api.fails(422, "PATCH", GROUPS + "/g", patch, Content_Type=MERGE_PATCH)
    api.patch(GROUPS + "/g", {"metadata": {"finalizers": []}})
    api.fails(404, "GET", GROUPS + "/g")


def test_delete_collection_takes_what_is_selected(api: Api):
    for name, value in (("a", "x"), ("b", "y"), ("c", "x")):
        api.ok("POST", GROUPS, a_group(name, labels={"l": value}))
    api.ok("DELETE", GROUPS + "?labelSelector=l%3Dx")
    assert [g["metadata"]["name"] for g in api.ok("GET", GROUPS)["items"]] == ["b"]


def test_namespace_stays_terminating_and_takes_nothing_new(api: Api):
    api.pod("free")
    api.bound_pod("bound")
    api.ok("DELETE", "/api/v1/namespaces/{ns}")
    got = api.ok("GET", "/api/v1/namespaces/{ns}")
    assert got["status"]["phase"] == "Terminating"
    assert api.fails(403, "POST", PODS, a_pod("a"))["reason"] == "Forbidden"
    api.fails(403, "POST", PODS + "/free/binding", a_binding("free", "n"))
    assert evict(api, "bound")[0] == 403
    api.patch(PODS + "/free", {"metadata": {"labels": {"x": "y"}}})
    api.ok("DELETE", PODS + "/free")


# -- eviction


def evict(api: Api, name: str, **options: object) -> tuple[int, object]:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return api.call("POST", f"{PODS}/{name}/eviction", body | {"deleteOptions": options})


def test_eviction_deletes_gracefully(api: Api):
    api.bound_pod("a")
    assert evict(api, "a")[0] == 201
    assert api.ok("GET", PODS + "/a")["metadata"]["deletionTimestamp"]


def test_eviction_demands_the_uid(api: Api):
    api.bound_pod("a")
    wrong = {"uid": "00000000-0000-0000-0000-000000000000"}
    assert evict(api, "a", preconditions=wrong)[0] == 409


def test_eviction_honours_a_disruption_budget(api: Api):
    for name in ("a", "b"):
        api.ok("POST", PODS, a_pod(name, labels={"app": "x"}))
        api.ok("POST", f"{PODS}/{name}/binding", a_binding(name, "n"))
        api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "x"}}}
    budget = api.ok("POST", BUDGETS, {"metadata": {"name": "pdb"}, "spec": spec})
    status, answer = evict(api, "a")
    assert (status, answer["reason"]) == (429, "TooManyRequests")
    assert "disruption budget" in answer["message"]
    # What a disruption controller would have written.
    allowed = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    allowed["observedGeneration"] = budget["metadata"]["generation"]
    api.patch(BUDGETS + "/pdb/status", {"status": allowed})
    assert evict(api, "a")[0] == 201


# -- lists


def names(answer: object) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


def test_items_of_built_in_kinds_carry_no_kind(api: Api):
    api.pod("a")
    api.ok("POST", GROUPS, a_group("g"))
    pods, groups = api.ok("GET", PODS), api.ok("GET", GROUPS)
    assert (pods["kind"], pods["apiVersion"]) == ("PodList", "v1")
    assert "kind" not in pods["items"][0]
    assert groups["items"][0]["kind"] == "PodGroup"
    assert api.ok("GET", PODS + "/a")["kind"] == "Pod"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=x", ["a", "b"]),
        ("app==x,tier=1", ["a"]),
        ("app!=x", ["c", "d"]),
        ("app in (x,y),tier", ["a", "c"]),
        ("app notin (x)", ["c", "d"]),
        ("!app", ["d"]),
        ("tier", ["a", "c"]),
    ],
)
def test_label_selectors(api: Api, selector: str, expected: list[str]):
    for name, labels in (
        ("a", {"app": "x", "tier": "1"}),
        ("b", {"app": "x"}),
        ("c", {"app": "y", "tier": "2"}),
        ("d", {}),
    ):
        api.ok("POST", PODS, a_pod(name, labels=labels))
    found = api.core.list_namespaced_pod(api.namespace, label_selector=selector).items
    assert [p.metadata.name for p in found] == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.name!=a", ["b", "c"]),
        ("spec.nodeName=node-1", ["a"]),
        ("spec.nodeName=", ["b", "c"]),
        ("spec.nodeName!=", ["a"]),
        ("spec.schedulerName=kai-scheduler", ["c"]),
        ("status.phase==Pending,spec.nodeName=node-1", ["a"]),
        ("status.phase=Running", []),
    ],
)
def test_field_selectors(api: Api, selector: str, expected: list[str]):
    api.bound_pod("a")
    api.pod("b")
    api.pod("c", schedulerName="kai-scheduler")
    found = api.core.list_namespaced_pod(api.namespace, field_selector=selector).items
    assert [p.metadata.name for p in found] == expected


def test_unknown_field_is_refused(api: Api):
    answer = api.fails(400, "GET", PODS + "?fieldSelector=spec.hostname%3Dx")
    assert "field label not supported" in answer["message"]


def test_pages_show_one_state(api: Api):
    for i in range(5):
        api.ok("POST", MAPS, {"metadata": {"name": f"m{i}"}})
    first = api.ok("GET", MAPS + "?limit=2")
    assert names(first) == ["m0", "m1"]
    api.ok("DELETE", MAPS + "/m3")
    api.ok("POST", MAPS, {"metadata": {"name": "m1a"}})
    api.patch(MAPS + "/m4", {"data": {"x": "y"}})
    second = api.ok("GET", MAPS + "?limit=2&continue=" + first["metadata"]["continue"])
    third = api.ok("GET", MAPS + "?limit=2&continue=" + second["metadata"]["continue"])
    assert names(second) == ["m2", "m3"]
    assert names(third) == ["m4"]
    assert "data" not in third["items"][0]
    versions = {p["metadata"]["resourceVersion"] for p in (first, second, third)}
    assert len(versions) == 1
    assert "continue" not in third["metadata"]
    assert first["metadata"]["remainingItemCount"] == 3


def test_expired_page_comes_with_a_fresh_token(api: Api):
    for i in range(4):
        api.ok("POST", MAPS, {"metadata": {"name": f"m{i}"}})
    token = api.ok("GET", MAPS + "?limit=2")["metadata"]["continue"]
    api.ok("POST", MAPS, {"metadata": {"name": "m9"}})
    api.compact()
    answer = api.fails(410, "GET", MAPS + "?limit=2&continue=" + token)
    assert answer["reason"] == "Expired"
    fresh = answer["metadata"]["continue"]
    assert names(api.ok("GET", MAPS + "?limit=9&continue=" + fresh)) == ["m2", "m3", "m9"]


def test_list_at_an_exact_version_shows_the_past_until_it_is_compacted(api: Api):
    api.ok("POST", MAPS, {"metadata": {"name": "a"}})
    rv = api.ok("GET", MAPS)["metadata"]["resourceVersion"]
    api.ok("POST", MAPS, {"metadata": {"name": "b"}})
    past = MAPS + f"?resourceVersion={rv}&resourceVersionMatch=Exact"
    assert names(api.ok("GET", past)) == ["a"]
    assert names(api.ok("GET", MAPS + f"?resourceVersion={rv}")) == ["a", "b"]
    api.compact()
    assert api.fails(410, "GET", past)["reason"] == "Expired"


def test_list_from_the_future_times_out(api: Api):
    answer = api.fails(504, "GET", MAPS + "?resourceVersion=999999999")
    assert answer["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


# -- custom kinds


def test_definition_makes_a_kind_known_until_it_is_deleted(api: Api):
    group = f"{api.namespace}.example.com"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        },
    }
    names = {"kind": "Widget", "plural": "widgets", "singular": "widget"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": spec,
    }
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    path = f"/apis/{group}/v1/namespaces/{{ns}}/widgets"
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}}
    assert api.call("POST", path, widget)[0] == 404
    api.ok("POST", definitions, definition)
    wait_for(lambda: api.call("GET", path)[0] == 200)
    api.ok("POST", path, widget | {"spec": {"size": 3}, "status": {"lost": True}})
    assert "status" not in api.ok("GET", path + "/w")
    assert api.patch(path + "/w/status", {"status": {"x": 1}})["status"] == {"x": 1}
    conditions = api.ok("GET", f"{definitions}/widgets.{group}")["status"]["conditions"]
    assert {c["type"]: c["status"] for c in conditions}["Established"] == "True"
    api.ok("DELETE", f"{definitions}/widgets.{group}")
    wait_for(lambda: api.call("GET", path)[0] == 404)


def wait_for(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# -- concurrency


def test_of_many_binders_one_wins(api: Api):
    api.pod("a")
    outcomes: list[int] = []

    def bind(node: str) -> None:
        outcomes.append(api.call("POST", PODS + "/a/binding", a_binding("a", node))[0])

    threads = [threading.Thread(target=bind, args=(f"node-{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [201] + [409] * 7


def test_counter_under_optimistic_concurrency_loses_nothing(api: Api):
    api.ok("POST", MAPS, {"metadata": {"name": "m"}, "data": {"n": "0"}})

    def count() -> None:
        for _ in range(10):
            while True:
                got = api.ok("GET", MAPS + "/m")
                got["data"]["n"] = str(int(got["data"]["n"]) + 1)
                if api.call("PUT", MAPS + "/m", got)[0] == 200:
                    break

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert api.ok("GET", MAPS + "/m")["data"]["n"] == "40"
