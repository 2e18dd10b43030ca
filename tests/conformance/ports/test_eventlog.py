"""What every adapter of `ports.eventlog.EventLog` must do."""

import asyncio
import contextlib
import time

import pytest

from kai_es.events.catalogue import partition_of
from kai_es.ports.errors import CorruptLogError, FencedError, GoneError, UnavailableError
from kai_es.ports.eventlog import Position
from tests.conformance.ports.logs import TOPICS, a_record, entries, gone, name, names, out

VISIBLE_S = 5.0
"""Well beyond what any adapter, test mode or busy machine needs to show a committed record."""


async def soon(look, expected):
    """Wait until a look gives what is expected: a commit may become visible late."""
    deadline = time.monotonic() + VISIBLE_S
    while (found := await look()) != expected and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert found == expected


async def follow(log, topic, partition, n, start=0):
    """The first n entries of a following read, and the times between its chunks, ascending."""
    found, waits, last = [], [], time.monotonic()
    async with contextlib.aclosing(
        log.read(topic, partition, Position(start), follow=True)
    ) as chunks:
        async for chunk in chunks:
            waits.append(time.monotonic() - last)
            last = time.monotonic()
            found.extend(chunk)
            if len(found) >= n:
                return found, sorted(waits)
    raise AssertionError("a following read ended by itself")


async def test_a_fresh_log_is_empty(log):
    for topic in TOPICS.values():
        assert await log.begin(topic.name) == dict.fromkeys(range(topic.partitions), 0)
        assert await log.end(topic.name) == await log.begin(topic.name)
        assert await entries(log, topic.name, topic.partitions - 1) == []


async def test_records_come_back_in_order_with_their_positions(log):
    epoch = await log.take_over("w")
    positions = await log.append(
        epoch, [out("decisions", key, partition=key % 2) for key in range(20)]
    )
    assert len(positions) == 20
    for partition in (0, 1):
        await soon(
            lambda p=partition: names(log, "decisions", p),
            [str(key) for key in range(partition, 20, 2)],
        )
        found = await entries(log, "decisions", partition)
        assert [e.position for e in found] == list(positions[partition::2])
        assert [e.key for e in found] == [str(key) for key in range(partition, 20, 2)]
        assert sorted(set(positions[partition::2])) == list(positions[partition::2])


async def test_reading_on_from_after_any_entry_gives_the_rest(log):
    epoch = await log.take_over("w")
    for key in range(6):
        await log.append(epoch, [out("decisions", key, partition=0)])
    await soon(lambda: names(log, "decisions", 0), [str(key) for key in range(6)])
    found = await entries(log, "decisions", 0)
    for n, entry in enumerate(found):
        assert await entries(log, "decisions", 0, entry.position + 1) == found[n + 1 :]
        assert await entries(log, "decisions", 0, entry.position) == found[n:]


async def test_an_append_spans_topics_and_partitions(log):
    epoch = await log.take_over("w")
    await log.append(
        epoch,
        [
            out("decisions", "c", partition=1),
            out("bindrequests", "r", partition=2),
            out("index", "i"),
        ],
    )
    await soon(lambda: names(log, "decisions", 1), ["c"])
    await soon(lambda: names(log, "bindrequests", 2), ["r"])
    await soon(lambda: names(log, "index", partition_of("i", 2)), ["i"])
    assert await names(log, "decisions", 0) == []


async def test_an_empty_append_is_nothing(log):
    assert list(await log.append(await log.take_over("w"), [])) == []


async def test_a_key_decides_the_partition(log):
    epoch = await log.take_over("w")
    keys = [f"Pod/{n}" for n in range(30)]
    await log.append(epoch, [out("bindrequests", key) for key in keys])
    for partition in range(3):
        await soon(
            lambda p=partition: names(log, "bindrequests", p),
            [key for key in keys if partition_of(key, 3) == partition],
        )


async def test_an_older_writer_is_fenced_and_leaves_nothing(world):
    one, other = await world.open(), await world.open()
    old = await one.take_over("scheduler-default")
    await one.append(old, [out("decisions", "old", partition=0)])
    new = await other.take_over("scheduler-default")
    assert new.number > old.number
    with pytest.raises(FencedError):
        await one.append(old, [out("decisions", "zombie", partition=0), out("bindrequests", "z")])
    await other.append(new, [out("decisions", "new", partition=0)])
    await soon(lambda: names(other, "decisions", 0), ["old", "new"])
    assert [await names(other, "bindrequests", p) for p in range(3)] == [[], [], []]


