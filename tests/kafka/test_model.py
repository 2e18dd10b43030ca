"""Any sequence of uses leaves Kafka as the model says that memory and SQLite are held to."""

import itertools

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from kai_es.eventlog.kafka_client import KafkaSettings
from tests.conformance.ports.logs import KafkaWorld
from tests.property.test_eventlog_model import LogMachine


@pytest.mark.broker
def test_kafka_is_as_the_model_says(kafka_bootstrap, kafka_prefix):
    numbers = itertools.count()

    class KafkaMachine(LogMachine):
        late = True
        compacts_at_once = False

        def a_world(self):
            prefix = f"{kafka_prefix}-{next(numbers)}"
            return KafkaWorld(KafkaSettings(bootstrap=kafka_bootstrap, prefix=prefix))

    run_state_machine_as_test(
        KafkaMachine,
        settings=settings(
            max_examples=2,
            stateful_step_count=10,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
