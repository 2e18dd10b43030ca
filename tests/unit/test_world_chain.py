import msgspec
import pytest

from kai_es.snapshot.errors import BrokenHistoryError
from kai_es.snapshot.world import Applied, Missed, Rejected, World
from tests.histories.builders import T0, Writer, a_node, seen


def test_a_batch_that_names_the_last_accepted_one_is_folded():
    world, writer = World(), Writer()
    assert world.apply(*writer.batch(seen(a_node("n1")))) == Applied(0, True, ())
    assert world.apply(*writer.batch(seen(a_node("n2")))) == Applied(1, True, ())
    assert (world.offset, world.snapshot.offset) == (1, 1)
    assert world.snapshot.time_ms == world.time == T0 + 20
    assert sorted(world.snapshot.nodes.rows) == ["node-n1", "node-n2"]


def test_a_batch_that_names_an_older_one_is_rejected_whole():
    world, writer = World(), Writer()
    world.apply(*writer.batch(seen(a_node("n1"))))
    _, second = writer.batch(seen(a_node("n2")))
    world.apply(1, second)
    assert world.apply(2, second) == Rejected(2)
    assert world.chain.n_rejected == 1
    assert world.offset == 1


def test_a_batch_that_names_an_unseen_one_sends_the_reader_back():
    world, writer = World(), Writer()
    world.apply(*writer.batch())
    writer.batch()
    assert world.apply(*writer.batch()) == Missed(2, resume=1)
    assert world.offset == 0


def test_offsets_may_have_gaps():
    world, writer = World(), Writer()
    _, first = writer.batch()
    assert isinstance(world.apply(5, first), Applied)
    writer.prev = 5
    _, second = writer.batch()
    assert world.apply(9, second) == Applied(9, False, ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": 0}, "expected from 1"),
        ({"stop": 0}, "expected from 1"),
        ({"partition": 1}, "other source partitions"),
    ],
)
def test_cursors_that_do_not_join_stop_the_reader(change, message):
    world, writer = World(), Writer()
    world.apply(*writer.batch(seen(a_node("n1"))))
    _, batch = writer.batch(seen(a_node("n2")))
    cursor = msgspec.structs.replace(batch.cursors[0], **change)
    with pytest.raises(BrokenHistoryError, match=message):
        world.apply(1, msgspec.structs.replace(batch, cursors=(cursor,)))


def test_a_time_that_falls_stops_the_reader():
    world, writer = World(), Writer()
    world.apply(*writer.batch())
    with pytest.raises(BrokenHistoryError, match="time"):
        world.apply(*writer.batch(after_ms=-1))
