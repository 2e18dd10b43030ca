"""What clients may rely on of watches. Nothing here is specific to the simulated server."""

import itertools
import threading
import time

from kubernetes import watch

from tests.simulation.api_client import GROUPS, PODS, Api, a_group, a_pod, shown

MAPS = "/api/v1/namespaces/{ns}/configmaps"


def list_rv(api: Api, path: str) -> str:
    return api.ok("GET", path)["metadata"]["resourceVersion"]


def test_watch_shows_every_change_after_its_version(api: Api):
    rv = list_rv(api, PODS)
    api.pod("a")
    with api.watch(f"{PODS}?resourceVersion={rv}&timeoutSeconds=20") as events:
        assert shown(next(events)) == ("ADDED", "a")
        api.patch(PODS + "/a", {"metadata": {"labels": {"x": "y"}}})
        changed = next(events)
        assert shown(changed) == ("MODIFIED", "a")
        assert changed["object"]["kind"] == "Pod"
        assert changed["object"]["metadata"]["labels"] == {"x": "y"}
        api.ok("DELETE", PODS + "/a")
        seen = list(itertools.islice(events, 2))
        assert [shown(e) for e in seen] == [("MODIFIED", "a"), ("DELETED", "a")]
        versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in (changed, *seen)]
        assert versions == sorted(set(versions)), "also a delete has its own version"


def test_watch_without_version_begins_with_what_is_there(api: Api):
    api.pod("a")
    api.pod("b")
    for query in ("timeoutSeconds=20", "timeoutSeconds=20&resourceVersion=0"):
        with api.watch(f"{PODS}?{query}") as events:
            seen = {shown(e) for e in itertools.islice(events, 2)}
            assert seen == {("ADDED", "a"), ("ADDED", "b")}


def test_watch_through_the_typed_client(api: Api):
    api.pod("a")
    stream = watch.Watch().stream(
        api.core.list_namespaced_pod, api.namespace, timeout_seconds=20, resource_version="0"
    )
    event = next(stream)
    assert event["type"] == "ADDED"
    assert event["object"].metadata.name == "a"
    stream.close()


def test_watch_ends_after_its_timeout_with_a_bookmark(api: Api):
    """Real servers send bookmarks only if the kind has changed since the watch began."""
    rv = list_rv(api, PODS)
    start = time.monotonic()
    query = f"resourceVersion={rv}&timeoutSeconds=3&allowWatchBookmarks=true"
    with api.watch(f"{PODS}?{query}") as events:
        made = api.pod("a")
        seen = list(events)
    assert 2.0 < time.monotonic() - start < 8.0
    assert shown(seen[0]) == ("ADDED", "a")
    assert {e["type"] for e in seen[1:]} == {"BOOKMARK"}
    mark = seen[-1]["object"]
    assert int(mark["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    assert (mark["kind"], mark["apiVersion"]) == ("Pod", "v1")


def test_initial_events_end_with_a_marked_bookmark(api: Api):
    api.ok("POST", GROUPS, a_group("g"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with api.watch(f"{GROUPS}?{query}&timeoutSeconds=20") as events:
        assert shown(next(events)) == ("ADDED", "g")
        mark = next(events)
        assert mark["type"] == "BOOKMARK"
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        api.ok("DELETE", GROUPS + "/g")
        assert shown(next(events)) == ("DELETED", "g")


def test_initial_events_need_a_version_match(api: Api):
    assert api.fails(422, "GET", f"{PODS}?watch=true&sendInitialEvents=true")["reason"] == "Invalid"


def test_selected_watch_sees_objects_come_and_go(api: Api):
    rv = list_rv(api, PODS)
    query = f"resourceVersion={rv}&timeoutSeconds=20&labelSelector=l%3Dx"
    with api.watch(f"{PODS}?{query}") as events:
        api.ok("POST", PODS, a_pod("a", labels={"l": "y"}))
        api.patch(PODS + "/a", {"metadata": {"labels": {"l": "x"}}})
        came = next(events)
        assert shown(came) == ("ADDED", "a")
        api.patch(PODS + "/a", {"metadata": {"labels": {"l": "z"}}})
        left = next(events)
        assert shown(left) == ("DELETED", "a")
        assert left["object"]["metadata"]["labels"] == {"l": "x"}
        rv_left = left["object"]["metadata"]["resourceVersion"]
        assert rv_left == api.ok("GET", PODS + "/a")["metadata"]["resourceVersion"]
        api.patch(PODS + "/a", {"metadata": {"labels": {"l": "x"}}})
        assert shown(next(events)) == ("ADDED", "a")


def test_watch_by_node_sees_bound_pods_only(api: Api):
    rv = list_rv(api, PODS)
    query = f"resourceVersion={rv}&timeoutSeconds=20&fieldSelector=spec.nodeName%21%3D"
    with api.watch(f"{PODS}?{query}") as events:
        api.pod("free")
        api.bound_pod("bound")
        assert shown(next(events)) == ("ADDED", "bound")


def test_watch_of_another_namespace_sees_that_one_only(api: Api):
    other = f"other-{api.namespace}"
    api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    pods = f"/api/v1/namespaces/{other}/pods"
    rv = list_rv(api, PODS)
    with api.watch(f"{pods}?resourceVersion={rv}&timeoutSeconds=20") as events:
        api.pod("here")
        api.ok("POST", pods, a_pod("there"))
        assert shown(next(events)) == ("ADDED", "there")


def test_watch_at_a_compacted_version_is_an_error_event(api: Api):
    rv = list_rv(api, MAPS)
    for i in range(3):
        api.ok("POST", MAPS, {"metadata": {"name": f"m{i}"}})
    api.compact()
    with api.watch(f"{MAPS}?resourceVersion={rv}&timeoutSeconds=20") as events:
        seen = list(events)
    assert [e["type"] for e in seen] == ["ERROR"]
    status = seen[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


def test_running_watch_survives_a_compaction(api: Api):
    rv = list_rv(api, MAPS)
    with api.watch(f"{MAPS}?resourceVersion={rv}&timeoutSeconds=20") as events:
        api.ok("POST", MAPS, {"metadata": {"name": "a"}})
        assert shown(next(events)) == ("ADDED", "a")
        api.compact()
        api.ok("POST", MAPS, {"metadata": {"name": "b"}})
        assert shown(next(events)) == ("ADDED", "b")


def test_four_watchers_see_the_same_in_the_same_order(api: Api):
    rv = list_rv(api, MAPS)
    seen: dict[int, list[tuple[str, str]]] = {}
    ready = threading.Barrier(5)

    def follow(number: int) -> None:
        with api.watch(f"{MAPS}?resourceVersion={rv}&timeoutSeconds=20") as events:
            ready.wait()
            seen[number] = [
                (e["type"], e["object"]["metadata"]["resourceVersion"])
                for e in itertools.islice(events, 200)
            ]

    def write(prefix: str) -> None:
        for i in range(25):
            api.ok("POST", MAPS, {"metadata": {"name": f"{prefix}{i}"}})
            api.ok("DELETE", f"{MAPS}/{prefix}{i}")

    watchers = [threading.Thread(target=follow, args=(n,)) for n in range(4)]
    for thread in watchers:
        thread.start()
    ready.wait()
    writers = [threading.Thread(target=write, args=(p,)) for p in "wxyz"]
    for thread in writers:
        thread.start()
    for thread in (*writers, *watchers):
        thread.join(30)
    assert len(seen) == 4
    assert all(seen[n] == seen[0] for n in seen)
    versions = [int(rv) for _, rv in seen[0]]
    assert len(versions) == 200
    assert versions == sorted(set(versions))
