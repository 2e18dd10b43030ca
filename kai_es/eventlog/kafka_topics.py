"""The log's topics on a broker: checked when there; when missing they are made, or it is told."""

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import for_code

from kai_es.eventlog.batch import MAX_MESSAGE_BYTES
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.events.catalogue import Topic
from kai_es.ports.errors import ConfigError, UnavailableError

_COMPACTION: Final[Mapping[str, str]] = {
    "segment.bytes": str(64 * 1024 * 1024),
    "max.compaction.lag.ms": str(3600 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
"""A new compacted topic is read whole by every restarted informer. Kafka's own defaults never
compact its last gigabyte, or its last week. Tuning only, so not checked."""

_UNKNOWN_TOPIC: Final = 3
_ALREADY_EXISTS: Final = 36
_LOOKS: Final = 20
_LOOK_AGAIN_S: Final = 0.1
_PREFIXES_SHOWN: Final = 5


class _JustMadeError(UnavailableError):
    """A topic has no configuration yet: its making is not finished everywhere."""


def provision(
    admin: KafkaAdminClient, settings: KafkaSettings, topics: Mapping[str, Topic]
) -> None:
    """Check the topics that are there and make those that are missing.

    A broker's answers may lag behind its topics by a moment, so a topic that "already exists" when
    it is to be made is checked then.

    Raises:
        UnavailableError: some differ from the catalogue; names each difference and the fix.
        KafkaError: the broker cannot be asked, or refuses.
    """
    wanted = {settings.topic(topic.name): topic for topic in topics.values()}
    missing = _check(admin, settings, wanted)
    if not missing:
        return
    unseen = _create(admin, settings, {name: wanted[name] for name in missing})
    admin.wait_for_topics(missing)
    for _ in range(_LOOKS):
        try:
            unseen = _check(admin, settings, {name: wanted[name] for name in unseen})
        except _JustMadeError as exc:
            trouble = str(exc)
        else:
            trouble = f"topics on {settings.bootstrap} are not to be seen yet: {', '.join(unseen)}"
        if not unseen:
            return
        time.sleep(_LOOK_AGAIN_S)
    raise UnavailableError(trouble)


def find(admin: KafkaAdminClient, settings: KafkaSettings, topics: Mapping[str, Topic]) -> None:
    """Check the topics; make none, for whoever only wants to use a log that is there.

    Raises:
        ConfigError: some are missing; names the prefixes that are there.
        UnavailableError, KafkaError: as `provision`.
    """
    missing = _check(
        admin, settings, {settings.topic(topic.name): topic for topic in topics.values()}
    )
    if not missing:
        return
    if len(missing) < len(topics):
        raise ConfigError(
            f"the log {settings.prefix!r} on {settings.bootstrap} lacks {', '.join(missing)}; the "
            f"next `kai-es run` that starts makes them"
        )
    there = _prefixes(admin.list_topics(), topics)
    more = ", …" if len(there) > _PREFIXES_SHOWN else ""
    raise ConfigError(
        f"there is no log with the prefix {settings.prefix!r} on {settings.bootstrap}; "
        f"prefixes there: {', '.join(there[:_PREFIXES_SHOWN]) + more or 'none'}"
    )


def _prefixes(names: Collection[str], topics: Mapping[str, Topic]) -> list[str]:
    """Those that all topics are there with."""
    found = [
        {name.removesuffix(f".{topic}") for name in names if name.endswith(f".{topic}")}
        for topic in topics
    ]
    return sorted(set.intersection(*found))


def _check(
    admin: KafkaAdminClient, settings: KafkaSettings, wanted: Mapping[str, Topic]
) -> list[str]:
    """Compare the topics that are there; the names of those that are not."""
    if not wanted:
        return []
    found = _describe(admin, list(wanted))
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in found]
    configs = admin.describe_configs(resources, config_filter="all").get("topic", {})
    new = sorted(name for name in found if not configs.get(name))
    if new:
        raise _JustMadeError(f"topics on {settings.bootstrap} are being made: {', '.join(new)}")
    wrong = [
        difference
        for name, partitions in found.items()
        for difference in _differences(name, wanted[name], partitions, configs[name])
    ]
    if wrong:
        raise UnavailableError(f"topics on {settings.bootstrap} differ: {'; '.join(wrong)}")
    return sorted(wanted.keys() - found.keys())


def _describe(admin: KafkaAdminClient, names: list[str]) -> dict[str, int]:
    """Partitions of the topics that are there."""
    found = {}
    for topic in admin.describe_topics(names):
        if topic["error_code"] == _UNKNOWN_TOPIC:
            continue
        if topic["error_code"]:
            raise for_code(topic["error_code"])(topic["name"])
        found[topic["name"]] = len(topic["partitions"])
    return found


def _create(
    admin: KafkaAdminClient, settings: KafkaSettings, topics: Mapping[str, Topic]
) -> list[str]:
    """Make topics; the names of those that were there although the broker did not show them."""
    created = admin.create_topics(
        {
            name: {
                "num_partitions": topic.partitions,
                "replication_factor": settings.replication,
                "configs": {**_configs(topic), **(_COMPACTION if topic.compacted else {})},
            }
            for name, topic in topics.items()
        },
        raise_errors=False,
    )
    for result in created["topics"]:
        if result["error_code"] not in (0, _ALREADY_EXISTS):  # another process was quicker
            raise for_code(result["error_code"])(f"{result['name']}: {result['error_message']}")
    return [result["name"] for result in created["topics"] if result["error_code"]]


def _configs(topic: Topic) -> dict[str, str]:
    configs = {
        "cleanup.policy": "compact" if topic.compacted else "delete",
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
    }
    if not topic.compacted:
        configs["retention.ms"] = str(topic.retention_ms)
    return configs


def _differences(
    name: str, topic: Topic, partitions: int, configs: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """What a person has to change; longer retention and larger limits are fine."""
    wrong = []
    if partitions != topic.partitions:
        wrong.append(
            f"{name} has {partitions} partitions, needed are {topic.partitions} (a change would "
            f"tear keys apart: use another prefix, or delete the topic while it is empty)"
        )
    for key, value in _configs(topic).items():
        actual = str(configs[key]["value"])
        if not _suffices(key, actual, value):
            wrong.append(f"{name} has {key}={actual}, needed is {value} (kafka-configs --alter)")
    return wrong


def _suffices(key: str, actual: str, wanted: str) -> bool:
    if key == "cleanup.policy":
        return actual == wanted
    kept_for_ever = key == "retention.ms" and actual == "-1"
    return kept_for_ever or (wanted != "-1" and int(actual) >= int(wanted))
