"""The scheduler's shell: log to log. It reads `snapshot`, writes decisions, and nothing else."""

import asyncio
from typing import Final

from kai_es.cycle.loop import RETRY_S, CycleLoop, Listener, Setting
from kai_es.cycle.records import end_record, producer_of
from kai_es.cycle.status import SchedulerStatus
from kai_es.cycle.takeover import Power, take_power
from kai_es.events.catalogue import DECISIONS
from kai_es.events.decisions import ReignEnd
from kai_es.ports.errors import FencedError, UnavailableError
from kai_es.ports.eventlog import LEASE_MAX_S, Leadership, Lease
from kai_es.ports.race import race

CATCH_UP_S: Final = 5.0
"""A snapshot stream that lives is behind by less; then `/readyz` says what is waited for."""


class Scheduler:
    """Decides for one shard while it leads; follows the log all the time, so it is ready to.

    Args:
        setting: what it works with; its view is run by `run`.
        leadership: decides between this process and its standby.
        holder: name of this process.
    """

    def __init__(self, setting: Setting, *, leadership: Leadership, holder: str) -> None:
        self.status = SchedulerStatus()
        self.view = setting.view
        self._set = setting
        self._leadership = leadership
        self._holder = holder
        self._loop = CycleLoop(setting, self.status)
        self._stopping = asyncio.Event()

    def listen(self, listener: Listener) -> None:
        """Call this after each cycle is durable."""
        self._loop.listen(listener)

    def stop(self) -> None:
        """End the reign in good order, so that a standby need not wait; `run` returns."""
        self._stopping.set()
        self._loop.stop()

    async def run(self) -> None:
        """Follow, and lead when it is this one's turn, until stopped.

        Raises:
            FencedError: another leader reigns, the lease is lost, an outcome is unknown: exit.
            GoneError, CorruptLogError, PoisonError, BrokenHistoryError: see `View.run`.
        """
        await race(self.view.run(), self._wait_and_lead())
        self.status.state = "stopped"

    async def _wait_and_lead(self) -> None:
        acquired: list[Lease] = []
        try:
            await race(self._acquire(acquired), self._stopping.wait())
            for lease in acquired:
                if await race(self._reign(lease), lease.lost()) == 1:
                    raise FencedError(f"the lease of {self._role} is lost")
        finally:
            for lease in acquired:
                await lease.release()

    @property
    def _role(self) -> str:
        return producer_of(self._set.shard)

    async def _acquire(self, acquired: list[Lease]) -> None:
        while not acquired:
            try:
                acquired.append(
                    await self._leadership.acquire(self._role, self._holder, self._waits)
                )
            except UnavailableError as exc:
                self.status.trouble = str(exc)
                await self._set.clock.sleep(RETRY_S)

    def _waits(self) -> None:
        self.status.trouble = ""  # a standby that has joined says nothing for hours

    async def _reign(self, lease: Lease) -> None:
        self.status.state, self.status.trouble = "taking-over", "takes over the role"
        power = await self._take_power()
        self.status.epoch = power.reign.epoch
        await race(self._catch_up(power.passed), self._stopping.wait())
        self.status.state = "leading"
        cycles = self._loop.run(power, lease)
        usage = self._set.usage
        await (cycles if usage is None else race(cycles, usage.run(self._loop.note_change)))
        await self._end(power, lease)

    async def _take_power(self) -> Power:
        here = self._set
        while True:
            try:
                return await take_power(
                    here.log,
                    here.view.world,
                    shard=here.shard,
                    partition=here.partition,
                    now_ms=here.clock.now_ms(),
                )
            except UnavailableError as exc:
                self.status.trouble = str(exc)
                await here.clock.sleep(RETRY_S)

    async def _catch_up(self, position: int) -> None:
        """Wait until all that came before this reign is folded; say so when it takes long."""
        here = self._set
        while await race(
            self.view.passed(DECISIONS, here.partition, position), here.clock.sleep(CATCH_UP_S)
        ):
            self.status.trouble = (
                f"has the role and cannot decide: `snapshot` has not come to {DECISIONS}/"
                f"{here.partition}/{position}; does a snapshot stream run?"
            )
        self.status.trouble = ""

    async def _end(self, power: Power, lease: Lease) -> None:
        """Say that no cycle of this reign will follow; if the log is away, the next one does."""
        here = self._set
        if lease.age_s() > LEASE_MAX_S:
            return
        end = ReignEnd(shard=here.shard, epoch=power.reign.epoch)
        record = end_record(end, partition=here.partition, now_ms=here.clock.now_ms())
        try:
            await here.log.append(power.epoch, [record])
        except UnavailableError as exc:
            self.status.trouble = str(exc)
