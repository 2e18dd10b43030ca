import msgspec
import pytest

from kai_es.events.codec import encode
from kai_es.events.decisions import Reason
from kai_es.events.envelope import NewerRecordError, PoisonError
from kai_es.events.snapshot import Parked, Upserted
from projectors.batching import BATCH_ROWS_MAX, Buffer, batch_id, batch_of
from projectors.cycles import CYCLE_BYTES_MAX, Assembler, chunks_of
from projectors.sources import SOURCES, Source, Unit
from tests.histories.builders import a_cycle, a_node, a_pod, a_reign, bound, seen
from tests.histories.logs import answered, chunked, decided, gone_pod, seen_pod


def fold(source, *outs, start=0):
    """Units of these records at positions from `start` on."""
    units = []
    for position, out in enumerate(outs, start):
        unit = source.fold(position, out.key, encode(out.envelope, out.topic))
        units.append(unit)
    return units


def big_cycle(number, n_bytes=1_200_000):
    return a_cycle(number, reasons={"g": (Reason(code="x" * n_bytes),)})


def test_an_object_is_a_unit_of_its_own():
    (unit, gone) = fold(Source(("objects", 3)), seen_pod(rv=7), gone_pod(rv=8))
    ((row, position, ingest_ms),) = unit.rows
    assert isinstance(row, Upserted)
    assert (row.rv, row.obj.name, position) == (7, "p", 0)
    assert ingest_ms > 0
    assert (unit.part, unit.stop) == (("objects", 3), 1)
    assert gone.stop == 2
    assert gone.rows[0][0].uid == "pod-p"


def test_an_object_that_cannot_be_parsed_is_parked_with_a_dead_letter():
    (unit,) = fold(Source(("objects", 3)), seen_pod(cpu="-1", node="n1"), start=5)
    ((row, _, _),) = unit.rows
    assert isinstance(row, Parked)
    assert (row.uid, row.node, row.source) == ("pod-p", "n1", "objects/3/5")
    (letter,) = unit.dead
    assert (letter.topic, letter.partition, letter.position) == ("objects", 3, 5)
    assert letter.error == row.error != ""
    assert b"pod-p" in letter.value


def test_an_object_record_that_cannot_be_decoded_is_parked_too():
    unit = Source(("objects", 0)).fold(4, "Pod/u7", b'{"schema":')
    ((row, _, _),) = unit.rows
    assert (row.kind, row.uid) == ("Pod", "u7")
    assert len(unit.dead) == 1


def test_an_object_for_a_newer_release_stops_the_stream():
    out = seen_pod()
    newer = out._replace(envelope=msgspec.structs.replace(out.envelope, min_reader=99))
    with pytest.raises(NewerRecordError, match=r"objects/0/0.*upgrade kai-es"):
        fold(Source(("objects", 0)), newer)


@pytest.mark.parametrize("topic", ["decisions", "bindresults"])
def test_a_decision_or_result_that_cannot_be_decoded_stops_the_stream(topic):
    with pytest.raises(PoisonError, match=f"{topic}/2/9"):
        Source((topic, 2)).fold(9, "k", b"\x00junk")


def test_a_cycle_comes_whole_with_its_last_chunk():
    cycle = big_cycle(1)
    units = fold(Source(("decisions", 0)), decided(a_reign()), *chunked(cycle))
    assert [unit is None for unit in units] == [False, True, True, False]
    assert units[3].rows[0][0] == cycle
    assert (units[3].stop, units[3].rows[0][1]) == (4, 3)


def test_cycles_of_two_shards_between_each_other_are_one_unit():
    one, two = big_cycle(1), a_cycle(1, shard="other")
    first, *rest = chunked(one)
    units = fold(Source(("decisions", 0)), first, *chunked(two), *rest)
    assert [unit is None for unit in units] == [True, True, True, False]
    assert [row.shard for row, _, _ in units[3].rows] == ["other", "default"]


def test_chunks_out_of_order_stop_the_stream():
    first, second, third = chunks_of(big_cycle(1))
    assembler = Assembler()
    assembler.add(first)
    with pytest.raises(PoisonError, match="chunk 2 of 3 follows 1"):
        assembler.add(third)
    with pytest.raises(PoisonError, match="chunk 1 of 3 follows 0"):
        Assembler().add(second)


def test_a_cycle_over_the_limit_is_our_bug():
    with pytest.raises(AssertionError, match="bytes"):
        chunks_of(big_cycle(1, CYCLE_BYTES_MAX))


def test_results_are_rows_as_they_are():
    result = bound(1, a_pod(), a_node())
    (unit,) = fold(Source(("bindresults", 4)), answered(result))
    assert unit.rows[0][0] == result


def a_unit(position, n_rows=1, n_bytes=100, part=("objects", 0)):
    rows = tuple((seen(a_node(f"n{i}")), position, 5) for i in range(n_rows))
    return Unit(part, position + 1, rows, n_bytes)


def test_a_batch_is_cut_at_the_row_limit_between_units():
    buffer = Buffer()
    for position in range(5):
        buffer.add(a_unit(position, n_rows=900))
    assert buffer.fills_batch
    assert [unit.stop for unit in buffer.take()] == [1, 2]
    assert [unit.stop for unit in buffer.take()] == [3, 4]
    assert not buffer.fills_batch
    assert [unit.stop for unit in buffer.take()] == [5]
    assert buffer.is_empty
    assert buffer.n_rows == buffer.n_bytes == 0


def test_a_unit_over_the_limits_is_a_batch_alone():
    buffer = Buffer()
    buffer.add(a_unit(0))
    buffer.add(a_unit(1, n_bytes=8 << 20))
    buffer.add(a_unit(2, n_rows=BATCH_ROWS_MAX + 1))
    assert [len(buffer.take()) for _ in range(3)] == [1, 1, 1]


def test_a_full_buffer_stops_its_readers():
    buffer = Buffer()
    buffer.add(a_unit(0, n_rows=8_000))
    assert buffer.is_full
    assert buffer.oldest_ms() == 5


def test_a_batch_covers_all_sources_and_joins():
    cursors = dict.fromkeys(SOURCES, 3)
    unit = a_unit(7)
    batch = batch_of([unit], prev=11, time=13, cursors=cursors)
    assert (batch.prev, batch.time) == (11, 13)
    assert [(c.topic, c.partition) for c in batch.cursors] == sorted(SOURCES)
    moved = [c for c in batch.cursors if c.stop != c.start]
    assert [(c.topic, c.partition, c.start, c.stop) for c in moved] == [("objects", 0, 3, 8)]
    assert batch.cursors[batch.origins[0].source] is moved[0]


def test_the_id_of_a_batch_is_what_it_continues_and_says():
    cursors = dict.fromkeys(SOURCES, 0)
    one = batch_of([a_unit(0)], prev=4, time=1, cursors=cursors)
    later = batch_of([a_unit(0)], prev=4, time=2, cursors=cursors)
    other = batch_of([a_unit(0, n_rows=2)], prev=4, time=1, cursors=cursors)
    assert batch_id(one) == batch_id(later) != batch_id(other)
    assert batch_id(one).startswith("4/")
