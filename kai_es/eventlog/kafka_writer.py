"""Appending to Kafka: transactions of one producer id, and single idempotent records."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Sequence
from typing import Any, Final

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, RetriableError

from kai_es.eventlog.batch import MAX_MESSAGE_BYTES, Coded
from kai_es.eventlog.group import GroupCommit
from kai_es.eventlog.kafka_client import REQUEST_MS, KafkaSettings, Worker
from kai_es.eventlog.kafka_errors import LIBRARY_ERRORS, mapped
from kai_es.ports.errors import FencedError, UnavailableError
from kai_es.ports.eventlog import Position

TRANSACTION_MS: Final = 10_000
"""The broker aborts a transaction that is open for longer; a leader stops at the same age."""

APPEND_S: Final = 15.0
"""After this the outcome of an append is unknown: the broker's own limit and a margin."""

TAKE_OVER_S: Final = 30.0
"""A take-over waits for the end of the predecessor's transaction, up to its time limit."""

MARKERS_S: Final = 10.0
"""A commit is decided in every partition a few milliseconds after it is acknowledged."""

_MARKERS_POLL_S: Final = 0.005
_DELIVERY_MS: Final = 2 * REQUEST_MS
CLOSE_S: Final = 2.0
"""An append takes milliseconds; one that takes longer meets a broker that is away."""

_PRODUCER: Final[dict[str, Any]] = {
    "acks": "all",
    "metrics_enabled": False,
    "compression_type": "lz4",
    "max_request_size": MAX_MESSAGE_BYTES,
    "batch_size": 1024 * 1024,
    "max_block_ms": REQUEST_MS,
    "allow_auto_create_topics": False,
}


logger = logging.getLogger(__name__)


