"""Shapes of one scheduler cycle: wall time from the columnar state, loading apart."""

import gc
import time
from collections import Counter
from typing import Any

from benchmarks.clusters import NOW_MS, SHAPES
from kai_es.events.decisions import CycleInputs
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import close, columns_of, open_session, run_action
from kai_es.snapshot.snapshot import Snapshot

RUNS = 3
"""Times that a cycle is measured; the best counts, the machine is shared."""


def run_shape(name: str) -> dict[str, Any]:
    """The best of a few cycles on one cluster; every cycle decides from the same rows."""
    started = time.perf_counter()
    return best_cycle(SHAPES[name]().load(), Config(), started)


def best_cycle(snapshot: Snapshot, config: Config, started: float) -> dict[str, Any]:
    """The same for rows whose loading began at `started`."""
    columns_of(snapshot, config.lens()).refresh(NOW_MS)
    load_ms = (time.perf_counter() - started) * 1000
    gc.collect()
    gc.freeze()
    best: dict[str, Any] = {}
    for _ in range(RUNS):
        result = _cycle(snapshot, config)
        if not best or result["wall_ms"] < best["wall_ms"]:
            best = result
    return {**best, "load_ms": round(load_ms)}


def _cycle(snapshot: Snapshot, config: Config) -> dict[str, Any]:
    inputs = CycleInputs(shard="bench", cycle=1, now_ms=NOW_MS)
    cpu_started = time.process_time()
    marks = [("open", time.perf_counter())]
    session = open_session(snapshot, config, inputs)
    for action in config.actions:
        marks.append((action, time.perf_counter()))
        run_action(session, action)
    marks.append(("close", time.perf_counter()))
    decision = close(session)
    ends = [mark for _, mark in marks[1:]] + [time.perf_counter()]
    parts = {
        part: round((end - mark) * 1000, 1) for (part, mark), end in zip(marks, ends, strict=True)
    }
    cpu_s = time.process_time() - cpu_started
    ops = Counter(type(op).__name__.lower() for op in decision.ops)
    return {
        "wall_ms": round((ends[-1] - marks[0][1]) * 1000, 1),
        "cpu_ms": round(cpu_s * 1000, 1),
        "parts_ms": parts,
        "scenarios": session.hooks.counters.get("scenarios", 0),
        "result": {**ops, "waiting_groups": len(decision.reasons)},
    }
