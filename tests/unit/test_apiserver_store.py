"""Limits and failures of the simulated API server's store."""

import asyncio
import sqlite3

import pytest

from kai_es.simulate import watches
from kai_es.simulate.database import AccessRow, Database
from kai_es.simulate.kinds import POD
from kai_es.simulate.selectors import Selector
from kai_es.simulate.store import Store
from kai_es.simulate.watches import WatchOptions, WatchStream


def a_pod(name: str) -> dict:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": {"x": "y" * 100}}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": {}, "status": {}}


class Time:
    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
async def store():
    return Store(Database(None), (POD,), Time(), history_max=10, history_ms=1000)


async def test_history_is_cut_by_number(store: Store):
    for i in range(25):
        store.put(POD, f"ns/p{i}", a_pod(f"p{i}"))
    store.settle()
    store.compact_old()
    assert len(store.shelf(POD).history) == 10
    assert store.compacted == store.rv - 10


async def test_history_is_cut_by_age(store: Store):
    store.put(POD, "ns/a", a_pod("a"))
    store.clock.now = 2_000
    store.put(POD, "ns/b", a_pod("b"))
    store.settle()
    store.compact_old()
    assert [c.after.key for c in store.shelf(POD).history] == ["ns/b"]


async def test_nothing_is_answered_after_a_commit_that_failed(store: Store):
    store.put(POD, "ns/a", a_pod("a"))
    store.note(AccessRow(*[None] * 11))  # NOT NULL fails
    with pytest.raises(sqlite3.IntegrityError):
        store.settle()
    for _ in range(2):
        with pytest.raises(sqlite3.IntegrityError):
            store.settle()
        with pytest.raises(sqlite3.IntegrityError):
            await store.committed()


async def test_watcher_is_told_after_the_commit_only(store: Store):
    told = []

    class Watcher:
        def tell(self, changes):
            told.extend(c.after.key for c in changes)

    store.shelf(POD).watchers.append(Watcher())
    store.put(POD, "ns/a", a_pod("a"))
    store.put(POD, "ns/b", a_pod("b"))
    assert told == []
    await store.committed()
    assert told == ["ns/a", "ns/b"]


async def test_slow_watcher_is_dropped(store: Store, monkeypatch):
    monkeypatch.setattr(watches, "BUFFER_BYTES_MAX", 1_000)
    cuts = []
    options = WatchOptions(Selector(), False, 60.0, False, False, store.rv)
    stream = WatchStream(store, POD, options, lambda: cuts.append(True))
    stuck, writing = asyncio.Event(), asyncio.Event()

    async def write(_: bytes) -> None:
        writing.set()
        await stuck.wait()

    task = asyncio.create_task(stream.run(write, bookmark_s=60))
    await asyncio.sleep(0)
    for i in range(30):
        store.put(POD, f"ns/p{i}", a_pod(f"p{i}"))
        store.settle()
        if i == 0:
            await writing.wait()
    assert cuts
    task.cancel()
    await asyncio.wait([task])
    assert store.shelf(POD).watchers == []
