"""`kai-es decide SNAPSHOT.zip`: one whole cycle on a dump of the reference, no log needed."""

import argparse
import json
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from kai_es.cli import BAD_INPUT, OK


def add_parser(subparsers: Any) -> None:
    """Enter the subcommand."""
    parser = subparsers.add_parser(
        "decide", help="one cycle on a snapshot file in the reference's form"
    )
    parser.add_argument("file", type=Path, metavar="SNAPSHOT.zip")
    parser.add_argument("--compat", action="store_true", help="decide as the reference does")
    parser.add_argument("--now", metavar="RFC3339", help="default: newest time in the file + 1 h")
    parser.add_argument(
        "--usage", type=Path, metavar="FILE", help="JSON: queue -> cpu|memory|gpu -> 0..1"
    )
    parser.add_argument("-o", "--output", choices=["json"], default="json")


def run(args: argparse.Namespace) -> int:
    """Decide and print."""
    from kai_es.scheduler.config import ConfigError
    from kai_es.scheduler.snapshot_file import SnapshotFileError

    try:
        result = decide_file(args.file, compat=args.compat, now=args.now, usage=args.usage)
    except (SnapshotFileError, ConfigError, _BadInputError) as exc:
        print(f"kai-es decide: {exc}", file=sys.stderr)
        return BAD_INPUT
    json.dump(result, sys.stdout, indent=2, sort_keys=True)
    print()
    return OK


class _BadInputError(ValueError):
    pass


def decide_file(
    path: Path, *, compat: bool, now: str | None = None, usage: Path | None = None
) -> dict[str, Any]:
    """The result of one cycle on a file, in the form of the differential cases.

    Raises:
        SnapshotFileError, ConfigError: the file cannot be used.
    """
    from kai_es.events.decisions import CycleInputs
    from kai_es.kube.times import time_ms_or_unset
    from kai_es.scheduler import flags
    from kai_es.scheduler.decide import close, open_session, run_action
    from kai_es.scheduler.digest import decision_digest
    from kai_es.scheduler.snapshot_file import load_dump

    started = time.perf_counter()
    loaded = load_dump(_read(path))
    now_ms = loaded.now_ms
    if now is not None:
        now_ms = time_ms_or_unset(now)
        if not now_ms:
            raise _BadInputError(f"--now is {now!r}, want a time such as 2026-01-31T12:00:00Z")
    inputs = CycleInputs(
        shard="default",
        cycle=1,
        now_ms=now_ms,
        usage={} if usage is None else _usage(usage),
        flags=tuple(sorted(flags.ALL if compat else flags.NONE)),
    )
    columns = open_session(loaded.snapshot, loaded.config, inputs).columns
    ms, mark = {"load": _since(started)}, time.perf_counter()
    session = open_session(loaded.snapshot, loaded.config, inputs)
    ms["open"] = _since(mark)
    for action in loaded.config.actions:
        mark = time.perf_counter()
        run_action(session, action)
        ms[action] = _since(mark)
    decision = close(session)
    assert session.columns is columns, "the second session opened on the same columns"
    for problem in loaded.parked:
        print(f"kai-es decide: left out: {problem}", file=sys.stderr)
    config = loaded.config.shard("default")
    return {
        **outcome(session),
        "reasons": _reasons(session, decision),
        "ms": ms,
        "digest": decision_digest(config, inputs, decision),
    }


def _since(mark: float) -> float:
    return round((time.perf_counter() - mark) * 1000, 3)


def _read(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as file:
            return json.loads(file.read("snapshot.json"))
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as exc:
        raise _BadInputError(f"{path}: {exc}; want a ZIP file that holds snapshot.json") from exc


def _usage(path: Path) -> dict[str, dict[str, float]]:
    try:
        raw = json.loads(path.read_text())
        return {
            queue: {resource: float(value) for resource, value in used.items()}
            for queue, used in raw.items()
        }
    except (OSError, ValueError, AttributeError, TypeError) as exc:
        raise _BadInputError(
            f'{path}: {exc}; want JSON such as {{"team-a": {{"gpu": 0.25}}}}'
        ) from exc


def outcome(session: Any) -> dict[str, Any]:
    """`jobs` and `fair_share` of a session, as conformance/differential/README.md has them."""
    from kai_es.scheduler import flags
    from kai_es.scheduler.columns.nodes import NO_ROW
    from kai_es.snapshot.status import TaskStatus

    on_device: dict[tuple[int, str], list[str]] = {}
    jobs: dict[str, Any] = {}
    names = Counter(job.name for job in session.columns.jobs.values())
    shared: list[tuple[dict[str, Any], int, tuple[str, ...]]] = []
    for job in sorted(session.columns.jobs.values(), key=lambda job: job.key):
        pods = {}
        tasks = [task for leaf in job.tasks for task in leaf] + list(job.strangers)
        for task in tasks:
            row = session.row(task)
            status = TaskStatus(session.status[task])
            entry: dict[str, Any] = {"status": _word(status)}
            n = session.node_of(task)
            groups: tuple[str, ...] = ()
            if n != NO_ROW:
                entry["node"] = session.nodes.columns.facts[n].name
                groups = session.groups_of(task) if row.shape.shared else ()
            elif flags.UNDO_LEAKS_SHARES in session.flags:
                groups = session.tried_groups.get(task, ())
            if groups:
                shared.append((entry, n, groups))
            for group in groups:
                on_device.setdefault((n, group), []).append(row.pod.name)
            pods[row.pod.name] = entry
        name = job.name if names[job.name] == 1 else f"{job.namespace}/{job.name}"
        jobs[name] = pods
    for entry, n, groups in shared:
        entry["gpus"] = sorted(sorted(on_device[n, group]) for group in groups)
    fair = {} if session.shares is None else {s.queue: s for s in session.shares.shares()}
    whole = flags.SHARES_IN_WHOLE_DEVICES in session.flags
    shares = {name: _share(share, whole=whole) for name, share in sorted(fair.items())}
    return {"jobs": jobs, "fair_share": shares}


def _word(status: Any) -> str:
    return "".join(part.capitalize() for part in status.name.split("_"))


def _share(share: Any, *, whole: bool) -> dict[str, float]:
    cpu, memory, gpu = share.fair_share
    devices = -1.0 if gpu == -1 else gpu / 1_000_000
    if whole and devices != -1:
        devices = float(int(devices)) if devices >= 1 else round(devices, 2)
    return {"cpu_milli": cpu, "memory_bytes": memory, "gpu": devices}


def _reasons(session: Any, decision: Any) -> dict[str, Any]:
    import msgspec

    by_uid = {job.uid: job for job in session.columns.jobs.values()}
    return {
        f"{by_uid[uid].namespace}/{by_uid[uid].name}": msgspec.to_builtins(reasons)
        for uid, reasons in decision.reasons.items()
    }
