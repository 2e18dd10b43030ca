from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from kai_es.eventlog.kafka_lease import HolderKeeps


def member(member_id, *, owns, generation=1):
    assignor = HolderKeeps()
    assignor.member_assignment = [TopicPartition("kai.snapshot", 0)] if owns else []
    assignor.generation = generation
    sent = assignor.metadata({"kai.snapshot"}).encode()
    return SimpleNamespace(member_id=member_id, metadata=ConsumerProtocolSubscription.decode(sent))


@pytest.mark.parametrize(
    ("owner", "holder"), [(None, "a"), ("a", "a"), ("c", "c")], ids=["nobody", "first", "last"]
)
def test_who_has_the_role_keeps_it(owner, holder):
    members = [member(name, owns=name == owner) for name in ("b", "a", "c")]
    given = HolderKeeps().assign(None, members)
    assert {name: given[name].assigned_partitions for name in "abc"} == {
        name: [("kai.snapshot", [0])] if name == holder else [] for name in "abc"
    }


def test_a_claim_from_before_a_pause_does_not_count():
    members = [
        member("a", owns=True, generation=3),
        member("b", owns=True, generation=5),
        member("c", owns=False, generation=5),
    ]
    given = HolderKeeps().assign(None, members)
    assert [name for name in "abc" if given[name].assigned_partitions] == ["b"]
