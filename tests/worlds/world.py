"""One world: made from its seed, troubled, healed, and looked at."""

import asyncio
import random
from dataclasses import dataclass

from kai_es.eventlog.faults import FaultPlan, LogFaults
from kai_es.eventlog.memory import MemoryLeadership
from kai_es.eventlog.memory_offsets import MemoryOffsets
from kai_es.events.catalogue import SNAPSHOT
from kai_es.simulate.books import Database, MemoryCheckpoints, MemoryHistory, MemoryUsage
from kai_es.simulate.kinds import POD
from tests.worlds.ending import absences, look_back
from tests.worlds.failure import Failures
from tests.worlds.loop import run_world
from tests.worlds.mishaps import Mishaps
from tests.worlds.processes import slots
from tests.worlds.site import Site
from tests.worlds.truth import TrueStore, Truth
from tests.worlds.users import Users
from tests.worlds.watcher import Watcher

IDLE_S = 5.0
"""How often followers of the log look up by themselves; what is appended wakes them at once."""

HEALED_S = 60.0
"""So long after the last fault, or the last bind or end of a pod, at most, the next one comes …"""

BACKLOG_S = 600.0
"""… and by then all that has piled up has run (invariant 21)."""

LAG_MAX_S = 5.0

STATED_S = 120.0
"""What is written late is written by then: marks wait half a minute, lost answers are waited for.
Whether it is right is looked at in the end."""

PAGES = (500, 500, 7, 3)
"""Objects that the API server gives in one page: all in one, or many pages."""

FOR_EVER = "ForEver"
"""Reason of a fault of the API server that healing does not mend."""

_NOTHING = {"spec": {}}


@dataclass(frozen=True)
class Figures:
    """What a world was like."""

    seed: int
    virtual_s: float
    n_batches: int
    n_cycles: int
    n_binds: int
    n_evictions: int
    n_starts: int
    told: tuple[str, ...]
    digest: str


