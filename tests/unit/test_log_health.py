import asyncio

import pytest

from kai_es.events.catalogue import SNAPSHOT, TOPICS
from kai_es.ports.errors import CorruptLogError, UnavailableError
from kai_es.runtime.log_health import LogHealth
from kai_es.runtime.readiness import tell_changes
from tests.clocks import HastyClock


class Log:
    """Answers for its topics, or with an error."""

    def __init__(self):
        self.error = None
        self.asked = []

    async def begin(self, topic):
        self.asked.append(topic)
        if self.error is not None and topic == SNAPSHOT:
            raise self.error
        return {0: 0}


async def test_every_topic_is_asked():
    log = Log()
    health = LogHealth(log, HastyClock())
    assert health.trouble
    await health.in_order()
    assert (health.trouble, sorted(log.asked)) == ("", sorted(TOPICS))


async def test_log_that_is_away_is_waited_for_and_said():
    log = Log()
    log.error = UnavailableError("no broker")
    health = LogHealth(log, HastyClock())
    waiting = asyncio.create_task(health.in_order())
    while health.trouble != "no broker":
        await asyncio.sleep(0.001)
    assert not waiting.done()
    log.error = None
    await asyncio.wait_for(waiting, 5)
    assert health.trouble == ""


async def test_log_that_goes_away_later_is_said_and_comes_back():
    log = Log()
    health = LogHealth(log, HastyClock())
    await health.in_order()
    running = asyncio.create_task(health.run())
    for error, trouble in ((UnavailableError("full disk"), "full disk"), (None, "")):
        log.error = error
        async with asyncio.timeout(5):
            while health.trouble != trouble:
                await asyncio.sleep(0.001)
    running.cancel()


async def test_damage_is_not_waited_for():
    log = Log()
    log.error = CorruptLogError("file")
    with pytest.raises(CorruptLogError):
        await LogHealth(log, HastyClock()).in_order()


async def test_changes_of_readiness_are_told_once(caplog):
    caplog.set_level("INFO")
    problems = ["log: away", "binder: away"]
    telling = asyncio.create_task(tell_changes(lambda: list(problems), HastyClock()))
    async with asyncio.timeout(5):
        while not caplog.records:
            await asyncio.sleep(0.001)
        problems.clear()
        while len(caplog.records) < 2:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    telling.cancel()
    told = [(record.message, getattr(record, "problem", "")) for record in caplog.records]
    assert told == [("not ready", "log: away; binder: away"), ("ready", "")]
