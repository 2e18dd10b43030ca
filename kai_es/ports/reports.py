"""What can be asked of the books (architecture §9)."""

import enum
from collections.abc import Sequence
from typing import NamedTuple, Protocol


class By(enum.Enum):
    """What usage is grouped by. Values are the words of the command line."""

    QUEUE = "queue"
    NAMESPACE = "namespace"
    USER = "user"
    KIND = "kind"
    NODE_POOL = "node-pool"
    GPU_TYPE = "gpu-type"


class Bucket(enum.Enum):
    """Stretches of time that a report is cut into, in UTC."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


class GroupSum(NamedTuple):
    """Usage of one group and resource; amounts × ms, exact.

    bucket_ms: start of the bucket, None = the report is not cut.
    waiting:   asked for and not held; demand is `waiting + allocated`.
    quota, over_quota: of queues alone, for the time the quota was finite, else None.
    unlimited: the quota was unlimited at some time.
    idle, down: of node groupings alone, else None.
    """

    bucket_ms: int | None
    group: str
    resource: str
    waiting: int
    allocated: int
    quota: int | None = None
    over_quota: int | None = None
    unlimited: bool = False
    idle: int | None = None
    down: int | None = None


class ClusterSum(NamedTuple):
    """What the cluster's capacity was for: allocated + idle + down = capacity + over."""

    bucket_ms: int | None
    resource: str
    waiting: int
    capacity: int
    allocated: int
    idle: int
    down: int
    over: int


class UsageSums(NamedTuple):
    """Sums over [start, end); as_of: snapshot offset of the books."""

    start_ms: int
    end_ms: int
    as_of: int
    groups: Sequence[GroupSum]
    cluster: Sequence[ClusterSum]


class UsageReports(Protocol):
    """Usage from the books.

    Raises: UnavailableError while the store is away.
    """

    def now_ms(self) -> int:
        """Time up to which the books are folded, 0 = nothing is."""
        ...

    def usage(
        self, by: By, *, start_ms: int, end_ms: int, bucket: Bucket | None = None
    ) -> UsageSums:
        """Usage in a stretch of time."""
        ...


class ShardCycles(NamedTuple):
    """Numbers of the recorded cycles of one shard."""

    shard: str
    first: int
    last: int


class CycleLine(NamedTuple):
    """One recorded cycle.

    offset: snapshot offset of the batch that holds it; seen_offset: of the last one it saw.
    pending: pod groups that stay with a reason; ms: wall time.
    """

    shard: str
    cycle: int
    offset: int
    seen_offset: int
    time_ms: int
    binds: int
    evictions: int
    pipelines: int
    pending: int
    ms: float
    verdict: str
    digest: str
