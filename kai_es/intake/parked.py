"""An operator's answers to a parked version: retry with the live object, or discard it.

Both append a record to `objects`; nothing is taken away (architecture §3, Poison).
"""

from typing import Any, Final

from kai_es.events.catalogue import OBJECTS
from kai_es.events.codec import pack
from kai_es.events.objects import ParkedAction
from kai_es.events.snapshot import Parked
from kai_es.intake.kinds import SHARD_CONFIG, SOURCES
from kai_es.intake.noise import strip
from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.parse import parse
from kai_es.ports.clock import Clock
from kai_es.ports.cluster import ClusterWrites
from kai_es.ports.errors import GoneError
from kai_es.ports.eventlog import EventLog

RETRY: Final = "retry"
DISCARD: Final = "discard"

Raw = dict[str, Any]


class StillUnusableError(Exception):
    """The object that a retry would bring cannot be processed either; the text says why."""


async def live_object(cluster: ClusterWrites, parked: Parked) -> Raw:
    """The object as the API server has it now, without noise.

    Raises:
        StillUnusableError: it is gone, or another object has its name: the informers' own record
            of that supersedes the parked version by itself.
        UnavailableError, RefusedError: of the API server.
    """
    what = f"{parked.kind} {_name(parked)}"
    resource = {source.kind: source.resource for source in SOURCES}.get(parked.kind)
    if resource is None:
        where = "the configuration file" if parked.kind == SHARD_CONFIG else "its source"
        raise StillUnusableError(f"{what} is not read from the API server: mend {where}")
    try:
        raw = await cluster.get(resource, parked.namespace, parked.name)
    except GoneError as exc:
        raise StillUnusableError(
            f"{what} is gone from the API server: its delete will supersede the parked version"
        ) from exc
    uid = str(raw.get("metadata", {}).get("uid", ""))
    if uid != parked.uid:
        raise StillUnusableError(
            f"{what} is another object now (uid {uid}): the delete of {parked.uid} will supersede "
            "the parked version"
        )
    raw.setdefault("apiVersion", resource.api_version)
    return strip(parked.kind, raw)


async def retry(
    eventlog: EventLog, parked: Parked, raw: Raw, *, clock: Clock, producer: str
) -> None:
    """Append `raw` as the version that supersedes the parked one.

    Args:
        eventlog: that takes the record.
        parked: the version in question.
        raw: the live object, or the parked one once this release can process it.
        clock: dates the record.
        producer: who answers.

    Raises:
        StillUnusableError: it cannot be processed; nothing is appended.
        UnavailableError: the log does not take it.
    """
    try:
        parse(parked.kind, raw)
    except InvalidObjectError as exc:
        raise StillUnusableError(f"still cannot be processed: {exc}") from exc
    rv = max(parked.rv, _rv(raw))
    await _append(eventlog, parked, RETRY, rv, raw, clock=clock, producer=producer)


async def discard(eventlog: EventLog, parked: Parked, *, clock: Clock, producer: str) -> None:
    """Give the parked version up: the last valid one stays in force, its node opens.

    Raises:
        UnavailableError: the log does not take it.
    """
    await _append(eventlog, parked, DISCARD, parked.rv, None, clock=clock, producer=producer)


async def _append(
    eventlog: EventLog,
    parked: Parked,
    action: str,
    rv: int,
    raw: Raw | None,
    *,
    clock: Clock,
    producer: str,
) -> None:
    record = ParkedAction(
        kind=parked.kind,
        uid=parked.uid,
        rv=rv,
        incarnation=parked.incarnation,
        action=action,
        object=raw,
    )
    now_ms = clock.now_ms()
    envelope = pack(
        record,
        topic=OBJECTS,
        record_id=f"{parked.kind}/{parked.uid}/{parked.incarnation}.{rv}/{action}",
        event_time=now_ms,
        ingest_time=now_ms,
        producer=producer,
    )
    await eventlog.append_one(OBJECTS, f"Parked/{parked.uid}", envelope)


def _name(parked: Parked) -> str:
    return f"{parked.namespace}/{parked.name}" if parked.namespace else parked.name


def _rv(raw: Raw) -> int:
    metadata = raw.get("metadata")
    text = str(metadata.get("resourceVersion", "")) if isinstance(metadata, dict) else ""
    return int(text) if text.isdecimal() else 0
