import msgspec
import pytest

from kai_es.events import codec, objects, requests
from kai_es.events.catalogue import SCHEMAS
from kai_es.events.envelope import PoisonError

SEEN = objects.ObjectSeen(
    kind="Pod", uid="u", namespace="n", name="x", rv=7, incarnation=0, object={"b": 1, "a": 2}
)


def packed(record, topic):
    return codec.pack(
        record, topic=topic, record_id="id", event_time=1, ingest_time=2, producer="test"
    )


def test_objects_are_json_and_come_back():
    value = codec.encode(packed(SEEN, "objects"), "objects")
    assert value.startswith(b'{"schema":"object-seen"')
    assert codec.unpack(codec.decode(value)) == SEEN


def test_results_are_messagepack_and_come_back():
    record = requests.Refused(
        request_id="d/1/u", attempt=1, binder="b", pod_uid="u", code="expired"
    )
    value = codec.encode(packed(record, "bindresults"), "bindresults")
    assert not value.startswith(b"{")
    assert codec.unpack(codec.decode(value)) == record


def test_a_record_of_another_topic_is_our_bug():
    with pytest.raises(AssertionError):
        packed(SEEN, "bindresults")


@pytest.mark.parametrize("value", [b"", b"{", b"\x00", b'{"schema": 1}', b"\x93\x01\x02"])
def test_junk_is_poison(value):
    with pytest.raises(PoisonError):
        codec.decode(value)


def test_newer_min_reader_stops_with_the_fix():
    newer = msgspec.structs.replace(packed(SEEN, "objects"), min_reader=codec.READER + 1)
    with pytest.raises(PoisonError, match="upgrade kai-es"):
        codec.decode(codec.encode(newer, "objects"))


def test_unknown_fields_are_ignored():
    value = codec.encode(packed(SEEN, "objects"), "objects")
    value = value.replace(b'"kind":"Pod"', b'"kind":"Pod","new_field":[1]')
    assert codec.unpack(codec.decode(value)) == SEEN


def test_every_schema_names_an_existing_topic_and_version():
    for name, schema in SCHEMAS.items():
        assert schema.name == name
        assert schema.version >= schema.min_reader >= 1
        assert set(range(1, schema.version)) == set(schema.upcasters)
