"""The checks that run along while `snapshot` is read, by `verify` or live by a simulation."""

from kai_es.audit.findings import Findings
from kai_es.audit.form import Form
from kai_es.audit.ledger import Ledger
from kai_es.audit.load import Loads
from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.codec import decode
from kai_es.events.decisions import Cycle
from kai_es.events.requests import request_id
from kai_es.events.snapshot import Batch
from kai_es.ports.eventlog import Entry
from kai_es.reader.records import batch_of
from kai_es.snapshot.errors import BrokenHistoryError
from kai_es.snapshot.world import Applied, Missed, World


class Reading:
    """Folds a log from a world on and looks at every record.

    loads: what each node is given; tells which may be over.
    ordered: ids of all requests in cycles that were read.
    is_whole: it reads from the beginning.
    """

    def __init__(self, world: World, findings: Findings, *, is_whole: bool) -> None:
        self.world = world
        self.findings = findings
        self.form = Form(world, findings)
        self.ledger = Ledger(world, findings)
        self.is_whole = is_whole
        self.ordered: set[str] = set()
        self.loads = Loads(world, findings)

    def take(self, entry: Entry) -> Batch | None:
        """Check and fold one record of `snapshot`.

        Returns:
            The batch, None if it is not accepted.

        Raises:
            BrokenHistoryError, PoisonError: the log contradicts itself, or cannot be read.
        """
        offset, batch = int(entry.position), batch_of(entry)
        value = entry.value or b""
        self.form.record(f"{SNAPSHOT} {offset}", len(value))
        if batch.prev == self.world.offset:
            self.form.batch(offset, batch, decode(value))
            self.ledger.before(offset, batch)
            self._note_requests(batch)
        outcome = self.world.apply(offset, batch)
        if isinstance(outcome, Missed):
            raise BrokenHistoryError(
                f"{SNAPSHOT} {offset} continues {batch.prev}, but the last accepted batch is "
                f"{self.world.offset}"
            )
        if not isinstance(outcome, Applied):
            return None
        self.ledger.after(offset, batch)
        self.loads.check(offset, batch)
        return batch

    def _note_requests(self, batch: Batch) -> None:
        for row in batch.rows:
            if isinstance(row, Cycle):
                for op in row.decision.ops:
                    self.ordered.add(
                        request_id(shard=row.shard, cycle=row.cycle, pod_uid=op.pod_uid)
                    )