class World:
    """Everything of one world; `run` is its life.

    script:  what happens to it instead of mishaps, a coroutine function; nothing else goes wrong.
    is_calm: nothing at all goes wrong.
    spared:  names of jobs that need not end.
    """

    def __init__(self, seed, script=None):
        self.seed = seed
        self.spared = set()
        self._script = script
        self.failures = Failures(seed)
        self.notes = []
        self.truth = Truth(self.failures)
        self._shape = self.chance("shape")
        self.is_calm = seed % 10 == 0 and script is None
        self.store = TrueStore(self.truth, faults=self._log_faults(), idle_s=IDLE_S)
        self.leadership = MemoryLeadership()
        self.offsets = MemoryOffsets()
        self.database = Database()
        self.usage = MemoryUsage(self.database)
        self.history = MemoryHistory(self.database)
        self.checkpoints = MemoryCheckpoints(self.database)
        self.site = Site(seed, self.truth, page=self._shape.choice(PAGES))
        self.trouble_s = self._shape.choice((15, 30, 45))
        self.users = Users(seed, self.chance("users"), arrival_s=self.trouble_s * 0.8)
        copies = self._shape.choice((1, 2, 2))
        self.slots = slots(self, copies, n_status=self._shape.choice((0, 0, 0, 0, 1, copies)))
        self.mishaps = Mishaps(
            self,
            self.chance("mishaps"),
            n=0 if self.is_calm or script else self._shape.randint(2, 14),
            until_s=self.trouble_s,
        )
        self.watcher = Watcher(self)
        self.truth.loads = self.watcher.reading.loads

    def chance(self, what):
        """A stream of chance of its own, so that one use of it does not move the others."""
        return random.Random(f"{self.seed}/{what}")

    def _log_faults(self):
        if self.is_calm or self._script:
            return None
        rare, often = self._shape.choice((0, 0.002)), self._shape.choice((0.02, 0.2))
        return LogFaults(
            seed=self.seed,
            gap_rate=often,
            lag_rate=often,
            hold_rate=self._shape.choice((0, 0.02, 0.1)),
            hold_ms=self._shape.choice((100, 3000)),
            unknown_rate=often / 4,
            fenced_rate=rare,
        )

    async def run(self):
        """From the beginning to the end; raises WorldError."""
        life = asyncio.create_task(self._live())
        watching = asyncio.create_task(self.watcher.run())
        await asyncio.wait(
            [life, watching, self.failures.first], return_when=asyncio.FIRST_COMPLETED
        )
        self.failures.check()
        if watching.done():
            watching.result()
        digest = await life
        self.failures.check()
        return self._figures(digest)

    async def _live(self):
        await self.users.furnish(self.site)
        self.site.start()
        self._running = [asyncio.create_task(slot.run()) for slot in self.slots]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.users.run(self.site))
            tasks.create_task(self._script(self) if self._script else self.mishaps.run())
        self._heal()
        await self._settle()
        return await look_back(self)

    def _heal(self):
        self.store.plan = FaultPlan(None)
        self.site.api.faults.rules = [r for r in self.site.api.faults.rules if r.reason == FOR_EVER]
        self.site.cuts = 0
        self.database.fail.clear()
        for slot in self.slots:
            slot.zombie_s = 0.0
        self.healed_s = asyncio.get_running_loop().time()

    async def _settle(self):
        """Wait until all work is done, and see that nothing lags (invariant 21)."""
        loop = asyncio.get_running_loop()
        moved, moved_s = (), self.healed_s
        while left := self._left():
            # The cluster may be full; what waits then is waiting for pods that run to their end.
            if moved != (moved := (self.truth.n_binds, len(self.site.ended()))):
                moved_s = loop.time()
            if loop.time() > moved_s + HEALED_S or loop.time() > self.healed_s + BACKLOG_S:
                self._late(left)
                break
            await asyncio.sleep(1)
        await asyncio.sleep(LAG_MAX_S)
        while lags := self._lags():
            if loop.time() > self.healed_s + HEALED_S:
                self.failures.violated("21", "; ".join(lags))
                break
            await asyncio.sleep(1)
        until = loop.time() + STATED_S
        while self._states() and loop.time() < until:
            await asyncio.sleep(1)

    def _states(self):
        """Whether statuses are still to be written, or nobody leads yet who would know."""
        writers = [slot.part for slot in self.status_slots()]
        leads = any(writer.leads() for writer in writers)
        return bool(writers) and (not leads or any(writer.n_waiting() for writer in writers))

    def status_slots(self):
        """Where status writers run; some worlds have none."""
        return [slot for slot in self.slots if slot.name.startswith("status")]

    def _left(self):
        """Pods of the users that are still to run to their end."""
        ended = self.site.ended()
        live = {(p["metadata"]["namespace"], p["metadata"]["name"]): p for p in self.site.live(POD)}
        left = []
        for group, min_member, pods in self.users.jobs:
            rest = [pod for pod in pods if pod not in ended]
            if group in self.spared or len(rest) < min_member:
                continue  # what is left of a gang can never start again
            for space, name in rest:
                node = live.get((space, name), _NOTHING)["spec"].get("nodeName", "nowhere")
                left.append(f"{group}: {name} on {node}")
        return left

    def _late(self, names):
        text = f"{len(names)} pods not ended long after the last fault: {', '.join(names[:5])}"
        reasons = self.watcher.reading.world.reigns.reasons
        why = [
            [reason.code for reason in known.reasons]
            for by_group in reasons.values()
            for known in by_group.values()
        ]
        gates = [s.part.status.gate for s in self.slots if s.name.startswith("scheduler")]
        self.failures.violated("21", f"{text}; reasons {why}; {gates}")

    def _lags(self):
        """Who lags, and by how much."""
        end = len(self.store.partitions[SNAPSHOT, 0].entries)
        lags = []
        for slot in self.slots:
            part, lag_s = slot.part, 0.0
            if slot.name.startswith("scheduler"):
                lag_s = part.view.age_ms() / 1000
            elif slot.name.startswith("snapshot"):
                lag_s = part.lag_s()
            elif slot.name.startswith("books"):
                lag_s = self._uncommitted_s(part.status)
            if lag_s >= LAG_MAX_S:
                lags.append(f"{slot.name} lags by {lag_s:.1f} s")
            if slot.name.startswith("binder") and part.n_open():
                lags.append(f"{slot.name} has {part.n_open()} open requests")
        lags += absences(self.site, self.watcher.reading.world)
        return lags if end else ["nothing is in the log"]

    def _uncommitted_s(self, status):
        """Age of the oldest batch that is not in the books."""
        newest_ms = self.watcher.reading.world.time
        committed = [time_ms for _, time_ms in status.committed.values()]
        return (newest_ms - min(committed, default=0)) / 1000

    def _figures(self, digest):
        reigns = self.watcher.reading.world.reigns
        return Figures(
            seed=self.seed,
            virtual_s=asyncio.get_running_loop().time(),
            n_batches=len(self.store.partitions[SNAPSHOT, 0].entries),
            n_cycles=sum(reigns.last_cycle(shard) for shard in reigns.shards),
            n_binds=self.truth.n_binds,
            n_evictions=self.truth.n_evictions,
            n_starts=sum(slot.n_starts for slot in self.slots),
            told=tuple(self.mishaps.told),
            digest=digest,
        )


def run_seed(seed, script=None):
    """The world of a seed.

    Raises:
        WorldError: an invariant does not hold.
    """

    async def main():
        return await World(seed, script).run()

    return run_world(main())
