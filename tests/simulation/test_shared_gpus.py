"""Pods on shared GPUs: reservation pods, config maps, labels, and every race about them.

Numbers of races are those of the reference's table (binder.md §13).
"""

import asyncio

import pytest

from kai_es.binder.reservation import reservation_name
from kai_es.binder.sharing import CONFIG_MAPS
from kai_es.events.catalogue import OBJECTS
from kai_es.events.codec import pack
from kai_es.events.objects import ObjectDeleted
from kai_es.events.requests import AttemptFailed, Bound, Refused
from kai_es.kube.labels import CLOSED_REQUEST, GPU_INDEX, RECEIVED_RESOURCE_TYPE, RESERVATION_APP
from kai_es.kube.parse_pod import parse_pod
from kai_es.ports.cluster import BIND_REQUESTS, PODS
from kai_es.ports.errors import DeniedError, GoneError, RefusedError, UnavailableError
from kai_es.ports.eventlog import Out
from kai_es.simulate.cluster_local import LocalCluster
from kai_es.simulate.faults import Fault
from tests.clocks import let_run
from tests.simulation.gpu_site import WHOLE, GpuSite

SINGLE = ("0a1b",)
GROUPS = ("0a1b", "2c3d")


@pytest.fixture
async def bare():
    """A node of eight GPUs whose kubelet does nothing."""
    site = GpuSite()
    await site.node()
    return site


@pytest.fixture
async def site(bare):
    async with bare.kubelet():
        yield bare


async def maps(site, name, container="0"):
    """Data of a pod's two config maps."""
    names = (f"{name}-maps-{container}", f"{name}-maps-{container}-evar")
    found = [await site.port.get(CONFIG_MAPS, "ns", one) for one in names]
    return [one.get("data") or {} for one in found]


async def has_no_maps(site, name):
    items, _ = await site.port.list(CONFIG_MAPS, "ns")
    return not [one for one in items if one["metadata"]["name"].startswith(f"{name}-maps")]


# -- what a bound pod has


async def test_bound_pod_names_its_devices(site):
    async with site.binding():
        pod = await site.bound("p", *GROUPS)
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["annotations"][RECEIVED_RESOURCE_TYPE] == "Fraction"
    # so that the shares are known when the request is not, as after a start without a history
    assert parse_pod(pod).gpu_groups == GROUPS
    assert set(await site.reservations()) == {reservation_name("n1", g) for g in GROUPS}


async def test_pod_reads_its_devices_from_its_config_maps(site):
    async with site.binding():
        await site.bound("p", *GROUPS)
    made = [await site.reservation(group) for group in GROUPS]
    ids = [pod["metadata"]["annotations"][GPU_INDEX] for pod in made]
    assert len(set(ids)) == 2
    portion = {"GPU_PORTION": "0.50", "RUNAI_NUM_OF_GPUS": "0.50"}
    assert await maps(site, "p") == [portion | {"NVIDIA_VISIBLE_DEVICES": ",".join(ids)}, {}]
    one = await site.port.get(CONFIG_MAPS, "ns", "p-maps-0")
    assert one["metadata"]["ownerReferences"][0]["name"] == "p"


async def test_pod_that_does_not_read_a_key_gets_its_devices_as_environment(site):
    async with site.binding():
        pod = await site.pod(
            "p", shares=False, metadata={"annotations": {"runai/shared-gpu-configmap": "p-maps"}}
        )
        assert isinstance(await site.final(await site.order(pod, *SINGLE)), Bound)
    capabilities, direct = await maps(site, "p")
    assert "NVIDIA_VISIBLE_DEVICES" not in capabilities
    assert direct["NVIDIA_VISIBLE_DEVICES"].startswith("GPU-")


