"""`python -m tests.replay.make_records`: adds a record of each schema's version that has none yet.

The bytes are kept for ever: every later release must read them as they were meant.
"""

import asyncio
import json
from pathlib import Path

import msgspec

from kai_es.audit.export import ExportedLog
from kai_es.events import codec
from kai_es.events.catalogue import DECISIONS, OBJECTS, SCHEMAS, TOPICS
from kai_es.events.decisions import Gate, GateChange, Verdict
from kai_es.events.objects import ParkedAction
from tests.histories.builders import a_pod, refused

RECORDS = Path(__file__).parent / "versions" / "records.jsonl"
HISTORY = Path(__file__).parent / "versions" / "v1" / "log.kai"


def samples():
    """Records that the kept history has none of."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"}}
    retry = ParkedAction(kind="Pod", uid="u", rv=7, incarnation=1, action="retry", object=pod)
    gate = Gate(verdict=Verdict.NO_EVICT, reasons=("watch of Pod is 100 s old",))
    yield OBJECTS, retry
    yield DECISIONS, GateChange(shard="default", epoch=2, time=1, gate=gate)
    yield "bindresults", refused(4, a_pod())


async def all_records():
    for topic, record in samples():
        envelope = codec.pack(
            record, topic=topic, record_id="id", event_time=1, ingest_time=2, producer="test"
        )
        yield topic, codec.encode(envelope, topic)
    log = ExportedLog(HISTORY)
    for topic in TOPICS:
        for partition, begin in (await log.begin(topic)).items():
            async for chunk in log.read(topic, partition, begin, follow=False):
                for entry in chunk:
                    if entry.value is not None:
                        yield topic, entry.value


def kept():
    """The lines of the file."""
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def plain(record):
    """A record as JSON has it."""
    return json.loads(msgspec.json.encode(record, order="deterministic"))


async def main():
    lines = kept()
    have = {(line["schema"], line["version"]) for line in lines}
    async for topic, value in all_records():
        envelope = codec.decode(value)
        key = (envelope.schema, envelope.version)
        if key in have or envelope.version != SCHEMAS[envelope.schema].version:
            continue
        have.add(key)
        record = plain(codec.unpack(envelope))
        line = {"schema": key[0], "version": key[1], "topic": topic, "bytes": value.hex()}
        lines.append(line | {"record": record})
    lines.sort(key=lambda line: (line["schema"], line["version"]))
    RECORDS.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    asyncio.run(main())
