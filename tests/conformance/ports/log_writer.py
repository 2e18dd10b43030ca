"""A process that appends until it is killed: `python -m … (sqlite FILE | kafka BOOTSTRAP PREFIX)
PRODUCER`.

Each append holds one record in each of two partitions and one index entry; its number goes to
stdout after it was acknowledged.
"""

import asyncio
import itertools
import sys
from pathlib import Path

from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.sqlite import SqliteLog
from tests.conformance.ports.logs import TOPICS, out


def a_log(kind, *where):
    if kind == "sqlite":
        return SqliteLog(Path(where[0]), topics=TOPICS)
    return KafkaLog(KafkaSettings(bootstrap=where[0], prefix=where[1]), topics=TOPICS)


async def main(*args):
    *where, producer = args
    log = a_log(*where)
    epoch = await log.take_over(producer)
    for n in itertools.count():
        name = f"{producer}/{epoch.number}/{n}"
        await log.append(
            epoch,
            [
                out("decisions", producer, name, partition=0),
                out("decisions", producer, name, partition=1),
                out("index", producer, name, size=2_000),
            ],
        )
        print(name, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
