import pytest

from kai_es.eventlog.kafka_client import KafkaSettings
from tests.conformance.ports.logs import KafkaWorld, running
from tools.kafka import Broker


@pytest.fixture
def settings(kafka_bootstrap, kafka_prefix):
    return KafkaSettings(bootstrap=kafka_bootstrap, prefix=kafka_prefix)


@pytest.fixture
async def world(settings):
    async with running(KafkaWorld(settings)) as made:
        yield made


@pytest.fixture(scope="session")
def own_broker(tmp_path_factory):
    """A broker that tests may stop and damage, and leave running."""
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
async def own_world(own_broker, kafka_prefix):
    settings = KafkaSettings(bootstrap=own_broker.address, prefix=kafka_prefix, connect_s=3.0)
    async with running(KafkaWorld(settings)) as made:
        yield made
