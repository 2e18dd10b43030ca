"""The main job, embedded: a simulated cluster is scheduled, accounted for and replayed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TextIO

from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.replay import replay
from kai_es.cluster.endpoint import found
from kai_es.events.decisions import Bind
from kai_es.ports.errors import ConfigError
from kai_es.ports.reports import By, UsageSums
from kai_es.reader import View
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.embedded import ALL_PARTS, CLUSTER, PARTS, Stack
from kai_es.runtime.parts import catch_up
from kai_es.runtime.patience import Patience
from kai_es.runtime.progress import Progress, overcommitted, tally, waiting
from kai_es.runtime.stranded import GpuFigures, gpu_figures
from kai_es.runtime.wiring import open_log
from kai_es.simulate.client import Client
from kai_es.simulate.loader import USER_AGENT, Loader
from kai_es.simulate.workload import Workload
from kai_es.storage.identity import Violation, check_identity
from kai_es.storage.reports import PostgresReports

LINE_S: Final = 1.0
RESTARTS_MAX: Final = 3


class Outcome(NamedTuple):
    """What the run of a workload came to.

    placed, created: pods. waiting: pods never placed, by the code of their dominant reason.
    overcommitted: nodes given more than they have.
    stalled: it was given up.
    """

    placed: int
    created: int
    waiting: dict[str, int]
    gpus: GpuFigures
    overcommitted: Sequence[str]
    seconds: float
    stalled: bool


class Books(NamedTuple):
    """What the books and the log say afterwards.

    violation: of the usage identity, None = exact.
    n_cycles, n_identical: recorded cycles, and those that replay byte for byte.
    n_binding: recorded cycles that contain a bind.
    differences: of those that do not.
    """

    sums: UsageSums
    violation: Violation | None
    n_cycles: int
    n_identical: int
    n_binding: int
    differences: Sequence[str]


@dataclass(slots=True)
class Demo:
    """One run.

    once: all pods are there before the parts start, so that the first cycle sees them all, and none
        ends: done after the first cycle without an op.
    """

    stack: Stack
    workload: Workload
    once: bool
    out: TextIO
    plain: bool
    started_ms: int = 0

    async def run(self, seed: int) -> Outcome:
        """Schedule the workload to its end."""
        clock = SystemClock()
        self.started_ms = clock.now_ms()
        await self.stack.start_cluster(seed)
        async with Client(found(self.stack.settings.kubeconfig), USER_AGENT) as client:
            loader = Loader(client, clock)
            if self.once:
                self._show(f"creating {self.workload.n_pods} pods")
                await loader.load(self.workload)
            self.stack.start_parts(ALL_PARTS, listen="127.0.0.1:0")
            start_s = clock.monotonic_s()
            async with open_log(self.stack.settings) as opened:
                view = View(opened.log, clock)
                progress = Progress(view)
                stalled = await self._follow(view, progress, loader, start_s)
        world = view.world
        return Outcome(
            placed=len(progress.placed),
            created=loader.n_pods,
            waiting=waiting(world, self.stack.settings.shard),
            gpus=gpu_figures(world),
            overcommitted=overcommitted(world),
            seconds=clock.monotonic_s() - start_s,
            stalled=stalled,
        )

    async def close_books(self) -> Books:
        """Stop the parts, bring the books to the end of the log, and check both."""
        for child in (PARTS, CLUSTER):
            await self.stack.supervisor.stop(child)
        await catch_up(self.stack.settings, self.stack.engine)
        engine = self.stack.engine
        reports = PostgresReports(engine)
        start_ms, end_ms = self.started_ms, await asyncio.to_thread(reports.now_ms)
        sums = await asyncio.to_thread(
            lambda: reports.usage(By.QUEUE, start_ms=start_ms, end_ms=end_ms)
        )
        violation = await asyncio.to_thread(check_identity, engine)
        n_identical = n_binding = 0
        differences: list[str] = []
        async with open_log(self.stack.settings) as opened:
            cycles = await recorded_cycles(opened.log)
            async for replayed in replay(opened.log, cycles):
                n_identical += replayed.is_identical
                n_binding += any(isinstance(op, Bind) for op in replayed.recorded.decision.ops)
                if not replayed.is_identical:
                    differences.append(f"cycle {replayed.recorded.cycle}: {replayed.difference}")
        return Books(sums, violation, len(cycles), n_identical, n_binding, differences)

    async def _load(self, loader: Loader) -> None:
        if not self.once:
            await loader.load(self.workload)

    async def _follow(self, view: View, progress: Progress, loader: Loader, start_s: float) -> bool:
        """Create what is not there yet and show lines until the end; True = stalled."""
        following = asyncio.create_task(view.run())
        loading = asyncio.create_task(self._load(loader))
        try:
            return await self._watch(progress, loading, following, start_s)
        finally:
            for task in (loading, following):
                task.cancel()
            await asyncio.gather(loading, following, return_exceptions=True)

    async def _watch(
        self,
        progress: Progress,
        loading: "asyncio.Task[None]",
        following: "asyncio.Task[None]",
        start_s: float,
    ) -> bool:
        """Show lines until the end; True = nothing has changed for too long."""
        clock, patience = SystemClock(), Patience(start_s)
        while True:
            await asyncio.wait((following,), timeout=LINE_S)
            for task in (loading, following):
                if task.done():
                    task.result()
            self._check_children(progress)
            line = progress.line(clock.monotonic_s() - start_s)
            self._show(line)
            if loading.done() and self._is_done(progress):
                self._show(line, last=True)
                return False
            state, now_s = line.partition("pods")[2], clock.monotonic_s()
            cpu_s = sum(child.cpu_s() for child in self.stack.supervisor.children)
            if patience.is_over(state, now_s=now_s, cpu_s=cpu_s):
                self._show(line, last=True)
                return True

    def _check_children(self, progress: Progress) -> None:
        """A process that cannot even start is no reason to wait."""
        for child in self.stack.supervisor.children:
            if child.restarts >= RESTARTS_MAX and progress.n_cycles == 0:
                raise ConfigError(
                    f"{child.name} ended {child.restarts} times at its start (exit code "
                    f"{child.last_exit}): see {self.stack.instance.logs / child.name}.log"
                )

    def _is_done(self, progress: Progress) -> bool:
        """A pod that ended while it was being evicted is gone: what counts is what was created."""
        now = tally(progress.view.world)
        if len(progress.created) < self.workload.n_pods or now.binding:
            return False
        if now.pending == 0 and (self.once or now.running == 0):
            return True
        quiet = progress.last is not None and not progress.last.decision.ops
        return quiet and (self.once or now.running == 0)

    def _show(self, line: str, *, last: bool = False) -> None:
        if self.plain or not self.out.isatty():
            if not last:
                self.out.write(line + "\n")
        else:
            self.out.write("\r\x1b[K" + line + ("\n" if last else ""))
        self.out.flush()