async def test_a_takeover_fences_no_other_producer(log):
    one = await log.take_over("scheduler-a")
    await log.take_over("scheduler-b")
    await log.append(one, [out("decisions", "x", partition=0)])
    await soon(lambda: names(log, "decisions", 0), ["x"])


async def test_after_a_takeover_all_of_the_predecessor_is_visible(world):
    one, other = await world.open(), await world.open()
    old = await one.take_over("w")
    for n in range(8):
        await one.append(old, [out("decisions", n, partition=0), out("index", n)])
    await other.take_over("w")
    assert await names(other, "decisions", 0) == [str(n) for n in range(8)]
    index = [await names(other, "index", p) for p in (0, 1)]
    assert sorted(index[0] + index[1]) == [str(n) for n in range(8)]


async def test_append_one_is_visible_and_in_order(log):
    positions = [await log.append_one("snapshot", f"k{n}", a_record(n)) for n in range(5)]
    found = await entries(log, "snapshot", 0)
    assert [name(entry) for entry in found] == ["0", "1", "2", "3", "4"]
    assert [entry.position for entry in found] == positions
    assert [entry.key for entry in found] == ["k0", "k1", "k2", "k3", "k4"]


async def test_the_end_is_after_the_last_record(log):
    epoch = await log.take_over("w")
    positions = await log.append(epoch, [out("decisions", n, partition=0) for n in range(3)])
    await soon(lambda: log.end("decisions"), {0: positions[-1] + 1, 1: 0})
    one = await log.append_one("snapshot", "s", a_record("s"))
    assert await log.end("snapshot") == {0: one + 1}


async def test_a_reader_at_the_end_is_caught_up(log):
    epoch = await log.take_over("w")
    for n in range(4):
        await log.append(epoch, [out("decisions", n, partition=0)])
        await soon(lambda n=n: names(log, "decisions", 0), [str(k) for k in range(n + 1)])
        found = await entries(log, "decisions", 0)
        assert found[-1].position + 1 >= (await log.end("decisions"))[0]
        assert await entries(log, "decisions", 0, (await log.end("decisions"))[0]) == []


