import io
import json
import zipfile

from kai_es.eventlog.memory import MemoryLog, MemoryStore
from kai_es.events.catalogue import OBJECTS, OBJECTS_INDEX
from kai_es.events.codec import pack
from kai_es.events.objects import ObjectSeen
from kai_es.kube.objects import PriorityClass, ShardConfig
from kai_es.ports.eventlog import Out
from kai_es.reader import View
from kai_es.runtime.pages import PluginPages
from kai_es.scheduler.config import Config, PluginOption
from kai_es.scheduler.snapshot_file import load_dump
from kai_es.snapshot.status import TaskStatus
from kai_es.snapshot.world import World as Folded
from tests.clocks import HastyClock
from tests.scheduler_world import World, a_spec

CONFIG = Config(plugins=(*Config().plugins, PluginOption(name="reflectjoborder")))


class Place:
    """A log with an index of objects, a view whose rows are those of a small world."""

    def __init__(self, config: Config = CONFIG) -> None:
        self.log = MemoryLog(store=MemoryStore())
        self.folded = Folded()
        self.rows = World()
        self.rows.snapshot = self.folded.snapshot
        self.folded.snapshot.set_config(
            ShardConfig(uid="c", name="default", settings=config.settings())
        )
        self.view = View(self.log, HastyClock(), self.folded)
        self.view.caught_up.set()
        self.pages = PluginPages(self.log, HastyClock(), self.view, "default", dict).pages()

    async def index(self, kind, name, **raw):
        metadata = {"name": name, "namespace": "ns", "uid": name, **raw.pop("metadata", {})}
        seen = ObjectSeen(
            kind=kind,
            uid=name,
            namespace="ns",
            name=name,
            rv=1,
            incarnation=1,
            object={"metadata": metadata, **raw},
        )
        envelope = pack(
            seen,
            topic=OBJECTS,
            record_id=f"{kind}/{name}",
            event_time=1,
            ingest_time=1,
            producer="p",
        )
        await self.append(Out(OBJECTS_INDEX, f"{kind}/{name}", None, envelope))

    async def append(self, record):
        epoch = await self.log.take_over("p")
        await self.log.append(epoch, [record])

    async def forget(self, kind, name):
        await self.append(Out(OBJECTS_INDEX, f"{kind}/{name}", None, None))

    async def get(self, path):
        return await self.pages[path]()


async def dump_of(place):
    page = await place.get("/get-snapshot")
    assert (page.status, page.content_type, page.filename) == (
        200,
        "application/zip",
        "snapshot.zip",
    )
    with zipfile.ZipFile(io.BytesIO(page.body)) as archive:
        assert archive.namelist() == ["snapshot.json"]
        return json.loads(archive.read("snapshot.json"))


async def test_a_snapshot_is_what_the_index_has_and_what_is_decided():
    place = Place()
    await place.index("Node", "n0")
    await place.index("Node", "n1", metadata={"labels": {"kai.scheduler/node-pool": "other"}})
    await place.index("Pod", "g-0", status={"phase": "Pending"})
    await place.index("Pod", "failed", status={"phase": "Failed"})
    await place.index("Pod", "gone", status={"phase": "Running"})
    await place.forget("Pod", "gone")
    place.rows.node("n0")
    place.rows.group("g", spec=a_spec())
    place.rows.pod("g-0", "g", "n0", spec=a_spec(), status=TaskStatus.BINDING)
    raw = (await dump_of(place))["rawObjects"]
    assert [node["metadata"]["name"] for node in raw["nodes"]] == ["n0"]
    assert [pod["metadata"]["name"] for pod in raw["pods"]] == ["g-0"]
    assert [
        (one["spec"]["podName"], one["spec"]["selectedNode"]) for one in raw["bindRequests"]
    ] == [("g-0", "n0")]


async def test_a_snapshot_has_the_configuration_of_its_shard():
    config = Config(max_consolidation_preemptees=5, queue_depth={"reclaim": 7}, node_pool_key="")
    loaded = load_dump(await dump_of(Place(config)))
    assert loaded.config == Config(
        max_consolidation_preemptees=5, queue_depth={"reclaim": 7}, node_pool_key="", withheld=()
    )


async def test_jobs_that_wait_are_told_in_order():
    place = Place()
    for name, value in (("high", 90), ("low", 10)):
        place.folded.snapshot.set_priority_class(
            PriorityClass(uid=name, name=name, value=value), rv=1
        )
    place.rows.queue("q")
    place.rows.queue("r", priority=200)
    place.rows.group("a", "", priority_class="low")
    place.rows.group("b", "", priority_class="high")
    place.rows.group("c", "", queue="r", priority_class="low")
    page = await place.get("/get-job-order")
    assert page.content_type == "application/json"
    assert json.loads(page.body) == {
        "global_order": [
            {"id": "c", "priority": 10},
            {"id": "b", "priority": 90},
            {"id": "a", "priority": 10},
        ],
        "queue_order": {
            "q": [{"id": "b", "priority": 90}, {"id": "a", "priority": 10}],
            "r": [{"id": "c", "priority": 10}],
        },
    }
    assert page.body.startswith(b'{\n  "global_order"')


async def test_a_plugin_that_is_not_enabled_is_not_found():
    place = Place(Config(plugins=()))
    assert (await place.get("/get-snapshot")).status == 404
    body = (await place.get("/get-job-order")).body
    assert body.startswith(
        b"plugin not found: reflectjoborder is not in the configuration of shard"
    )


async def test_there_is_no_order_before_the_log_is_read():
    place = Place()
    place.view.caught_up.clear()
    page = await place.get("/get-job-order")
    assert (page.status, page.body) == (503, b"Job order data not ready\n")
