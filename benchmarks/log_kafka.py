"""Shape `log-kafka`: as `log`, on a Kafka broker.

The broker of `KAI_ES_TEST_KAFKA`, or one of its own on loopback, which then shares the cores.
"""

import asyncio
import os
import tempfile
from pathlib import Path

from benchmarks.log import measure
from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from tools.kafka import Broker


async def _main(bootstrap: str) -> dict[str, object]:
    settings = KafkaSettings(bootstrap=bootstrap, prefix=f"bench-{os.getpid()}")
    log, other = KafkaLog(settings), KafkaLog(settings)
    try:
        return await measure(log, other)
    finally:
        await other.close()
        await log.close()


def run() -> dict[str, object]:
    """The Kafka log."""
    own = os.environ.get("KAI_ES_TEST_KAFKA")
    if own:
        return asyncio.run(_main(own))
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder) / "kafka")
        try:
            broker.start()
            return asyncio.run(_main(broker.address))
        finally:
            broker.close()
