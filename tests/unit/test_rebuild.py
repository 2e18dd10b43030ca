import pytest

from kai_es.events.catalogue import SNAPSHOT
from kai_es.reader.restore import HistoryGoneError
from streams.projection import usage_projection
from streams.rebuild import rebuild
from tests.histories.logs import records
from tests.histories.virtual import run_virtual
from tests.unit.test_books_runner import Site, a_story, write


async def kept():
    """A site whose books are complete; small checkpoints."""
    site = Site(rows_max=15)
    await write(site.log, a_story())
    await site.runner().catch_up()
    return site


def projection_of(site):
    return usage_projection(site.usage, site.clock)


@pytest.mark.parametrize("n", [None, 0, 1, 7, 23, -1])
def test_rebuild_gives_the_rows_that_were_there(n):
    async def main():
        site = await kept()
        live = await site.usage.digest()
        positions = [int(entry.position) for entry in await records(site.log, SNAPSHOT)]
        start = -1 if n is None else positions[n]
        found = await rebuild(
            site.log, site.checkpoints, projection_of(site), site.clock, start=start
        )
        assert found.start == start
        assert found.digest == live.digest
        assert site.usage.at.offset == positions[-1]

    run_virtual(main())


def test_rebuild_mends_rows_that_somebody_changed():
    async def main():
        site = await kept()
        live = await site.usage.digest()
        table = site.usage.books.tables["allocations"]
        for key in sorted(table)[::2]:
            del table[key]
        found = await rebuild(site.log, site.checkpoints, projection_of(site), site.clock)
        assert found.digest == live.digest

    run_virtual(main())


def test_offset_between_batches_means_the_batch_before():
    async def main():
        site = await kept()
        end = int((await site.log.end(SNAPSHOT))[0])
        found = await rebuild(
            site.log, site.checkpoints, projection_of(site), site.clock, start=end + 100
        )
        assert found.start == site.usage.at.offset

    run_virtual(main())


def test_what_cannot_be_folded_again_is_not_touched():
    async def main():
        site = await kept()
        live, heads = await site.usage.digest(), await site.checkpoints.heads()
        await site.log.trim(SNAPSHOT, 0, heads[1].offset + 1)
        for start in (-1, heads[0].offset - 1):
            with pytest.raises(HistoryGoneError):
                await rebuild(
                    site.log, site.checkpoints, projection_of(site), site.clock, start=start
                )
        assert await site.usage.digest() == live
        found = await rebuild(
            site.log, site.checkpoints, projection_of(site), site.clock, start=heads[1].offset
        )
        assert found.digest == live.digest

    run_virtual(main())
