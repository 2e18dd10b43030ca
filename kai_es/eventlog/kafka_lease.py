"""Leadership by a consumer group per role over the one partition of `snapshot`."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.kafka_errors import LIBRARY_ERRORS, mapped
from kai_es.eventlog.lease import LEASE_S
from kai_es.events.catalogue import SNAPSHOT

HEARTBEATS_PER_SESSION: Final = 4
"""Three may get lost before the group gives the role to a standby."""

_POLL_MS: Final = 100
_LEAVE_MS: Final = 2_000


class HolderKeeps(CooperativeStickyAssignor):  # type: ignore[misc]  # kafka-python is untyped
    """Gives the one partition to the member that has it, else to the first by member id.

    kafka-python's own assignors ask the group leader's metadata for the partitions; when that has
    not come yet they assign none, and nothing ever makes them assign anew. Here the one partition
    is known beforehand. Nothing moves when a standby comes or goes.

    A member that was thrown out while it was paused still claims the partition when it comes back
    (kafka-python never forgets an assignment), so a claim counts by its generation.
    """

    name = "kai-es-holder-keeps"
    version = 2  # of the member's metadata: the first with a generation

    def metadata(self, topics: Any) -> Any:
        """See kafka-python."""
        subscription = super().metadata(topics)
        subscription.generation_id = self.generation
        return subscription

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """See kafka-python."""
        holder = min(members, key=self._rank)
        (topic,) = holder.metadata.topics
        return {
            member.member_id: ConsumerProtocolAssignment(
                self.version, [(topic, [0])] if member is holder else [], b""
            )
            for member in members
        }

    def _rank(self, member: Any) -> tuple[int, str]:
        """Lowest first: the newest claim, then member ids in order."""
        claim = self.parse_member_metadata(member.metadata)
        return -claim.generation if claim.partitions else 1, str(member.member_id)


class KafkaLease:
    """A membership in a role's group, kept by a thread; it leads while it holds the partition.

    The thread only looks: kafka-python heartbeats in its own thread, also while Python is busy.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        role: str,
        holder: str,
        *,
        session_s: float,
        waits: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._session_s = session_s
        self._role = role
        self._holder = holder
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._renewed = float("-inf")
        self.led = asyncio.Event()
        self.error: Exception | None = None
        self._lost = asyncio.Event()
        self._ended = asyncio.Event()
        threading.Thread(target=self._run, name=f"lease-{role}", daemon=True).start()

    def age_s(self) -> float:
        """See the port."""
        return time.monotonic() - self._renewed

    async def lost(self) -> None:
        """See the port."""
        await self._lost.wait()

    async def release(self) -> None:
        """See the port."""
        self._stop.set()
        await self._ended.wait()

    def leave(self) -> None:
        """Like `release`, without waiting for it."""
        self._stop.set()

    def _run(self) -> None:
        try:
            consumer = self._join()
            try:
                self._hold(consumer)
            finally:
                consumer.close(autocommit=False, timeout_ms=_LEAVE_MS)
        except LIBRARY_ERRORS as exc:
            self.error = mapped(exc, f"lead as {self._role} on {self._settings.bootstrap}")
        self._tell(self._lost.set)
        self._tell(self.led.set)
        self._tell(self._ended.set)

    def _join(self) -> KafkaConsumer:
        consumer = KafkaConsumer(
            **self._settings.client(
                group_id=f"{self._settings.prefix}.{self._role}",
                client_id=self._holder,
                session_timeout_ms=round(self._session_s * 1000),
                heartbeat_interval_ms=round(self._session_s * 1000 / HEARTBEATS_PER_SESSION),
                partition_assignment_strategy=(HolderKeeps,),
                # kafka-python looks up this often while nothing may be fetched.
                retry_backoff_ms=_POLL_MS,
                enable_auto_commit=False,
                auto_offset_reset="latest",
                metrics_enabled=False,
                allow_auto_create_topics=False,
            )
        )
        consumer.subscribe([self._settings.topic(SNAPSHOT)])
        return consumer

    def _hold(self, consumer: KafkaConsumer) -> None:
        """Return when the role is lost or given up."""
        leads = False
        while not self._stop.is_set():
            consumer.poll(timeout_ms=_POLL_MS)
            held = consumer.assignment()
            # Before looking anew: a process that was paused may have joined again meanwhile.
            if leads and (not held or self.age_s() > self._session_s):
                return
            self._renewed = _last_heartbeat(consumer)
            if held and not leads:
                leads = True
                consumer.pause(*held)  # it is about who holds it, not about what is in it
                self._tell(self.led.set)
            elif not leads and _has_joined(consumer):
                self._tell(self._waits)

    def _tell(self, what: Callable[[], Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            self._stop.set()  # the event loop has ended


def _last_heartbeat(consumer: KafkaConsumer) -> float:
    """When the group last confirmed this member; joining confirms too. Not in the public API."""
    heartbeat = consumer._coordinator.heartbeat
    return float(max(heartbeat.last_receive, heartbeat.last_reset))


def _has_joined(consumer: KafkaConsumer) -> bool:
    """Whether the group has said who holds what. Not in the public API either."""
    return consumer._coordinator.generation_if_stable() is not None


class KafkaLeadership:
    """Leadership among processes on one Kafka cluster.

    Args:
        settings: of the cluster.
        prepare: makes the topic `snapshot`, awaited before every try. Joining a group over a topic
            that is not there would let the broker make it by its own defaults.
        session_s: a holder that is silent for longer has lost its role.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        prepare: Callable[[], Awaitable[None]],
        session_s: float = LEASE_S,
    ) -> None:
        self._settings = settings
        self._prepare = prepare
        self._session_s = session_s

    async def acquire(
        self, role: str, holder: str, waits: Callable[[], None] = lambda: None
    ) -> KafkaLease:
        """See the port.

        Raises:
            UnavailableError: the broker is away.
        """
        await self._prepare()
        lease = KafkaLease(self._settings, role, holder, session_s=self._session_s, waits=waits)
        try:
            await lease.led.wait()
        except asyncio.CancelledError:
            lease.leave()
            raise
        if lease.error is not None:
            raise lease.error
        return lease
