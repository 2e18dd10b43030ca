"""The tests' own broker answers."""

import pytest
from kafka import KafkaAdminClient

pytestmark = pytest.mark.broker


def test_the_broker_serves(kafka_bootstrap):
    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    assert admin.describe_cluster()["brokers"]
    admin.close()
