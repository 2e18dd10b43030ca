"""A process that appends until it is killed: `python -m … FILE PRODUCER`.

Each append holds one record in each of two partitions and one index entry; its number goes to
stdout after it was acknowledged.
"""

import asyncio
import itertools
import sys
from pathlib import Path

from kai_es.eventlog.sqlite import SqliteLog
from tests.conformance.ports.logs import TOPICS, out


async def main(path, producer):
    log = SqliteLog(Path(path), topics=TOPICS)
    epoch = await log.take_over(producer)
    for n in itertools.count():
        await log.append(
            epoch,
            [
                out("decisions", producer, f"{producer}/{epoch.number}/{n}", partition=0),
                out("decisions", producer, f"{producer}/{epoch.number}/{n}", partition=1),
                out("index", producer, f"{producer}/{epoch.number}/{n}", size=2_000),
            ],
        )
        print(f"{epoch.number}/{n}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
