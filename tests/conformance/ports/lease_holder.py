"""A process that leads:
`python -m … (sqlite FILE | kafka BOOTSTRAP PREFIX) LEASE_S ROLE HOLDER`.
"""

import asyncio
import sys
from pathlib import Path

from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.kafka_lease import KafkaLeadership
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_lease import SqliteLeadership
from tests.conformance.ports.logs import TOPICS


def a_leadership(lease_s, kind, *where):
    if kind == "sqlite":
        return SqliteLeadership(SqliteLog(Path(where[0]), topics=TOPICS), lease_s=lease_s)
    settings = KafkaSettings(bootstrap=where[0], prefix=where[1])
    log = KafkaLog(settings, topics=TOPICS)
    return KafkaLeadership(settings, prepare=log.open, session_s=lease_s)


async def main(*args):
    *where, lease_s, role, holder = args
    lease = await a_leadership(float(lease_s), *where).acquire(role, holder)
    print("leads", flush=True)
    await lease.lost()
    print("lost", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
