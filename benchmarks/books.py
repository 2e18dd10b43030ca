"""Shapes `books` and `rebuild`: a snapshot log folded into the embedded PostgreSQL.

`books` is the first fold, everything on, and what the questions to the result cost. `rebuild` is
what `kai-es rebuild` does afterwards, each view from nothing: at least 10,000 snapshot rows/s.
"""

import asyncio
import gc
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, perf_counter, process_time, time_ns
from typing import Any

from kai_es.cli.main import GC_THRESHOLD
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.decisions import Bind, Cycle, CycleDecision, CycleInputs, Reason, Reign
from kai_es.events.snapshot import Batch, Cursor, Origin, Removed, Row, Upserted
from kai_es.kube.labels import USER_LABEL
from kai_es.kube.objects import GpuRequest, Node, Pod, PodGroup, PodSpec, Queue, QueueShare
from kai_es.ports.reports import By
from kai_es.ports.stores import Window
from kai_es.storage import schema
from kai_es.storage.checkpoint import PostgresCheckpoints
from kai_es.storage.decayed import decayed
from kai_es.storage.embedded import EmbeddedPostgres
from kai_es.storage.engine import connect_to
from kai_es.storage.history import PostgresHistory
from kai_es.storage.identity import check_identity
from kai_es.storage.reports import PostgresReports
from kai_es.storage.usage import PostgresUsage
from projectors.batching import batch_envelope
from projectors.checkpoint import Cadence
from streams.books import Books
from streams.checkpointer import Checkpointer
from streams.local import LocalRunner
from streams.projection import history_projection, usage_projection
from streams.rebuild import rebuild
from streams.rollup import RollUps

N_JOBS = 20_000
N_NODES = 1_000
N_QUEUES = 50
IN_FLIGHT = 2_000
BATCH_ROWS = 500
STEP_MS = 2_000
START_MS = 1_764_496_800_000
GPU = 1_000_000


class _Clock:
    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_shape(name: str) -> dict[str, Any]:
    """Write a log, fold it, then ask or rebuild."""
    logging.disable()
    gc.set_threshold(*GC_THRESHOLD)
    with tempfile.TemporaryDirectory() as folder:
        postgres = EmbeddedPostgres(Path(folder) / "postgres")
        try:
            engine = connect_to(postgres.start())
            schema.upgrade(engine)
            n_rows = asyncio.run(_write(Path(folder) / "log.db"))
            began = perf_counter()
            runner = asyncio.run(_keep(Path(folder) / "log.db", engine))
            took = perf_counter() - began
            if name == "rebuild":
                return asyncio.run(_rebuild(Path(folder) / "log.db", engine, n_rows))
            asked = _ask(engine)
        finally:
            postgres.stop()
    return {
        "per_s": round(n_rows / took),
        "wall_ms": round(took * 1000),
        "result": {"rows": n_rows, "batches": runner.status.n_batches, **asked},
    }


async def _write(path: Path) -> int:
    log, n_rows, prev = SqliteLog(path), 0, -1
    try:
        for n, rows in enumerate(_batches()):
            time = START_MS + n * STEP_MS
            batch = Batch(
                prev=prev,
                time=time,
                cursors=(Cursor("objects", 0, n_rows, n_rows + len(rows)),),
                rows=rows,
                origins=tuple(Origin(0, n_rows + i, time) for i in range(len(rows))),
            )
            n_rows += len(rows)
            envelope = batch_envelope(batch, ingest_ms=time, producer="benchmark")
            prev = int(await log.append_one(SNAPSHOT, "", envelope))
    finally:
        await log.close()
    return n_rows


async def _keep(path: Path, engine: Any) -> LocalRunner:
    log, clock, store = SqliteLog(path), _Clock(), PostgresUsage(engine)
    checkpoints = PostgresCheckpoints(engine)
    usage = usage_projection(store, clock)
    runner = LocalRunner(
        log,
        Books(
            log,
            clock,
            projections=[usage, history_projection(PostgresHistory(engine), clock)],
            checkpoints=checkpoints,
            # by rows alone: the log's time runs fast here
            checkpointer=Checkpointer(checkpoints, log, clock, cadence=Cadence(every_ms=2**60)),
            rollups=RollUps(store, usage, clock),
        ),
        clock,
    )
    try:
        await runner.catch_up()
    finally:
        await log.close()
    return runner


async def _rebuild(path: Path, engine: Any, n_rows: int) -> dict[str, Any]:
    """Rewind each view and fold it again; the rows must be those that were there."""
    log, clock, checkpoints = SqliteLog(path), _Clock(), PostgresCheckpoints(engine)
    took: dict[str, float] = {}
    cpu: dict[str, float] = {}
    for store, projection in (
        (PostgresUsage(engine), usage_projection),
        (PostgresHistory(engine), history_projection),
    ):
        live = await store.digest()
        view = projection(store, clock)
        began, began_cpu = perf_counter(), process_time()
        again = await rebuild(log, checkpoints, view, clock)
        took[view.name], cpu[view.name] = perf_counter() - began, process_time() - began_cpu
        assert again.digest == live.digest, f"{view.name} differs"
    await log.close()
    return {
        "per_s": round(n_rows / max(took.values())),
        "wall_ms": round(sum(took.values()) * 1000),
        "result": {
            "rows": n_rows,
            **{f"{name}_per_s": round(n_rows / seconds) for name, seconds in took.items()},
            **{f"{name}_per_cpu_s": round(n_rows / seconds) for name, seconds in cpu.items()},
        },
    }