class TransactionWriter:
    """All transactions of one producer id; every error is the last one.

    kafka-python 3.0.12 answers InvalidProducerEpoch to a send by raising its own epoch, which
    fences the living leader. So after any error, and after an unknown outcome, the producer is
    closed at once and never used again.

    A commit that a broker has acknowledged need not be decided in all its partitions: some brokers
    skip those that have no leader at the moment, for good (KAFKA-20734, ADR 0006). Readers wait
    there until the producer's next transaction ends, and take that one's outcome for both. So an
    append is done only when its transaction is closed in every partition, and a take-over closes
    what it finds open.

    Args:
        parts: all partitions that its transactions write.
    """

    def __init__(
        self, settings: KafkaSettings, producer_id: str, parts: Sequence[TopicPartition]
    ) -> None:
        self._settings = settings
        self._producer_id = producer_id
        self._parts = parts
        self._worker = Worker(f"log-writer-{producer_id}")
        self._producer: KafkaProducer | None = None
        self._admin: KafkaAdminClient | None = None
        self._commits = GroupCommit(self._commit)
        self._ended = ""

    async def open(self) -> int:
        """Fence all older writers; their transactions are committed or aborted from here on.

        What they appended is seen by every later read, or by none.

        Returns:
            A number that grows with every take-over of this producer id.
        """
        doing = f"take over {self._producer_id} on {self._settings.bootstrap}"
        try:
            return await self._worker.run(self._open, timeout_s=TAKE_OVER_S)
        except TimeoutError as exc:
            self._end("it could not take over in time")
            raise UnavailableError(f"cannot {doing}: no answer in {TAKE_OVER_S:.0f} s") from exc
        except LIBRARY_ERRORS as exc:
            self._end("it could not take over")
            error = mapped(exc, doing)
            # Nothing was appended: another try is safe, whoever else tries at the same time.
            raise (
                error if not isinstance(error, FencedError) else UnavailableError(str(error))
            ) from exc

    def _open(self) -> int:
        self._producer = KafkaProducer(
            **self._settings.client(
                **_PRODUCER,
                transactional_id=f"{self._settings.prefix}.{self._producer_id}",
                transaction_timeout_ms=TRANSACTION_MS,
                # A commit sends at once; until then the records of a partition share one batch.
                linger_ms=REQUEST_MS,
                delivery_timeout_ms=_DELIVERY_MS,
            )
        )
        self._admin = KafkaAdminClient(**self._settings.client())
        self._producer.init_transactions()
        self._close_open_ones(self._producer)
        # The broker's (producer id, epoch): grows with every take-over, also when the 16-bit
        # epoch overflows into a new producer id. There is no public way to it.
        current = self._producer._transaction_manager.producer_id_and_epoch
        return int(current.producer_id) << 16 | int(current.epoch)

    def _close_open_ones(self, producer: KafkaProducer) -> None:
        """Commit what is open although the broker holds it for ended: it was to be committed."""
        found = self._open_in(self._parts, time.monotonic() + MARKERS_S)
        if not found:
            return
        for part, position in sorted(found.items()):
            logger.warning(
                "an ended transaction was open and is committed now (KAFKA-20734)",
                extra={"topic": part.topic, "partition": part.partition, "position": position},
            )
        producer.begin_transaction()
        for part in found:
            # There is no public way to add a partition without a record.
            producer._transaction_manager.maybe_add_partition_to_transaction(part)
        producer.commit_transaction()
        self._wait_until_closed(found)

    def _wait_until_closed(self, parts: Collection[TopicPartition]) -> None:
        deadline = time.monotonic() + MARKERS_S
        while found := self._open_in(parts, deadline):
            if time.monotonic() > deadline:
                names = ", ".join(f"{part.topic}/{part.partition}" for part in sorted(found))
                raise KafkaTimeoutError(f"committed, but still open after {MARKERS_S:g} s: {names}")
            time.sleep(_MARKERS_POLL_S)

    def _open_in(
        self, parts: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, int]:
        """Where a transaction of this producer is open, and the position of its first record."""
        assert self._producer is not None
        assert self._admin is not None
        mine = self._producer._transaction_manager.producer_id_and_epoch.producer_id
        while True:
            try:
                states = self._admin.describe_producers(parts)
            except RetriableError:  # a leader moves, or a topic is new
                if time.monotonic() > deadline:
                    raise
                time.sleep(_MARKERS_POLL_S)
            else:
                return {
                    part: one.current_transaction_start_offset
                    for part, state in states.items()
                    for one in state.active_producers
                    if one.producer_id == mine and one.current_transaction_start_offset >= 0
                }

    async def append(self, records: Sequence[Coded]) -> list[Position]:
        """Append all records in one transaction.

        Raises:
            FencedError: anything went wrong; the holder of this epoch ends its process.
        """
        return await self._commits.do(records)

    async def _commit(
        self, works: Sequence[Sequence[Coded]]
    ) -> Sequence[list[Position] | Exception]:
        """Do all works in one transaction: each of them is in it whole, or not at all."""
        together = [record for records in works for record in records]
        try:
            positions = iter(await self._transact(together))
        except FencedError as exc:
            return [exc] * len(works)
        return [[next(positions) for _ in records] for records in works]

    async def _transact(self, records: Sequence[Coded]) -> list[Position]:
        if self._ended:
            raise FencedError(f"{self._producer_id} may no longer append: {self._ended}")
        try:
            return await self._worker.run(lambda: self._append(records), timeout_s=APPEND_S)
        except TimeoutError as exc:
            self._end("the outcome of an append is unknown")
            raise FencedError(
                f"{self._producer_id}: no answer in {APPEND_S:.0f} s, outcome of an append unknown"
            ) from exc
        except LIBRARY_ERRORS as exc:
            self._end(f"an append failed with {type(exc).__name__}")
            raise FencedError(f"{self._producer_id}: an append failed: {exc}") from exc

    def _append(self, records: Sequence[Coded]) -> list[Position]:
        producer = self._producer
        assert producer is not None
        producer.begin_transaction()
        sent = [
            producer.send(
                self._settings.topic(record.topic),
                value=record.value,
                key=record.key.encode(),
                partition=record.partition,
            )
            for record in records
        ]
        producer.commit_transaction()
        done = [future.get(timeout=0) for future in sent]
        self._wait_until_closed({record.topic_partition for record in done})
        return [Position(record.offset) for record in done]

    async def close(self) -> None:
        """Let what has begun come to its end, for a moment, and stop.

        A transaction left open would hold back all readers until its time limit.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._commits.idle()
        self._end("it was closed")

    def _end(self, why: str) -> None:
        if not self._ended:
            self._ended = why
            abandon(self._producer)
            self._worker.stop(self._close_admin)

    def _close_admin(self) -> None:
        if self._admin is not None:
            self._admin.close()


class SingleWriter:
    """Single records, each acknowledged by all replicas in sync before the next."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._worker = Worker("log-writer")
        self._producer: KafkaProducer | None = None

    async def append(self, record: Coded) -> Position:
        """Append one record.

        Raises:
            UnavailableError: the record may or may not be there.
        """
        doing = f"append to {self._settings.topic(record.topic)}"
        try:
            return await self._worker.run(lambda: self._append(record), timeout_s=APPEND_S)
        except TimeoutError as exc:
            self._renew()
            raise UnavailableError(f"cannot {doing}: no answer in {APPEND_S:.0f} s") from exc
        except LIBRARY_ERRORS as exc:
            error = mapped(exc, doing)
            # Without a transaction nobody fences: what looks like it is a lost sequence.
            raise UnavailableError(str(error)) if isinstance(error, FencedError) else error from exc

    def _append(self, record: Coded) -> Position:
        if self._producer is None:
            self._producer = KafkaProducer(
                **self._settings.client(**_PRODUCER, linger_ms=0, delivery_timeout_ms=_DELIVERY_MS)
            )
        try:
            sent = self._producer.send(
                self._settings.topic(record.topic),
                value=record.value,
                key=record.key.encode(),
                partition=record.partition,
            )
            return Position(sent.get(timeout=APPEND_S).offset)
        except BaseException:
            # A producer that goes on would deliver it after the caller's next try.
            abandon(self._producer)
            self._producer = None
            raise

    def _renew(self) -> None:
        abandon(self._producer)
        self._producer = None
        self._worker.stop()
        self._worker = Worker("log-writer")

    def close(self) -> None:
        """Stop; what is not acknowledged may or may not be there."""
        self._worker.stop()
        abandon(self._producer)


def abandon(producer: KafkaProducer | None) -> None:
    """Stop a producer from sending, at once.

    `close(timeout=0)` alone raises while records wait, and leaves the sender running.
    """
    if producer is None:
        return
    producer._sender.force_close()
    with contextlib.suppress(KafkaError):  # it tells of dropped records; their futures do, too
        producer.close(timeout=0)
