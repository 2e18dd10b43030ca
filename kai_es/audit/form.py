"""The form of the log's records: sizes, digests, times, order (invariants 8, 10, 11, 13)."""

from typing import Final

from kai_es.audit.findings import Findings
from kai_es.cycle.turn import whole_decision
from kai_es.events.decisions import Cycle, Reign
from kai_es.events.digest import cycle_digest
from kai_es.events.envelope import Envelope
from kai_es.events.snapshot import Batch
from kai_es.snapshot.world import World
from projectors.batching import BATCH_ROWS_MAX, recorded_id
from projectors.cycles import CYCLE_BYTES_MAX, encode_cycle

RECORD_BYTES_MAX: Final = 16 * 1024 * 1024


class Form:
    """Looks at accepted batches in their order."""

    def __init__(self, world: World, findings: Findings) -> None:
        self._world = world
        self._findings = findings
        self._predecessor: dict[str, int] = {}

    def record(self, where: str, n_bytes: int) -> None:
        """A record of any topic."""
        self._findings.checked("13 record sizes")
        if n_bytes > RECORD_BYTES_MAX:
            self._findings.violated("13", where, f"{n_bytes} bytes, limit {RECORD_BYTES_MAX}")

    def batch(self, offset: int, batch: Batch, record: Envelope) -> None:
        """An accepted batch that is about to be folded, and its record."""
        where = f"snapshot {offset}"
        self._findings.checked("8 accepted batches")
        if record.id != recorded_id(batch, bytes(record.data)):
            self._findings.violated("digest", where, f"id {record.id} is not that of its rows")
        n_records = len({(origin.source, origin.position) for origin in batch.origins})
        if len(batch.rows) > BATCH_ROWS_MAX and n_records > 1:
            self._findings.violated("13", where, f"{len(batch.rows)} rows")
        for row in batch.rows:
            if isinstance(row, Cycle):
                self._cycle(row, offset)
            elif isinstance(row, Reign):
                self._predecessor[row.shard] = offset

    def _cycle(self, cycle: Cycle, offset: int) -> None:
        where = f"snapshot {offset}"
        self._findings.checked("10 cycles")
        before = self._predecessor.get(cycle.shard, -1)
        if cycle.offset < before:
            self._findings.violated(
                "11",
                where,
                f"cycle {cycle.cycle} saw {cycle.offset}, its predecessor is in {before}",
            )
        if cycle.offset >= offset:
            self._findings.violated("11", where, f"cycle {cycle.cycle} saw {cycle.offset}, later")
        self._predecessor[cycle.shard] = offset
        n_bytes = len(encode_cycle(cycle))
        if n_bytes > CYCLE_BYTES_MAX:
            self._findings.violated("13", where, f"cycle {cycle.cycle} has {n_bytes} bytes")
        held = self._world.reigns.reasons.get(cycle.shard, {})
        if any(uid not in held for uid in cycle.reasons_same):
            return  # the fold stops at it and says so
        whole = whole_decision(cycle, held)
        if cycle_digest(cycle.config_digest, cycle.inputs, whole) != cycle.digest:
            self._findings.violated("digest", where, f"cycle {cycle.cycle}: digest is not its own")