async def test_devices_are_named_as_the_container_device_interface_does(site):
    plugins = '{"gpusharing": {"arguments": {"cdiEnabled": "true"}}}'
    async with site.binding(plugins=plugins):
        await site.bound("p", *GROUPS)
    devices = (await maps(site, "p"))[0]["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert all(one.startswith("k8s.device-plugin.nvidia.com/gpu=GPU-") for one in devices)


async def test_limit_of_memory_is_told_where_it_is_switched_on(site):
    async with site.binding(plugins='{"hamicore": {"enabled": true}}'):
        await site.bound("p", *SINGLE, gpu_portion=27)
    assert (await maps(site, "p"))[0]["CUDA_DEVICE_MEMORY_LIMIT"] == "22020m"


async def test_reservation_pod_is_as_the_reference_makes_it(site):
    taint = {"key": "gpu", "operator": "Exists", "effect": "NoExecute"}
    more = {"requests": {"cpu": "10m", "nvidia.com/gpu": "4"}}
    async with site.binding(runtime_class="nvidia", resources=more, service_account="sa"):
        pod = await site.pod("p", tolerations=[taint])
        await site.final(await site.order(pod, *SINGLE))
    made = await site.reservation("0a1b")
    meta, spec = made["metadata"], made["spec"]
    assert meta["labels"] == {"app": RESERVATION_APP, "runai-gpu-group": "0a1b"}
    assert meta["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert (spec["nodeName"], spec["runtimeClassName"]) == ("n1", "nvidia")
    assert taint in spec["tolerations"]
    (container,) = spec["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "10m", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }
    assert container["args"] == ["resource-reservation"]
    assert [one["name"] for one in container["env"]] == ["POD_NAME", "POD_NAMESPACE"]


async def test_scheduler_that_knows_reservation_pods_by_another_label_is_told(site):
    """It would count their GPUs twice, as pods of its own."""
    async with site.binding(app="mine"):
        request_id = await site.order(await site.pod("p"), *SINGLE, reservation_app="theirs")
        result = await site.final(request_id)
        assert result.code == "reservation-app"
        assert "app=theirs (informer)" in result.answer.message
        assert "--resource-reservation-app-label" in result.answer.message
        assert not await site.reservations()
        await site.bound("q", *SINGLE, reservation_app="mine")


# -- what a pod that is not bound has not


async def test_pod_whose_node_is_gone_names_none(site):
    async with site.binding():
        result = await site.final(await site.order(await site.pod("p"), *GROUPS, node="gone"))
    pod = await site.live("p")
    assert isinstance(result, Refused)
    assert parse_pod(pod).gpu_groups == ()
    assert pod["metadata"]["annotations"][CLOSED_REQUEST] == result.request_id


async def test_labels_go_when_a_request_has_expired(site):
    """As after a crash between labelling and binding."""
    labels = {f"runai-gpu-group/{group}": group for group in GROUPS} | {"app": "x"}
    pod = await site.pod("p", metadata={"labels": labels})
    async with site.binding():
        result = await site.final(await site.order(pod, *GROUPS, not_after_ms=1))
    assert isinstance(result, Refused)
    assert (await site.live("p"))["metadata"]["labels"] == {"app": "x"}


async def test_nothing_is_left_of_a_bind_that_is_denied(site):
    rule = Fault(action="error", code=403, verb="create", subresource="binding", message="never")
    site.api.faults.replace([rule], seed=0)
    async with site.binding():
        result = await site.final(await site.order(await site.pod("p"), *GROUPS))
        await site.none_reserved()
    assert isinstance(result, AttemptFailed)
    assert "never" in result.answer.message
    assert await has_no_maps(site, "p")
    assert parse_pod(await site.live("p")).gpu_groups == ()


async def test_pod_without_config_maps_fails_and_says_so(site):
    async with site.binding():
        pod = await site.pod("p", shares=False)
        result = await site.final(await site.order(pod, *SINGLE))
        await site.none_reserved()
    assert result.code == "gpusharing"
    assert result.answer.message == (
        "plugin gpusharing failed in PreBind: failed to create capabilities configmap: failed to "
        "get capabilities configmap name: no desired configmap name found in pod ns/p annotations"
    )


async def test_request_without_groups_is_invalid(site):
    """Race 21."""
    async with site.binding():
        result = await site.final(await site.order(await site.pod("p"), received="Fraction"))
    assert (result.code, result.final) == ("invalid", True)
    assert "no SelectedGPUGroups for fractional pod" in result.answer.message


# -- races


async def test_lost_answer_of_a_bind_takes_nothing_from_the_pod(site):
    """Race 2: what looks like a failure is looked at before anything is taken back."""
    rule = Fault(action="lose", verb="create", subresource="binding", times=1)
    site.api.faults.replace([rule], seed=0)
    async with site.binding():
        pod = await site.bound("p", *SINGLE)
    assert parse_pod(pod).gpu_groups == SINGLE
    assert await site.reservation("0a1b")
    assert (await maps(site, "p"))[0]["GPU_PORTION"] == "0.50"


async def test_pod_that_is_deleted_while_it_is_prepared_frees_its_device(bare):
    """Race 3."""
    async with bare.binding():
        request_id = await bare.order(await bare.pod("p"), *SINGLE)
        await bare.until(lambda: bare.reservation("0a1b"))
        await bare.delete("p")
        await bare.tell("0a1b")
        result = await bare.final(request_id)
        async with bare.kubelet():
            await bare.none_reserved()
    assert (type(result), result.code) == (Refused, "pod-gone")


async def test_pod_made_again_under_its_name_is_not_touched(site):
    """Race 4."""
    old = await site.pod("p")
    await site.delete("p")
    await site.pod("p")
    async with site.binding():
        result = await site.final(await site.order(old, *SINGLE))
        await site.none_reserved()
    assert result.code == "pod-gone"
    fresh = await site.live("p")
    assert "nodeName" not in fresh["spec"]
    assert parse_pod(fresh).gpu_groups == ()


async def test_two_pods_that_join_a_new_group_share_one_reservation(site):
    """Race 7, field case 33."""
    pods = [await site.pod(name) for name in "ab"]
    async with site.binding():
        ids = [await site.order(pod, *SINGLE) for pod in pods]
        assert {type(await site.final(one)) for one in ids} == {Bound}
    assert len(await site.reservations()) == 1
    first, second = [(await maps(site, name))[0] for name in "ab"]
    assert first["NVIDIA_VISIBLE_DEVICES"] == second["NVIDIA_VISIBLE_DEVICES"]


async def test_reservation_that_another_has_made_meanwhile_is_shared(bare):
    """Race 7: `AlreadyExists` is success."""

    class Late(LocalCluster):
        """The first look comes before the other's write is seen."""

        looked = False

        async def get(self, resource, namespace, name):
            if namespace == RESERVATION_APP and not self.looked:
                self.looked = True
                raise GoneError("none", status=404, reason="NotFound")
            return await super().get(resource, namespace, name)

    async with bare.binding():
        request_id = await bare.order(await bare.pod("a"), *SINGLE)
        await bare.tell("0a1b", "GPU-7")
        assert isinstance(await bare.final(request_id), Bound)
    async with bare.binding(Late(bare.api)):
        await bare.bound("b", *SINGLE)
    assert (await maps(bare, "b"))[0]["NVIDIA_VISIBLE_DEVICES"] == "GPU-7"
    assert len(await bare.reservations()) == 1


async def test_reservation_of_an_open_request_is_kept(bare):
    """Race 8, field case 32: its user does not name it yet; once the request has failed it goes."""
    async with bare.binding():
        request_id = await bare.order(await bare.pod("p"), *SINGLE)
        made = await bare.until(lambda: bare.reservation("0a1b"))
        other = await bare.final(
            await bare.order(await bare.pod("q", shares=False, gpus=1), **WHOLE)
        )
        assert isinstance(other, Bound)  # which looked at the node's reservations
        assert (await bare.reservation("0a1b"))["metadata"]["uid"] == made["metadata"]["uid"]
        await bare.delete("p")
        await bare.tell("0a1b")
        await bare.final(request_id)
        async with bare.kubelet():
            await bare.none_reserved()


async def test_reservation_is_kept_whose_user_was_bound_while_pods_were_listed(site):
    """Race 8: the list is older than the bind, and the request is over when it comes."""

    class Slow(LocalCluster):
        binds, may_bind, lists, go_on = (asyncio.Event() for _ in range(4))

        async def bind(self, namespace, pod, **rest):
            if pod == "p":
                Slow.binds.set()
                await Slow.may_bind.wait()
            return await super().bind(namespace, pod, **rest)

        async def list(self, resource, namespace="", *, labels="", fields=""):
            found = await super().list(resource, namespace, labels=labels, fields=fields)
            if fields and Slow.binds.is_set() and not Slow.may_bind.is_set():
                Slow.lists.set()
                await Slow.go_on.wait()
            return found

    async with asyncio.timeout(20), site.binding(Slow(site.api)):
        request_id = await site.order(await site.pod("p"), *SINGLE)
        await Slow.binds.wait()
        late = await site.order(await site.pod("q"), "0c2d", not_after_ms=0)
        await Slow.lists.wait()  # after a request that came to nothing the node is looked at
        Slow.may_bind.set()
        assert isinstance(await site.final(request_id), Bound)
        Slow.go_on.set()
        assert isinstance(await site.final(late), Refused)
        await let_run(0.05)
        assert await site.reservation("0a1b")


async def test_thirty_two_groups_at_once(site):
    """Field case 32: four nodes of eight GPUs, each group of its own, all survive."""
    for number in (2, 3, 4):
        await site.node(f"n{number}")
    places = [(f"n{1 + n % 4}", f"group-{n}") for n in range(32)]
    pods = [await site.pod(f"p{n}") for n in range(32)]
    async with site.binding():
        ids = [
            await site.order(pod, group, node=node)
            for pod, (node, group) in zip(pods, places, strict=True)
        ]
        assert {type(await site.final(one)) for one in ids} == {Bound}
        for node in site.nodes:  # a bind that looks at what is there
            one = await site.pod(f"cpu-{node}", shares=False)
            await site.final(await site.order(one, node=node, gpu_count=1))
    made = await site.reservations()
    assert set(made) == {reservation_name(*place) for place in places}
    told = [pod["metadata"]["annotations"][GPU_INDEX] for pod in made.values()]
    assert len(set(told)) == 32


async def test_stuck_reservation_blocks_nobody_else_and_ends(bare):
    """Races 9 and 10: nobody tells its GPU, and the first try to delete it fails."""
    rule = Fault(action="error", code=500, verb="delete", namespace=RESERVATION_APP, times=1)
    bare.api.faults.replace([rule], seed=0)
    async with bare.binding(timeout_s=1):
        stuck = [await bare.order(await bare.pod(name), *SINGLE) for name in "ab"]
        await bare.until(lambda: bare.reservation("0a1b"))
        for shares in (WHOLE, {}):
            pod = await bare.pod(f"c{len(shares)}", shares=False, gpus=0)
            assert isinstance(await bare.final(await bare.order(pod, **shares)), Bound)
        results = [await bare.final(one) for one in stuck]
    assert {result.code for result in results} == {"reservation-timeout"}
    name = reservation_name("n1", "0a1b")
    assert results[0].answer.message.endswith(
        "in gpu group 0a1b: failed waiting for GPU reservation pod to allocate: "
        f"{RESERVATION_APP}/{name}"
    )
    assert not await bare.reservations()


async def test_reservation_that_a_node_refuses_fails_at_once(site):
    await site.node("small", n_gpus=1)
    taken = await site.pod("taken", shares=False, gpus=1)
    async with site.binding():
        await site.final(await site.order(taken, node="small", **WHOLE))
        result = await site.final(await site.order(await site.pod("p"), *SINGLE, node="small"))
        await site.none_reserved()
    assert result.code == "reservation-refused"
    assert "Allocate failed" in result.answer.message


async def test_refused_reservation_that_is_cleared_away_first_fails_who_waits(bare):
    """Two that were refused cleared each other's away and made them again, for ever."""

    class Blind(LocalCluster):
        """Cannot see a reservation pod that has ended."""

        async def get(self, resource, namespace, name):
            pod = await super().get(resource, namespace, name)
            if pod["status"].get("phase") == "Failed":
                raise UnavailableError("away")
            return pod

    async with asyncio.timeout(20), bare.binding(Blind(bare.api)):
        request_id = await bare.order(await bare.pod("p"), *SINGLE)
        made = await bare.until(lambda: bare.reservation("0a1b"))
        await bare.patch(
            made, {"status": {"phase": "Failed", "message": "no room"}}, subresource="status"
        )
        await bare.order(await bare.pod("q"), "0c2d", not_after_ms=0)  # the node is looked at
        result = await bare.final(request_id)
    assert (result.code, "no room" in result.answer.message) == ("reservation-refused", True)


async def test_lost_reservation_takes_its_running_users_with_it(site):
    """Race 11: their GPU may be anybody's by now."""
    async with site.binding():
        for name in "ab":
            await site.bound(name, *SINGLE)
        await site.runs("a")
        await site.runs("b")
        await site.delete(reservation_name("n1", "0a1b"), RESERVATION_APP)
        await site.bound("c", *SINGLE)

        async def are_gone():
            items, _ = await site.port.list(PODS, "ns")
            return {one["metadata"]["name"] for one in items} <= {"c"}

        await site.until(are_gone)
    assert await site.reservation("0a1b")


async def test_reservation_that_has_ended_counts_as_lost(site):
    """Race 11, other than in the reference: it holds no GPU."""
    async with site.binding():
        await site.bound("a", *SINGLE)
        made = await site.reservation("0a1b")
        await site.patch(made, {"status": {"phase": "Failed"}}, subresource="status")
        await site.bound("b", *SINGLE)
    again = await site.reservation("0a1b")
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


async def test_another_binder_finishes_what_one_had_begun(bare):
    """Race 12."""
    async with bare.binding():
        request_id = await bare.order(await bare.pod("p"), *SINGLE)
        made = await bare.until(lambda: bare.reservation("0a1b"))
    await bare.tell("0a1b")
    async with bare.binding():
        assert isinstance(await bare.final(request_id), Bound)
    assert (await bare.reservation("0a1b"))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_another_binder_takes_back_what_one_had_begun(bare):
    """Race 12: it ended between preparing and binding, and the request has expired since."""
    rule = Fault(action="close", verb="create", subresource="binding")
    bare.api.faults.replace([rule], seed=0)
    async with bare.binding():
        request_id = await bare.order(await bare.pod("p"), *SINGLE)
        await bare.tell("0a1b")

        async def is_labelled():
            return parse_pod(await bare.live("p")).gpu_groups

        await bare.until(is_labelled)

        async def has_maps():
            return not await has_no_maps(bare, "p")

        await bare.until(has_maps)
    bare.world.clock.ms += 200_000
    async with bare.binding(), bare.kubelet():
        assert (await bare.final(request_id)).code == "expired"
        await bare.none_reserved()
    assert parse_pod(await bare.live("p")).gpu_groups == ()
    assert await has_no_maps(bare, "p")


@pytest.mark.parametrize("groups", [SINGLE, GROUPS])
async def test_reservations_of_pods_that_have_ended_go_before_their_gpus_are_used(site, groups):
    """Races 13 and 15, of one and of several devices: the next pod starts on a free GPU."""
    await site.node("small", n_gpus=len(groups))
    async with site.binding():
        await site.bound("p", *groups, node="small")
        await site.end("p")
        pod = await site.pod("q", shares=False, gpus=len(groups))
        result = await site.final(await site.order(pod, node="small", **WHOLE))
        assert isinstance(result, Bound)
        await site.runs("q")
        assert not await site.reservations()


async def test_reservation_stays_while_one_user_is_left(site):
    async with site.binding():
        await site.bound("a", *SINGLE)
        await site.bound("b", *SINGLE)
        await site.end("a")
        pod = await site.pod("q", shares=False, gpus=1)
        await site.final(await site.order(pod, **WHOLE))
        assert await site.reservation("0a1b")


async def test_nothing_is_reserved_while_the_cluster_scales_up(site):
    """Race 16."""
    waiting = await site.pod("placeholder", shares=False, space="kai-scale-adjust")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    await site.patch(waiting, {"status": {"conditions": [condition]}}, subresource="status")
    async with site.binding():
        result = await site.final(await site.order(await site.pod("p"), *SINGLE))
    assert result.code == "scaling-up"
    assert "cluster is scaling up, could not create reservation pod" in result.answer.message
    assert not await site.reservations()


class Unsaid(LocalCluster):
    """Does not say which bind requests there are, until `says` is set."""

    def __init__(self, api, exc):
        super().__init__(api)
        self.exc, self.says = exc, False

    async def list(self, resource, namespace="", **selectors):
        if resource == BIND_REQUESTS and not self.says:
            raise self.exc
        return await super().list(resource, namespace, **selectors)


@pytest.mark.parametrize(
    "exc",
    [
        DeniedError("add a rule", status=403, reason="Forbidden"),
        GoneError("too old", status=410, reason="Expired"),
        UnavailableError("overloaded", status=500, reason="InternalError"),
    ],
    ids=["403", "410", "500"],
)
async def test_reservation_is_kept_while_it_is_not_known_who_else_uses_it(site, exc):
    """Race 8 beside another scheduler: what is not said is not "nobody"."""
    async with site.binding():
        await site.bound("p", *SINGLE)
    await site.end("p")
    port = Unsaid(site.api, exc)
    async with site.working(port) as binder:

        async def is_told():
            return "n1 first, stay: open bind requests" in binder.trouble()

        await site.until(is_told)
        assert str(exc) in binder.trouble()
        other = await site.pod("q", shares=False, gpus=1)  # which looks at the node's reservations
        assert isinstance(await site.final(await site.order(other, **WHOLE)), Bound)
        assert await site.reservation("0a1b")
        port.says = True
        await site.none_reserved()

        async def is_well():
            return not binder.trouble()

        await site.until(is_well)


async def test_reservation_goes_as_soon_as_the_request_of_another_that_named_it_is_gone(site):
    """What an earlier look found must not count: the next pod would meet a GPU that is held."""

    class Known(LocalCluster):
        requests, n_asked = ({"spec": {"selectedGPUGroups": list(SINGLE)}},), 0

        async def list(self, resource, namespace="", **selectors):
            if resource == BIND_REQUESTS:
                Known.n_asked += 1
                return Known.requests, 1
            return await super().list(resource, namespace, **selectors)

    await site.node("small", n_gpus=1)
    async with site.binding():
        await site.bound("p", *SINGLE, node="small")
    await site.end("p")
    async with site.working(Known(site.api)):

        async def is_asked():
            return Known.n_asked

        await site.until(is_asked)
        assert await site.reservation("0a1b", "small")
        Known.requests = ()
        pod = await site.pod("q", shares=False, gpus=1)
        assert isinstance(await site.final(await site.order(pod, node="small", **WHOLE)), Bound)
        await site.runs("q")


async def test_node_whose_reservation_cannot_be_deleted_keeps_nobody_from_the_others(site):
    class Refusing(LocalCluster):
        """Some policy keeps the pod of n1."""

        async def delete(self, resource, namespace, name, **more):
            if name == reservation_name("n1", "0a1b"):
                raise RefusedError("policy", status=403, reason="Forbidden")
            return await super().delete(resource, namespace, name, **more)

    await site.node("n2")
    async with site.binding():
        await site.bound("p", *SINGLE)
        await site.bound("q", "0c2d", node="n2")
    await site.end("p")
    await site.end("q")
    async with site.working(Refusing(site.api)) as binder:

        async def is_one_left():
            return list(await site.reservations()) == [reservation_name("n1", "0a1b")]

        await site.until(is_one_left)
        assert "403 Forbidden: policy" in binder.trouble()


async def test_look_at_the_scaling_that_fails_stops_nothing(site):
    """Race 16: whether the cluster scales up is not known; the reservation is made."""

    class Denied(LocalCluster):
        async def list(self, resource, namespace="", **selectors):
            if namespace == "kai-scale-adjust":
                raise DeniedError("pods is forbidden", status=403, reason="Forbidden")
            return await super().list(resource, namespace, **selectors)

    async with site.binding(Denied(site.api)):
        await site.bound("p", *SINGLE)
    assert await site.reservation("0a1b")


async def test_mistake_in_a_plugin_fails_the_request_and_is_undone(site, monkeypatch):
    """Race 20: what was reserved before goes, and the binder works on."""

    async def broken(*_):
        raise KeyError("mistake")

    async with site.binding():
        with monkeypatch.context() as patched:
            patched.setattr("kai_es.binder.sharing.SharedGpus.prepare", broken)
            result = await site.final(await site.order(await site.pod("p"), *SINGLE))
        assert (type(result), result.code) == (AttemptFailed, "internal-error")
        assert "Internal Error: KeyError('mistake')" in result.answer.message
        await site.none_reserved()
        await site.bound("q", *SINGLE)


async def test_reservation_goes_with_a_user_that_ended_before_its_bind_was_told(site):
    """What is seen while the request is open counts when it is closed."""

    class Ends(LocalCluster):
        async def bind(self, namespace, pod, **more):
            answer = await super().bind(namespace, pod, **more)
            await site.end(pod)
            uid = (await site.live(pod))["metadata"]["uid"]
            gone = ObjectDeleted(
                kind="Pod", uid=uid, namespace=namespace, name=pod, rv=1, incarnation=1
            )
            times = {"event_time": 1, "ingest_time": 1}
            record = pack(gone, topic=OBJECTS, record_id="gone", producer="test", **times)
            await site.world.log.append(site.world.epoch, [Out(OBJECTS, f"Pod/{uid}", 0, record)])
            await asyncio.sleep(0.05)  # it is looked at, and spared
            return answer

    async with site.binding(Ends(site.api)):
        await site.bound("p", *SINGLE)
        await site.none_reserved()


async def test_delayed_delete_of_a_stopped_binder_fails(site):
    """Races 17 and 23: the next binder has changed the pod before it relies on it."""

    class Slow(LocalCluster):
        """Deletes are under way until `arrives`."""

        arrives, underway = asyncio.Event(), asyncio.Event()
        outcome = None

        async def delete(self, *args, **kwargs):
            self.underway.set()
            Slow.outcome = asyncio.ensure_future(self._later(*args, **kwargs))
            return await asyncio.shield(Slow.outcome)

        async def _later(self, *args, **kwargs):
            await self.arrives.wait()
            return await super().delete(*args, **kwargs)

    async with site.binding(Slow(site.api)):
        await site.bound("a", *SINGLE)
        made = await site.reservation("0a1b")
        await site.end("a")
        blocked = await site.pod("q", shares=False, gpus=1)
        await site.order(blocked, **WHOLE)
        await asyncio.wait_for(Slow.underway.wait(), 10)
    request_id = await site.order(await site.pod("b"), *SINGLE)
    async with site.binding():
        assert isinstance(await site.final(request_id), Bound)
        Slow.arrives.set()
        await asyncio.wait([Slow.outcome])
        assert Slow.outcome.exception().status == 409
        assert (await site.reservation("0a1b"))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_config_map_of_another_owner_becomes_the_pods(site):
    """Race 19."""
    left = {"uid": "other", "name": "p", "kind": "Pod", "apiVersion": "v1"}
    body = {"metadata": {"name": "p-maps-0", "ownerReferences": [left]}, "data": {"OLD": "1"}}
    await site.port.create(CONFIG_MAPS, "ns", body)
    async with site.binding():
        pod = await site.bound("p", *SINGLE)
    found = await site.port.get(CONFIG_MAPS, "ns", "p-maps-0")
    assert "OLD" not in found["data"]
    assert [one["uid"] for one in found["metadata"]["ownerReferences"]] == [pod["metadata"]["uid"]]


async def test_config_map_of_an_earlier_attempt_keeps_what_it_has(site):
    """Race 19; pods of old releases read another key."""
    pod = await site.pod("p")
    owner = {"uid": pod["metadata"]["uid"], "name": "p", "kind": "Pod", "apiVersion": "v1"}
    data = {"RUNAI-VISIBLE-DEVICES": "", "MINE": "1"}
    body = {"metadata": {"name": "p-maps-0", "ownerReferences": [owner]}, "data": data}
    await site.port.create(CONFIG_MAPS, "ns", body)
    async with site.binding():
        await site.final(await site.order(pod, *SINGLE))
    found, _ = await maps(site, "p")
    assert found["RUNAI-VISIBLE-DEVICES"] == found["NVIDIA_VISIBLE_DEVICES"] != ""
    assert found["MINE"] == "1"


async def test_reservations_that_were_left_behind_go_at_the_start(site):
    """Race 13: whatever was lost, a full look finds it."""
    async with site.binding():
        await site.bound("p", *SINGLE)
    await site.end("p")
    async with site.binding():
        await site.none_reserved()


async def test_reservation_of_an_old_release_is_shared_by_its_label(site):
    """Its name is another one; lookups go by label."""
    async with site.binding():
        await site.bound("a", *SINGLE)
    made = await site.reservation("0a1b")
    await site.delete(made["metadata"]["name"], RESERVATION_APP)
    meta = {
        "name": "gpu-reservation-n1-abcde",
        "labels": made["metadata"]["labels"],
        "annotations": {GPU_INDEX: "GPU-old"},
    }
    spec = {key: made["spec"][key] for key in ("nodeName", "containers")}
    await site.port.create(PODS, RESERVATION_APP, {"metadata": meta, "spec": spec})
    async with site.binding():
        await site.bound("b", *SINGLE)
        assert list(await site.reservations()) == ["gpu-reservation-n1-abcde"]
