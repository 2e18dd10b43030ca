"""The store of the simulated API server against plain dictionaries, also after a restart."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.simulate.answers import ApiError
from kai_es.simulate.database import Database
from kai_es.simulate.kinds import NODE, POD, Kind
from kai_es.simulate.store import Store

KINDS = (POD, NODE)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(KINDS), st.sampled_from("abcde")),
        st.tuples(st.just("remove"), st.sampled_from(KINDS), st.sampled_from("abcde")),
        st.tuples(st.just("compact"), st.just(POD), st.integers(0, 100)),
        st.tuples(st.just("commit"), st.just(POD), st.just("")),
        st.tuples(st.just("restart"), st.just(POD), st.just("")),
    ),
    max_size=40,
)
State = dict[str, str]


def an_object(kind: Kind, key: str, rv: int) -> dict:
    head = {"kind": kind.kind, "apiVersion": kind.api_version}
    return head | {"metadata": {"name": key, "uid": f"{key}-{rv}"}}


def shown(store: Store, kind: Kind, rv: int) -> State:
    frozen = store.at(kind, rv)
    assert frozen.keys == sorted(frozen.objects)
    return {key: frozen.objects[key].uid for key in frozen.keys}


def check(store: Store, states: dict[int, dict[str, State]]) -> None:
    """Every state since the last compaction is still there, and history leads to the present."""
    for rv, state in states.items():
        for kind in KINDS:
            if rv < store.compacted:
                with pytest.raises(ApiError):
                    store.at(kind, rv)
                continue
            assert shown(store, kind, rv) == state[kind.kind]
            replayed = dict(state[kind.kind])
            for change in store.shelf(kind).since(rv):
                assert change.rv > rv
                assert (change.type == "ADDED") == (change.after.key not in replayed)
                if change.type == "DELETED":
                    del replayed[change.after.key]
                else:
                    replayed[change.after.key] = change.after.uid
            assert replayed == shown(store, kind, store.rv)


@given(steps)
@settings(max_examples=60)
def test_store_shows_every_state_since_the_last_compaction(steps):
    asyncio.run(_run(steps))


async def _run(steps) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "apiserver.db"
        database = Database(path)
        store = Store(database, KINDS, lambda: 0)
        live: dict[str, State] = {kind.kind: {} for kind in KINDS}
        states = {store.rv: {name: dict(state) for name, state in live.items()}}
        for what, kind, value in steps:
            state = live[kind.kind]
            if what == "put":
                state[value] = store.put(kind, value, an_object(kind, value, store.rv)).uid
            elif what == "remove" and value in state:
                store.remove(kind, value, store.get(kind, value).object())
                del state[value]
            elif what == "compact":
                store.compact(value)
            elif what == "commit":
                store.settle()
            elif what == "restart":
                store.settle()
                rv, compacted = store.rv, store.compacted
                database.close()
                database = Database(path)
                store = Store(database, KINDS, lambda: 0)
                assert (store.rv, store.compacted) == (rv, compacted)
            states[store.rv] = {name: dict(state) for name, state in live.items()}
        check(store, states)
        store.settle()
        database.close()
