"""A process that leads: `python -m … BOOTSTRAP PREFIX SESSION_S ROLE HOLDER`."""

import asyncio
import sys

from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.kafka_lease import KafkaLeadership


async def main(bootstrap, prefix, session_s, role, holder):
    settings = KafkaSettings(bootstrap=bootstrap, prefix=prefix)
    lease = await KafkaLeadership(settings, session_s=float(session_s)).acquire(role, holder)
    print("leads", flush=True)
    await lease.lost()
    print("lost", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
