import msgspec

from kai_es.events.codec import encode, pack
from kai_es.events.objects import (
    Alive,
    KindAlive,
    Listed,
    ObjectDeleted,
    ObjectSeen,
    ParkedAction,
)
from kai_es.events.snapshot import (
    AliveSeen,
    KindListed,
    Parked,
    ParkingEnded,
    Removed,
    Upserted,
)
from projectors.objects import rows_of, undecodable_row


def seen(kind="Pod", **changes):
    record = ObjectSeen(
        kind=kind,
        uid="u",
        namespace="ns",
        name="p",
        rv=7,
        incarnation=1,
        object={"metadata": {"name": "p", "namespace": "ns", "uid": "u"}},
    )
    return msgspec.structs.replace(record, **changes)


def rows(record):
    return rows_of(record, partition=3, event_ms=99, source="objects/3/5")


def test_valid_version_is_upserted():
    (row,) = rows(seen())
    assert isinstance(row, Upserted)
    assert (row.rv, row.incarnation, row.obj.uid) == (7, 1, "u")


def test_invalid_version_is_parked_with_reason_and_lenient_read():
    broken = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {
            "nodeName": "n",
            "containers": [{"resources": {"requests": {"cpu": "-1", "memory": "5"}}}],
        },
        "status": {"phase": "Running"},
    }
    (row,) = rows(seen(object=broken))
    assert isinstance(row, Parked)
    assert "cpu is '-1'" in row.error
    assert (row.node, row.phase, row.requests) == ("n", "Running", {"memory": 5, "pods": 1})
    assert (row.kind, row.uid, row.rv, row.source) == ("Pod", "u", 7, "objects/3/5")


def test_unknown_kind_and_foreign_uid_are_parked():
    assert isinstance(rows(seen("Widget"))[0], Parked)
    (row,) = rows(seen(uid="other"))
    assert isinstance(row, Parked)
    assert "metadata.uid is 'u', want 'other'" in row.error


def test_delete_and_marks():
    deleted = ObjectDeleted(kind="Pod", uid="u", namespace="ns", name="p", rv=8, incarnation=1)
    assert rows(deleted) == (
        Removed(kind="Pod", uid="u", rv=8, incarnation=1, namespace="ns", name="p"),
    )
    assert rows(Listed(kind="Pod", rv=5, incarnation=1, served=False)) == (
        KindListed(partition=3, kind="Pod", rv=5, incarnation=1, served=False),
    )
    kinds = (KindAlive("Pod", 5, 50),)
    assert rows(Alive(incarnation=1, kinds=kinds)) == (
        AliveSeen(partition=3, incarnation=1, time=99, kinds=kinds),
    )


def test_operator_answers_to_a_parked_version():
    discard = ParkedAction(kind="Pod", uid="u", rv=7, incarnation=1, action="discard")
    assert rows(discard) == (ParkingEnded(kind="Pod", uid="u", rv=7, incarnation=1),)
    live = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}
    retry = msgspec.structs.replace(discard, action="retry", object=live)
    assert isinstance(rows(retry)[0], Upserted)
    still_bad = msgspec.structs.replace(retry, object={"metadata": {"name": "p", "uid": 5}})
    assert isinstance(rows(still_bad)[0], Parked)


def test_undecodable_record_is_parked_by_its_key():
    envelope = pack(
        seen(rv=9, object={"spec": {"nodeName": "n"}}),
        topic="objects",
        record_id="i",
        event_time=1,
        ingest_time=1,
        producer="t",
    )
    value = encode(envelope, "objects").replace(b'"incarnation":1', b'"incarnation":"x"')
    row = undecodable_row("Pod/u", value, error="bad", source="s")
    assert (row.kind, row.uid, row.rv, row.node, row.error) == ("Pod", "u", 9, "n", "bad")
    row = undecodable_row("Pod/u", b"\xff", error="bad", source="s")
    assert (row.kind, row.uid, row.rv) == ("Pod", "u", 0)
