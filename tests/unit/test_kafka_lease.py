from types import SimpleNamespace

import pytest
from kafka import TopicPartition

from kai_es.eventlog.kafka_lease import HolderKeeps


def member(member_id, *, owns):
    assignor = HolderKeeps()
    assignor.member_assignment = [TopicPartition("kai.snapshot", 0)] if owns else []
    return SimpleNamespace(member_id=member_id, metadata=assignor.metadata({"kai.snapshot"}))


@pytest.mark.parametrize(
    ("owner", "holder"), [(None, "a"), ("a", "a"), ("c", "c")], ids=["nobody", "first", "last"]
)
def test_who_has_the_role_keeps_it(owner, holder):
    members = [member(name, owns=name == owner) for name in ("b", "a", "c")]
    given = HolderKeeps().assign(None, members)
    assert {name: given[name].assigned_partitions for name in "abc"} == {
        name: [("kai.snapshot", [0])] if name == holder else [] for name in "abc"
    }