async def test_a_follower_sees_what_comes_and_hears_of_silence(world):
    log, writer = await world.open(), await world.open()
    epoch = await writer.take_over("w")
    reading = asyncio.create_task(follow(log, "decisions", 0, 2))
    await asyncio.sleep(0.35)
    await writer.append(epoch, [out("decisions", "a", partition=0)])
    await asyncio.sleep(0.25)
    await writer.append(epoch, [out("decisions", "b", partition=0)])
    found, waits = await asyncio.wait_for(reading, VISIBLE_S)
    assert [name(entry) for entry in found] == ["a", "b"]
    assert len(waits) >= 6
    assert waits[len(waits) // 2] <= 0.1
    assert waits[-1] < 1.0, "the machine may be busy, but not that busy"


async def test_a_follower_is_quick(world):
    log, writer = await world.open(), await world.open()
    took = []
    for n in range(5):
        reading = asyncio.create_task(follow(log, "snapshot", 0, n + 1))
        await asyncio.sleep(0.12)
        await writer.append_one("snapshot", "k", a_record(n))
        sent = time.monotonic()
        await asyncio.wait_for(reading, VISIBLE_S)
        took.append(time.monotonic() - sent)
    assert sorted(took)[2] < 0.06, took


async def test_the_last_value_of_a_key_stays(world, log):
    epoch = await log.take_over("w")
    await log.append(epoch, [out("index", "a", "a1"), out("index", "b", "b1")])
    await log.append(
        epoch, [out("index", "a", "a2"), out("index", "b", "b2"), out("index", "a", "a3")]
    )
    await log.append(epoch, [gone("index", "b")])
    await log.take_over("w")
    found = [e for p in (0, 1) for e in await entries(log, "index", p)]
    assert {e.key: name(e) for e in found} == {"a": "a3", "b": None}
    if world.compacts_at_once:
        assert len(found) == 2


async def test_trimmed_entries_are_gone_and_say_so(log):
    positions = [await log.append_one("snapshot", "k", a_record(n)) for n in range(6)]
    await log.trim("snapshot", 0, positions[3])
    assert await log.begin("snapshot") == {0: positions[3]}
    assert await log.end("snapshot") == {0: positions[5] + 1}
    assert await names(log, "snapshot", 0, positions[3]) == ["3", "4", "5"]
    with pytest.raises(GoneError, match=f"snapshot.*{positions[3]}"):
        await entries(log, "snapshot", 0, positions[2])


async def test_trimming_goes_up_to_the_end_and_never_back(log):
    position = await log.append_one("snapshot", "k", a_record("x"))
    await log.trim("snapshot", 0, Position(position + 100))
    assert await log.begin("snapshot") == await log.end("snapshot") == {0: position + 1}
    await log.trim("snapshot", 0, Position(position))
    assert await log.begin("snapshot") == {0: position + 1}
    after = await log.append_one("snapshot", "k", a_record("y"))
    assert after > position
    assert await names(log, "snapshot", 0, position + 1) == ["y"]


async def test_a_position_never_written_stops_the_reader(log):
    await log.append_one("snapshot", "k", a_record("x"))
    with pytest.raises(CorruptLogError, match="snapshot"):
        await entries(log, "snapshot", 0, 1_000)
    with pytest.raises(CorruptLogError, match="snapshot"):
        await follow(log, "snapshot", 0, 1, start=1_000)


async def test_large_records_and_batches(log):
    epoch = await log.take_over("w")
    await log.append(epoch, [out("decisions", n, partition=0, size=1_500_000) for n in range(6)])
    await log.append_one("snapshot", "k", a_record("big", size=9_000_000))
    await soon(lambda: names(log, "decisions", 0), ["0", "1", "2", "3", "4", "5"])
    assert await names(log, "snapshot", 0) == ["big"]


@pytest.mark.parametrize(
    "wrong",
    [
        out("nowhere", "k"),
        out("decisions", "k", partition=2),
        gone("decisions", "k"),
        out("decisions", "k", size=17_000_000),
    ],
)
async def test_what_the_catalogue_forbids_is_our_bug(log, wrong):
    epoch = await log.take_over("w")
    with pytest.raises(AssertionError):
        await log.append(epoch, [out("decisions", "fine", partition=0), wrong])
    assert await names(log, "decisions", 0) == []


async def test_writers_and_readers_at_once_see_everything_once(world):
    n_writers, n_batches = 3, 8

    async def write(writer):
        log = await world.open()
        epoch = await log.take_over(f"writer-{writer}")
        for n in range(n_batches):
            await log.append(
                epoch,
                [out("decisions", f"{writer}", f"{writer}/{n}/{p}", partition=p) for p in (0, 1)],
            )

    async def read(partition):
        log = await world.open()
        found, _ = await follow(log, "decisions", partition, n_writers * n_batches)
        return [name(entry) for entry in found]

    readers = [asyncio.create_task(read(p)) for p in (0, 1, 0)]
    await asyncio.gather(*(write(writer) for writer in range(n_writers)))
    seen = [await asyncio.wait_for(reader, 2 * VISIBLE_S) for reader in readers]
    assert seen[0] == seen[2], "two readers of one partition see one order"
    for partition in (0, 1):
        for writer in range(n_writers):
            assert [n for n in seen[partition] if n.startswith(f"{writer}/")] == [
                f"{writer}/{n}/{partition}" for n in range(n_batches)
            ]


async def test_a_closed_log_ends_its_readers_and_refuses(world):
    log = await world.open()
    epoch = await log.take_over("w")
    chunks = log.read("decisions", 0, Position(0), follow=True)
    assert list(await anext(chunks)) == []
    await log.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(chunks), VISIBLE_S)
    for use in (
        lambda: log.append(epoch, [out("decisions", "x")]),
        lambda: log.append_one("snapshot", "k", a_record("x")),
        lambda: log.take_over("w"),
        lambda: log.end("decisions"),
    ):
        with pytest.raises(UnavailableError, match="closed"):
            await use()
    await log.close()


async def test_a_store_outlives_its_clients(world):
    first = await world.open()
    position = await first.append_one("snapshot", "k", a_record("x"))
    old = await first.take_over("w")
    await first.close()
    second = await world.open()
    assert [e.position for e in await entries(second, "snapshot", 0)] == [position]
    assert (await second.take_over("w")).number > old.number
