from hypothesis import given
from hypothesis import strategies as st

from kai_es.snapshot.world import Applied, World
from projectors.runs import Moment
from projectors.usage import Usage
from tests.books.oracle import Oracle
from tests.books.strategies import stories
from tests.books.tables import Tables


def _fold(batches, *, cuts=()):
    """Tables after folding, with `take` after the batches in `cuts`."""
    usage, tables = Usage(), Tables()
    for n, (offset, batch) in enumerate(batches):
        usage.fold(offset, batch)
        if n in cuts:
            tables.write(usage.take())
    tables.write(usage.take())
    return tables


@given(stories(), st.sets(st.integers(0, 12)))
def test_intervals_say_what_the_slow_sum_says(story, cuts):
    tables, oracle = _fold(story.batches, cuts=cuts), Oracle()
    for _, batch in story.batches:
        oracle.fold(batch)
    end = story.batches[-1][1].time + 60_000
    oracle.advance(end)
    tables.check()
    assert tables.held(end) == oracle.held
    assert tables.waited(end) == oracle.waited
    assert tables.offered(end) == oracle.offered


@given(stories(), st.sets(st.integers(0, 12)))
def test_when_rows_are_taken_makes_no_difference(story, cuts):
    assert _fold(story.batches, cuts=cuts).tables == _fold(story.batches).tables


@given(stories(), st.data())
def test_restored_fold_goes_on_as_if_it_had_never_stopped(story, data):
    at = data.draw(st.integers(0, len(story.batches) - 1))
    usage, world, tables = Usage(), World(), Tables()
    for offset, batch in story.batches[: at + 1]:
        usage.fold(offset, batch)
        assert isinstance(world.apply(offset, batch), Applied)
    tables.write(usage.take())
    offset, batch = story.batches[at]
    again = Usage()
    again.restore(
        world.objects,
        alive={p: row.time for p, row in world.liveness.alive.items()},
        at=Moment(batch.time, offset),
        stored=tables.stored(),
    )
    assert again.take().n_rows() == 0
    for offset, batch in story.batches[at + 1 :]:
        again.fold(offset, batch)
    tables.write(again.take())
    assert tables.tables == _fold(story.batches).tables


@given(stories(), st.data())
def test_rewound_books_are_rebuilt_to_the_same_rows(story, data):
    at = data.draw(st.integers(0, len(story.batches) - 1))
    whole = _fold(story.batches)
    tables = _fold(story.batches, cuts=range(len(story.batches)))
    assert tables.tables == whole.tables
    offset, batch = story.batches[at]
    tables.rewind(offset)
    world, usage = World(), Usage()
    for n, entry in story.batches[: at + 1]:
        world.apply(n, entry)
    usage.restore(
        world.objects,
        alive={p: row.time for p, row in world.liveness.alive.items()},
        at=Moment(batch.time, offset),
        stored=tables.stored(),
    )
    for n, entry in story.batches[at + 1 :]:
        usage.fold(n, entry)
    tables.write(usage.take())
    assert tables.tables == whole.tables
