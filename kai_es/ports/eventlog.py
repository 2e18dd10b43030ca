"""The durable log (architecture §2, §7) and who may write to it."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, NamedTuple, NewType, Protocol

from kai_es.events.envelope import Envelope
from kai_es.ports.errors import FencedError

Position = NewType("Position", int)


class Epoch(NamedTuple):
    """A right to append as `producer_id`, until the next `take_over` of that id."""

    producer_id: str
    number: int


class Out(NamedTuple):
    """A record to append. `partition` None = by key; `envelope` None = tombstone of `key`."""

    topic: str
    key: str
    partition: int | None
    envelope: Envelope | None


class Entry(NamedTuple):
    """A stored record. `value` None = tombstone; `events.codec.decode` opens it."""

    position: Position
    key: str
    value: bytes | None


class ReadableLog(Protocol):
    """The reading half of an `EventLog`, whose contract holds; an exported file is one too."""

    def read(
        self, topic: str, partition: int, start: Position, *, follow: bool
    ) -> AsyncIterator[Sequence[Entry]]:
        """Entries from `start` on, in order, in non-empty chunks; ends at the end without follow.

        With `follow`, waits for new entries and never ends by itself; an empty chunk is yielded
        at least every 100 ms while there is nothing, so that the caller can look at its clock.

        Raises:
            GoneError: entries from `start` on are no longer kept; nothing is ever stepped over.
        """
        ...

    async def begin(self, topic: str) -> Mapping[int, Position]:
        """First position kept, per partition."""
        ...

    async def end(self, topic: str) -> Mapping[int, Position]:
        """Position after the last committed record, per partition; `begin` where there is none.

        A reader whose next position is not below it is caught up: markers after the last record
        do not count.
        """
        ...


class EventLog(ReadableLog, Protocol):
    """An ordered, durable, partitioned log.

    * `append` is all or nothing over topics and partitions, and returns only when the batch is
      durable. Positions come back in the order of the batch.
    * Positions are opaque and grow within a partition; gaps are normal.
    * `read` never yields a record of an aborted or unfinished append, and yields in order.
    * After `take_over`, `append` with an older epoch of that producer raises FencedError, and so
      does an append whose outcome is unknown: the holder ends its process.
    * `append_one` is idempotent against the client's own retries and non-transactional; after an
      unknown outcome (UnavailableError) the record may or may not be there, at most twice.
    * Topic names are those of architecture §2 without the prefix, which the adapter adds.
    * A key's partition, unless given, is `events.catalogue.partition_of`.

    Raises (everywhere): UnavailableError, FencedError, CorruptLogError. A position that the log
    never reached (it was restored from an older copy) is a CorruptLogError too.
    """

    async def take_over(self, producer_id: str) -> Epoch:
        """Fence every older writer of `producer_id`; nothing of theirs commits from here on."""
        ...

    async def append(self, epoch: Epoch, batch: Sequence[Out]) -> Sequence[Position]:
        """Append all of `batch` in one transaction."""
        ...

    async def append_one(self, topic: str, key: str, envelope: Envelope) -> Position:
        """Append one record to partition 0 of a topic without a transaction."""
        ...

    async def trim(self, topic: str, partition: int, before: Position) -> None:
        """Delete entries below `before`."""
        ...

    async def close(self) -> None:
        """Release everything; unfinished appends are aborted."""
        ...


class Mark(NamedTuple):
    """Where a consumer goes on in a partition, with a note of its own for its next start."""

    position: Position
    note: str = ""


class Offsets(Protocol):
    """How far consumers have come, for those whose output tells it only after a long read.

    A mark may be older than the truth, never newer: consumers store it after their output.

    Raises (everywhere): UnavailableError.
    """

    async def load(self, consumer: str, topic: str) -> Mapping[int, Mark]:
        """The stored marks by partition."""
        ...

    async def store(self, consumer: str, topic: str, marks: Mapping[int, Mark]) -> None:
        """Replace the marks of these partitions."""
        ...


class Lease(Protocol):
    """A held role. `age_s` is measured on the monotonic clock."""

    def age_s(self) -> float:
        """Seconds since the last successful renewal; see `check_lease`."""
        ...

    async def lost(self) -> None:
        """Returns when the role is no longer held."""
        ...

    async def release(self) -> None:
        """Give the role up, so that a standby need not wait for the session to end.

        While the log is away it ends by itself: that is no error.
        """
        ...


JOINS: Final = "joins the others of its role"
"""Trouble of a process until it leads, or knows who does."""

LEASE_MAX_S: Final = 10.0
"""Under an older lease nothing is sent: another may have the role (architecture §3)."""


def check_lease(lease: Lease, role: str) -> None:
    """To be called before anything is sent under a role, and again before each repetition.

    Raises:
        FencedError: the lease is too old, so another may write by now: the process ends.
    """
    age_s = lease.age_s()
    if age_s > LEASE_MAX_S:
        raise FencedError(f"lease of {role} was last renewed {age_s:.1f} s ago")


def lost_error(role: str) -> FencedError:
    """For a process whose lease is lost: it ends."""
    return FencedError(
        f"the role {role} has passed to another process, or could not be renewed in time (is the "
        "log there?)"
    )


class Leadership(Protocol):
    """Who may act in a role (`informer`, `snapshot`, `scheduler-<shard>`).

    One holder at a time is the aim; fencing in `EventLog` is what makes two harmless.
    """

    async def acquire(
        self, role: str, holder: str, waits: Callable[[], None] = lambda: None
    ) -> Lease:
        """Wait until this holder leads; `waits` is called once it is certain that another does."""
        ...
