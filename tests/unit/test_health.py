import asyncio
import threading

import pytest

from kai_es.events.catalogue import SNAPSHOT, TOPICS
from kai_es.ports.errors import CorruptLogError, UnavailableError
from kai_es.runtime import health
from kai_es.runtime.health import Health, asks_database, asks_log
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
    asked = Health(asks_log(log), HastyClock())
    assert asked.trouble
    await asked.in_order()
    assert (asked.trouble, sorted(log.asked)) == ("", sorted(TOPICS))


async def test_log_that_is_away_is_waited_for_and_said():
    log = Log()
    log.error = UnavailableError("no broker")
    asked = Health(asks_log(log), HastyClock())
    waiting = asyncio.create_task(asked.in_order())
    while asked.trouble != "no broker":
        await asyncio.sleep(0.001)
    assert not waiting.done()
    log.error = None
    await asyncio.wait_for(waiting, 5)
    assert asked.trouble == ""


async def test_log_that_goes_away_later_is_said_and_comes_back():
    log = Log()
    asked = Health(asks_log(log), HastyClock())
    await asked.in_order()
    running = asyncio.create_task(asked.run())
    for error, trouble in ((UnavailableError("full disk"), "full disk"), (None, "")):
        log.error = error
        async with asyncio.timeout(5):
            while asked.trouble != trouble:
                await asyncio.sleep(0.001)
    running.cancel()


async def test_damage_is_not_waited_for():
    log = Log()
    log.error = CorruptLogError("file")
    with pytest.raises(CorruptLogError):
        await Health(asks_log(log), HastyClock()).in_order()


async def test_database_that_hangs_is_said_and_asked_once_at_a_time(monkeypatch):
    monkeypatch.setattr(health, "ANSWER_S", 0.01)
    hangs, n_asked = threading.Event(), []

    def look(engine):
        n_asked.append(engine)
        hangs.wait(10)

    monkeypatch.setattr(health, "look", look)
    asked = Health(asks_database(None), HastyClock())
    running = asyncio.create_task(asked.run())
    async with asyncio.timeout(5):
        while "no answer in" not in asked.trouble:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    assert len(n_asked) == 1
    hangs.set()
    async with asyncio.timeout(5):
        while asked.trouble:
            await asyncio.sleep(0.001)
    running.cancel()


async def test_age_that_rises_is_told_once(caplog):
    ages = iter(range(30, 1000))
    telling = asyncio.create_task(tell_changes(lambda: [f"{next(ages)} s old"], HastyClock()))
    await asyncio.sleep(0.05)
    telling.cancel()
    assert [record.problem for record in caplog.records] == ["30 s old"]


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
