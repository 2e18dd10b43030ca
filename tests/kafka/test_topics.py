"""Topics are made as the catalogue says, and checked when they are there already."""

import asyncio
import dataclasses

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from kai_es.cli.main import main
from kai_es.eventlog.batch import MAX_MESSAGE_BYTES
from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_topics import find
from kai_es.events.catalogue import TOPICS as CATALOGUE
from kai_es.ports.errors import ConfigError, UnavailableError
from tests.conformance.ports.logs import TOPICS, a_record

pytestmark = pytest.mark.broker


@pytest.fixture
def admin(kafka_bootstrap):
    client = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    yield client
    client.close()


def configs_of(admin, name):
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    found = admin.describe_configs([resource], config_filter="all")["topic"][name]
    return {key: config["value"] for key, config in found.items()}


async def test_the_whole_catalogue_is_made(settings, admin):
    logs = [KafkaLog(settings), KafkaLog(settings)]
    for log in logs:  # the second finds them there
        await log.open()
        await log.close()
    topics = {
        topic["name"]: len(topic["partitions"])
        for topic in admin.describe_topics([settings.topic(name) for name in CATALOGUE])
    }
    assert topics == {settings.topic(t.name): t.partitions for t in CATALOGUE.values()}
    snapshot, index = (
        configs_of(admin, settings.topic(name)) for name in ("snapshot", "objects.index")
    )
    assert snapshot["cleanup.policy"] == "delete"
    assert snapshot["retention.ms"] == "-1"
    assert index["cleanup.policy"] == "compact"
    assert snapshot["max.message.bytes"] == index["max.message.bytes"] == str(MAX_MESSAGE_BYTES)


async def test_logs_that_open_at_once_make_the_topics_once(settings):
    logs = [KafkaLog(settings, topics=TOPICS) for _ in range(3)]
    await asyncio.gather(*(log.open() for log in logs))
    for n, log in enumerate(logs):
        assert await log.append_one("snapshot", "k", a_record("x")) == n
        await log.close()


@pytest.mark.parametrize(
    ("partitions", "configs", "words"),
    [
        (5, {}, "bindrequests has 5 partitions, needed are 3"),
        (3, {"cleanup.policy": "compact"}, "cleanup.policy=compact, needed is delete"),
        (3, {"retention.ms": "1000"}, "retention.ms=1000, needed is 604800000"),
        (3, {"max.message.bytes": "1000012"}, "max.message.bytes=1000012, needed is 16777216"),
    ],
)
async def test_a_topic_that_differs_is_named_until_it_is_mended(
    settings, admin, partitions, configs, words
):
    name = settings.topic("bindrequests")
    configs = {"max.message.bytes": str(MAX_MESSAGE_BYTES), **configs}
    admin.create_topics({name: {"num_partitions": partitions, "configs": configs}})
    log = KafkaLog(settings, topics=TOPICS)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=words) as told:
            await log.end("decisions")
        assert str(told.value).count("needed is") + str(told.value).count("needed are") == 1
    admin.delete_topics([name])
    async with asyncio.timeout(10):
        while True:  # the broker's own view of its topics follows a moment later
            try:
                assert await log.end("decisions") == {0: 0, 1: 0}
                break
            except UnavailableError:
                await asyncio.sleep(0.1)
    await log.close()


async def test_longer_retention_is_fine(settings, admin):
    configs = {"max.message.bytes": str(2 * MAX_MESSAGE_BYTES), "retention.ms": "-1"}
    admin.create_topics({settings.topic("decisions"): {"num_partitions": 2, "configs": configs}})
    log = KafkaLog(settings, topics=TOPICS)
    await log.open()
    await log.close()


async def test_what_only_looks_makes_no_topics(settings, admin):
    looking = KafkaLog(settings, prepare=find)
    with pytest.raises(ConfigError, match=f"no log with the prefix '{settings.prefix}'"):
        await looking.end("snapshot")
    assert not [name for name in admin.list_topics() if name.startswith(settings.prefix)]

    made = KafkaLog(settings)
    await made.append_one("snapshot", "k", a_record("x"))
    assert await looking.end("snapshot") == {0: 1}  # the log came meanwhile
    await made.close()
    await looking.close()

    admin.delete_topics([settings.topic("decisions")])
    async with asyncio.timeout(30):  # a broker's answers lag behind its topics
        while settings.topic("decisions") in admin.list_topics():
            await asyncio.sleep(0.1)
    looking = KafkaLog(settings, prepare=find)
    with pytest.raises(ConfigError, match=rf"lacks {settings.topic('decisions')};"):
        await looking.end("snapshot")
    await looking.close()


async def test_a_prefix_that_is_not_there_is_told_with_those_that_are(settings):
    made = KafkaLog(settings)
    await made.open()
    await made.close()
    other = KafkaLog(dataclasses.replace(settings, prefix="typo"), prepare=find)
    with pytest.raises(ConfigError) as caught:
        await other.open()
    await other.close()
    assert "'typo'" in str(caught.value)
    shown = str(caught.value).partition("prefixes there: ")[2]
    assert settings.prefix in shown or shown.endswith(", …")  # others share the broker


COMMANDS = [
    *(["log", "verify"], ["log", "tail"], ["log", "tail", "-f"], ["log", "export", "-o", "F"]),
    *(["replay", "--all"], ["explain", "pod", "x"], ["capture", "--cycle", "1", "-o", "F"]),
    *(["deadletter", word, "x"] for word in ("show", "retry", "discard")),
    *(["deadletter", "list"], ["rebuild", "usage"]),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_makes_a_log(command, settings, admin, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    where = ["--kafka", settings.bootstrap, "--prefix", settings.prefix]
    if command[0] == "rebuild":
        where += ["--database", "postgresql://nobody@127.0.0.1:1/none"]
    assert main([*command, *where]) == 2
    assert f"there is no log with the prefix '{settings.prefix}'" in capsys.readouterr().err
    assert not [name for name in admin.list_topics() if name.startswith(settings.prefix)]
    assert not list(tmp_path.iterdir())
