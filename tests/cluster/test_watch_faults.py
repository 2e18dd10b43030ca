"""Whatever goes wrong between informer and server, no object is missed (invariant 14)."""

import asyncio

import pytest

from tests.cluster.faults import trouble

TURNS_AWAY = ("--enable-priority-and-fairness=false", "--max-requests-inflight=2")
"""429 as soon as three requests of an ordinary user are served at once."""


@pytest.fixture
def server_to_break(uncached):
    return uncached()


async def test_no_object_is_missed(server_to_break, tmp_path, monkeypatch):
    server = server_to_break
    monkeypatch.setattr("kai_es.intake.reflector.PAGE", 5)
    monkeypatch.setattr("kai_es.intake.reflector.UNSERVED_S", 0.3)
    monkeypatch.setattr("kai_es.intake.reflector.PAUSE_S", (0.05, 0.3))
    async with trouble(server, tmp_path) as it:
        await it.users.work(60)
        await it.settled()

        # History goes while watches are broken: they cannot go on where they were.
        await it.break_watches(changes=40)
        await it.settled()
        assert it.port.refused["watch", 410] > 0

        # The same in the middle of a list, while users go on.
        async def forget_once() -> None:
            it.port.after_page = None
            await it.users.work(3)
            await it.forget()

        it.port.after_page = forget_once
        await it.break_watches(changes=10)
        await it.settled()
        assert it.port.refused["list", 410] > 0

        # Servers that are killed under everybody's hands. Then fifteen kinds are listed or watched
        # at once, and the server serves two requests at a time.
        server.options += TURNS_AWAY
        busy = asyncio.create_task(it.users.work_on())
        await it.restart_api()
        await it.restart_etcd()
        busy.cancel()
        await asyncio.wait([busy])
        await it.users.work(20)
        await it.settled()
        while not it.port.refused["list", 429] + it.port.refused["watch", 429]:
            await it.break_watches(changes=3)  # by chance no two have met so far
            await it.settled()
        assert it.users.n_done > 100
