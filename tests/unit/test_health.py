import asyncio
import threading

import pytest

from kai_es.eventlog.kafka_reach import Reach
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


async def test_topics_are_asked_in_turn_and_all_of_them_after_trouble():
    log = Log()
    ask = asks_log(log)
    await ask()
    log.asked.clear()
    for _ in TOPICS:
        await ask()
    assert log.asked == list(TOPICS)
    log.error = UnavailableError("no leader")
    for _ in range(list(TOPICS).index(SNAPSHOT)):
        await ask()
    with pytest.raises(UnavailableError):
        await ask()
    log.error = None
    log.asked.clear()
    await ask()
    assert log.asked == list(TOPICS)


class Server:
    """Answers nothing until it is told what."""

    def __init__(self):
        self.answer = asyncio.get_running_loop().create_future()
        self.fault = "cannot reach the broker at b:1"
        self.n_named = 0

    async def ask(self):
        await asyncio.shield(self.answer)

    async def unreachable(self):
        self.n_named += 1
        return self.fault


async def test_server_that_is_not_there_is_named_while_its_client_still_tries(monkeypatch):
    monkeypatch.setattr(health, "NAME_S", 0.01)
    server = Server()
    asked = Health(server.ask, HastyClock(), unreachable=server.unreachable)
    running = asyncio.create_task(asked.run())
    async with asyncio.timeout(5):
        while asked.trouble != server.fault:
            await asyncio.sleep(0.001)
    server.answer.set_exception(UnavailableError("KafkaTimeoutError"))
    n_named = server.n_named
    async with asyncio.timeout(5):
        while server.n_named < n_named + 2:
            await asyncio.sleep(0)
            assert asked.trouble == server.fault  # the client's words tell less
        server.fault = ""
        while asked.trouble != "KafkaTimeoutError":
            await asyncio.sleep(0.001)
    running.cancel()


async def test_slow_server_makes_no_trouble(monkeypatch):
    monkeypatch.setattr(health, "NAME_S", 0.01)
    server = Server()
    server.answer.set_result(None)
    asked = Health(server.ask, HastyClock(), unreachable=server.unreachable)
    await asked.in_order()
    assert server.n_named == 0  # who answers is not suspected
    server.answer, server.fault = asyncio.get_running_loop().create_future(), ""
    running = asyncio.create_task(asked.run())
    async with asyncio.timeout(5):
        while not server.n_named:
            await asyncio.sleep(0.001)
            assert asked.trouble == ""
    server.answer.set_result(None)
    await asyncio.sleep(0.01)
    assert asked.trouble == ""
    running.cancel()


async def test_whether_anything_listens_is_told():
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    some, none = Reach(f"127.0.0.1:1,127.0.0.1:{port}"), Reach("[::1]:1,127.0.0.1:1")
    assert await some.problem() == ""
    listener.close()
    told = "cannot reach the broker at [::1]:1,127.0.0.1:1: Connection refused"
    assert await none.problem() == told
    some.close()
    none.close()


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
