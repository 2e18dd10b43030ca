import inspect

import pytest
from kafka import errors
from kafka.consumer.fetcher import RecordTooLargeError

from kai_es.eventlog.kafka_errors import _NAMES, MEANINGS, Meaning, mapped
from kai_es.ports.errors import CorruptLogError, FencedError, UnavailableError


def test_none_of_the_librarys_errors_is_missing_or_named_twice():
    named = [name for names in _NAMES.values() for name in names.split()]
    assert len(named) == len(MEANINGS)
    assert set(MEANINGS) == {
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.KafkaError)
    }
    assert set(Meaning) == set(MEANINGS.values())


def test_a_broker_that_is_not_there_is_what_is_wrong():
    error = errors.KafkaTimeoutError("Unable to bootstrap from ['h:1']")
    found = mapped(error, "provision topics on h:1")
    assert str(found).startswith("cannot reach the broker at h:1 to provision topics; is a broker")


@pytest.mark.parametrize(
    ("error", "port", "word"),
    [
        (errors.KafkaTimeoutError("x"), UnavailableError, "x"),
        (errors.KafkaStorageError(), UnavailableError, "disk"),
        (errors.SaslAuthenticationFailedError("no"), UnavailableError, "credentials"),
        (errors.InvalidTopicError("no"), UnavailableError, "settings"),
        (errors.ProducerFencedError(), FencedError, "ProducerFencedError"),
        (errors.CorruptRecordError("at 7"), CorruptLogError, "at 7"),
        (errors.IllegalStateError("no"), AssertionError, "fault of kai-es"),
        (RecordTooLargeError("by a parent class"), UnavailableError, "parent"),
        (ConnectionRefusedError(), UnavailableError, "ConnectionRefusedError"),
    ],
)
def test_an_error_says_what_was_done_and_what_to_do(error, port, word):
    found = mapped(error, "read a/1")
    assert type(found) is port
    assert "cannot read a/1" in str(found)
    assert word in str(found)
