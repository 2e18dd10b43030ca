"""When the status writer takes the API server for idle enough to write what can wait."""

import asyncio
import random

from kai_es.runtime.clock import SystemClock
from kai_es.status.writer import CALM, CALM_S, EVENTS_IN_FLIGHT, Writer


class SetClock(SystemClock):
    """Stands still until it is set."""

    now_s = 100.0

    def monotonic_s(self):
        return self.now_s


async def test_it_is_calm_some_time_after_the_last_crowd():
    clock = SetClock()
    writer = Writer(None, clock, random.Random(1))
    assert writer.is_calm()

    async def calls(n, *, can_wait=False):
        go_on = asyncio.Event()
        calls = (writer.call("Pod", go_on.wait, can_wait=can_wait) for _ in range(n))
        made = [asyncio.create_task(one) for one in calls]
        await asyncio.sleep(0)
        assert writer.n_flight == n
        assert writer.is_calm() == (n < CALM or can_wait)
        go_on.set()
        await asyncio.gather(*made)

    await calls(CALM - 1)
    await calls(CALM, can_wait=True)
    await calls(CALM)
    assert not writer.is_calm()
    clock.now_s += CALM_S - 0.1
    assert not writer.is_calm()
    clock.now_s += 0.1
    assert writer.is_calm()


def test_few_events_are_told_while_it_is_not():
    writer = Writer(None, SetClock(), random.Random(1))
    for n_events, calm, busy in (
        (0, True, True),
        (1, True, False),
        (EVENTS_IN_FLIGHT, False, False),
    ):
        writer.n_events = n_events
        assert writer.has_room_for_events(is_calm=True) == calm
        assert writer.has_room_for_events(is_calm=False) == busy
