"""A standby whose role somebody else has is in order, whatever was wrong before it joined."""

import asyncio

import pytest

from kai_es.binder.service import Binder
from kai_es.cycle import Scheduler, Setting
from kai_es.eventlog.memory import MemoryLog
from kai_es.intake.service import Informer
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import JOINS
from kai_es.reader import View
from streams.snapshot import SnapshotStream
from tests.clocks import HastyClock


class Elsewhere:
    """Leadership of somebody else, behind a broker that is away at first."""

    def __init__(self):
        self.failures = 2

    async def acquire(self, role, holder, waits):
        if self.failures:
            self.failures -= 1
            raise UnavailableError("the broker is away")
        await asyncio.sleep(0.01)
        waits()
        await asyncio.Event().wait()


def an_informer(**standby):
    informer = Informer(cluster=None, eventlog=MemoryLog(), **standby)
    return informer, informer.trouble


def a_stream(**standby):
    stream = SnapshotStream(log=MemoryLog(), **standby)
    return stream, lambda: stream.status.trouble


def a_scheduler(*, clock, **standby):
    log = MemoryLog()
    setting = Setting(log, clock, View(log, clock), "default", partition=0)
    scheduler = Scheduler(setting, **standby)
    return scheduler, lambda: scheduler.status.trouble


def a_binder(**standby):
    binder = Binder(cluster=None, eventlog=MemoryLog(), offsets=None, **standby)
    return binder, binder.trouble


@pytest.mark.parametrize("make", [an_informer, a_stream, a_scheduler, a_binder])
async def test_trouble_of_the_way_there_is_over_once_it_waits(make):
    leadership, clock, told = Elsewhere(), HastyClock(), set()
    service, trouble = make(leadership=leadership, clock=clock, holder="standby")
    running = asyncio.create_task(service.run())
    assert trouble() == JOINS
    while leadership.failures or trouble():
        assert trouble(), "it does not know yet that another one leads"
        told.add(trouble())
        await asyncio.sleep(0.001)
        assert not running.done(), running.result()
    running.cancel()
    assert "the broker is away" in told