def _ask(engine: Any) -> dict[str, Any]:
    reports = PostgresReports(engine)
    now_ms = reports.now_ms()
    took: dict[str, Any] = {}
    began = perf_counter()
    assert check_identity(engine) is None
    took["identity_ms"] = round((perf_counter() - began) * 1000)
    for by in (By.QUEUE, By.USER):
        began = perf_counter()
        reports.usage(by, start_ms=START_MS, end_ms=now_ms)
        took[f"report_{by.value}_ms"] = round((perf_counter() - began) * 1000)
    began = perf_counter()
    with engine.connect() as connection:
        decayed(connection, Window(START_MS, 3_600_000), now_ms=now_ms)
    took["decayed_ms"] = round((perf_counter() - began) * 1000)
    return took


def _batches() -> Iterator[tuple[Row, ...]]:
    """Queues and nodes, then pods of which `IN_FLIGHT` at a time live their lives."""
    free = QueueShare(quota=-1.0, limit=-1.0, weight=1.0)
    quota = QueueShare(quota=40.0, limit=-1.0, weight=1.0)
    yield (
        Reign(shard="default", epoch=1, first_cycle=1),
        *(
            _seen(Queue(uid=f"d{n}", name=f"d{n}", gpu=free, cpu=free, memory=free), 1)
            for n in range(5)
        ),
        *(
            _seen(
                Queue(
                    uid=f"q{n}", name=f"q{n}", parent=f"d{n % 5}", gpu=quota, cpu=free, memory=free
                ),
                1,
            )
            for n in range(N_QUEUES)
        ),
    )
    amounts = {"cpu": 128_000, "memory": 2**40, "gpu": 8 * GPU, "pods": 110}
    yield tuple(
        _seen(Node(uid=f"n{n}", name=f"n{n}", allocatable=amounts, conditions={"Ready": "True"}), 1)
        for n in range(N_NODES)
    )
    rows: list[Row] = []
    cycle = 0
    for window in range(0, N_JOBS, IN_FLIGHT):
        for step in range(6):
            for n in range(window, min(window + IN_FLIGHT, N_JOBS)):
                rows += _step(n, step)
                if len(rows) >= BATCH_ROWS:
                    cycle += 1
                    yield (*rows, _cycle(cycle, n))
                    rows = []
    yield tuple(rows)


def _step(n: int, step: int) -> tuple[Row, ...]:
    if step == 0:
        group = PodGroup(
            uid=f"g{n}", namespace="team", name=f"job-{n}", queue=f"q{n % N_QUEUES}", min_member=1
        )
        return (_seen(group, 1), _seen(_pod(n, "", "Pending"), 1))
    if step == 5:
        return (
            Removed(kind="Pod", uid=f"p{n}", rv=9, incarnation=0),
            Removed(kind="PodGroup", uid=f"g{n}", rv=9, incarnation=0),
        )
    phase = ("Pending", "Running", "Running", "Succeeded")[step - 1]
    return (_seen(_pod(n, f"n{n % N_NODES}", phase), step + 1),)


def _pod(n: int, node: str, phase: str) -> Pod:
    return Pod(
        uid=f"p{n}",
        namespace="team",
        name=f"job-{n}-0",
        node=node,
        phase=phase,
        group=f"job-{n}",
        labels={USER_LABEL: f"user-{n % 200}"},
        owner=("Job", f"job-{n}"),
        spec=PodSpec(
            requests={"cpu": 8_000, "memory": 64 * 2**30, "gpu": GPU, "pods": 1},
            gpu=GpuRequest(count=1, portion=1.0),
        ),
    )


def _cycle(number: int, n: int) -> Cycle:
    op = Bind(
        pod_uid=f"p{n}",
        pod_rv=1,
        namespace="team",
        pod=f"job-{n}-0",
        group_uid=f"g{n}",
        node=f"n{n % N_NODES}",
        node_uid=f"n{n % N_NODES}",
    )
    reason = Reason(code="not-enough-resources", args={"resource": "gpu", "missing": number % 7})
    return Cycle(
        shard="default",
        epoch=1,
        cycle=number,
        offset=0,
        config_digest="c",
        inputs=CycleInputs(shard="default", cycle=number, now_ms=START_MS),
        decision=CycleDecision(ops=(op,), reasons={f"g{n - i}": (reason,) for i in range(20)}),
        digest=f"digest-{number}",
    )


def _seen(obj: Queue | Node | Pod | PodGroup, rv: int) -> Upserted:
    return Upserted(rv=rv, incarnation=0, obj=obj)
