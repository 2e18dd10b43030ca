"""The kubelet's own ledger: which pod held which resources of which node, and from when to when.

It is written by the simulated kubelet alone, from what happened on its nodes, so that usage
computed from the durable log can be checked against something that never saw the log.
"""

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS run (
    pod_uid    TEXT PRIMARY KEY,
    namespace  TEXT NOT NULL,
    name       TEXT NOT NULL,
    queue      TEXT NOT NULL,
    pod_group  TEXT NOT NULL,
    node       TEXT NOT NULL,
    resources  TEXT NOT NULL,
    devices    TEXT NOT NULL,
    bound_ms   INTEGER NOT NULL,
    started_ms INTEGER NOT NULL DEFAULT 0,
    ended_ms   INTEGER NOT NULL DEFAULT 0,
    outcome    TEXT NOT NULL DEFAULT ''
);
"""


class Run(NamedTuple):
    """One pod on one node.

    queue, pod_group: label `kai.scheduler/queue` and annotation `pod-group-name`, "" = none.
    resources: cpu in millicores, memory and ephemeral-storage in bytes, others as counts.
    devices:   numbers of the whole GPUs on the node that it held.
    bound_ms:  when the kubelet first saw it bound; started_ms, ended_ms: 0 = not (yet).
    outcome:   "" = not ended, `succeeded`, `deleted`, `ended by others` (its phase was
        set from outside), or why the node refused it (`OutOfcpu`, …).
    """

    pod_uid: str
    namespace: str
    name: str
    queue: str
    pod_group: str
    node: str
    resources: dict[str, int]
    devices: tuple[int, ...]
    bound_ms: int
    started_ms: int = 0
    ended_ms: int = 0
    outcome: str = ""


class RunLedger:
    """The file; `path` None keeps it in memory."""

    def __init__(self, path: Path | None) -> None:
        self._sql = sqlite3.connect(str(path or ":memory:"), isolation_level=None)
        self._sql.execute("PRAGMA journal_mode = WAL")
        self._sql.execute("PRAGMA synchronous = OFF")  # as in `database.py`
        self._sql.executescript(_SCHEMA)

    def bound(self, run: Run) -> None:
        """A pod has come to its node; seen again after a restart, it keeps its first times."""
        self._sql.execute(
            "INSERT OR IGNORE INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            run._replace(resources=_text(run.resources), devices=json.dumps(run.devices)),  # type: ignore[arg-type]
        )

    def started(self, pod_uid: str, now_ms: int) -> None:
        """Its containers run."""
        self._sql.execute("UPDATE run SET started_ms = ? WHERE pod_uid = ?", (now_ms, pod_uid))

    def ended(self, pod_uid: str, now_ms: int, outcome: str) -> None:
        """It holds nothing any more. Entered before the API is told, so that no crash loses it."""
        self._sql.execute(
            "UPDATE run SET ended_ms = ?, outcome = ? WHERE pod_uid = ?",
            (now_ms, outcome, pod_uid),
        )

    def resumed(self, pod_uid: str) -> None:
        """A crash came between `ended` and the API: it has not ended."""
        self.ended(pod_uid, 0, "")

    def find(self, pod_uid: str) -> Run | None:
        """What is known of a pod."""
        row = self._sql.execute("SELECT * FROM run WHERE pod_uid = ?", (pod_uid,)).fetchone()
        return _run(row) if row else None

    def unended(self) -> list[Run]:
        """Pods that hold resources."""
        return [_run(row) for row in self._sql.execute("SELECT * FROM run WHERE ended_ms = 0")]

    def all(self) -> list[Run]:
        """Every pod, by time bound."""
        rows = self._sql.execute("SELECT * FROM run ORDER BY bound_ms, pod_uid")
        return [_run(row) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._sql.close()


def _text(resources: Mapping[str, int]) -> str:
    return json.dumps(resources, sort_keys=True)


def _run(row: tuple[object, ...]) -> Run:
    run = Run(*row)  # type: ignore[arg-type]
    return run._replace(
        resources=json.loads(str(run.resources)), devices=tuple(json.loads(str(run.devices)))
    )


def read_runs(path: Path) -> list[Run]:
    """The kubelet's ledger of `DIR/kubelet.db`, by time bound; works while the kubelet runs."""
    sql = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = sql.execute("SELECT * FROM run ORDER BY bound_ms, pod_uid").fetchall()
    finally:
        sql.close()
    return [_run(row) for row in rows]
