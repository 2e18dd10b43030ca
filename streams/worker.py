"""A Faust worker that keeps books from Kafka: wiring of topic, driver and stores.

Faust gives the worker, its group membership, supervision and a web port. It never gives order,
commit or exactly-once: the place is in the database, and what Faust commits is of no account.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import faust

from kai_es.events.catalogue import SNAPSHOT
from kai_es.ports.clock import Clock, wait_for
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import Entry, Position
from streams.books import Books
from streams.driver import Driver
from streams.lz4_codec import install as install_lz4

BUFFERED: Final = 16
"""Records fetched ahead; each can have 16 MiB."""

FETCH_BYTES: Final = 16 * 2**20
TICK_S: Final = 0.1
UNUSED_PORT: Final = 6066
"""Faust wants one even where its web server is off."""

SESSION_S: Final = 6.0
"""After this a worker that is gone is replaced; static membership brings it back sooner."""

HEARTBEAT_S: Final = 1.5

LEAVE_S: Final = 7.0
"""Leaving the group commits what is folded; a process allows its parts 8 s in all."""

logger = logging.getLogger(__name__)

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Where the worker finds its topic and who it is.

    bootstrap: `host:port[,host:port]`.
    prefix:    of the topic names.
    name:      of the books it keeps; workers of one name share one group, one of them works.
    instance:  of this worker, stable over restarts (static membership).
    data:      folder for Faust's own files.
    security:  settings of kafka-python whose names begin with `security_protocol`, `ssl_` or
               `sasl_`, as the log takes them.
    web_port:  of Faust's web server, None = none.
    """

    bootstrap: str
    prefix: str
    name: str
    instance: str
    data: Path
    security: Mapping[str, Any] = field(default_factory=dict)
    web_port: int | None = None


class BooksWorker:
    """One Faust app that keeps one set of books.

    driver: its `trouble` says why nothing is folded.
    """

    def __init__(self, settings: WorkerSettings, books: Books, clock: Clock) -> None:
        self.app = _app(settings)
        self._clock = clock
        self._role = settings.name
        self._failure: Exception | None = None
        self.driver = Driver(books, clock, self._seek)
        self._topic = f"{settings.prefix}.{SNAPSHOT}"
        topic = self.app.topic(self._topic, key_serializer="raw", value_serializer="raw")
        self.app.agent(topic, name=f"books-{settings.name}", concurrency=1)(self._agent)
        self.app.task(self._ticking)
        self.app.on_partitions_assigned.connect(self._assigned, weak=False)
        self.app.on_partitions_revoked.connect(self._revoked, weak=False)
        self.app.on_before_shutdown.connect(self._close, weak=False)

    async def run(self, stop: asyncio.Event) -> None:
        """Join the group and work until `stop`; then commit what is folded and leave.

        Raises:
            UnavailableError: Faust gave up; its supervisor starts it again.
            Exception: what keeps the books from going on.
        """
        crash: BaseException | None = None
        try:
            await self.app.start()
            while not (stop.is_set() or self._failure or self.app.crashed):
                await wait_for(stop, clock=self._clock, seconds=TICK_S)
            crash = self.app.crash_reason
        except Exception as exc:  # noqa: BLE001 - of Faust and its client, anything
            crash = exc
        finally:
            await self._leave()
        if self._failure is not None:
            raise self._failure
        if crash is not None:
            raise UnavailableError(f"Faust cannot consume {self._topic}: {crash!r}") from crash

    async def _leave(self) -> None:
        """Leave the group; an app that has crashed may not be able to, or never come back."""
        leaving = asyncio.ensure_future(self.app.stop())
        waiting = asyncio.ensure_future(asyncio.wait((leaving,), timeout=LEAVE_S))
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            await waiting  # what is left half way keeps the process from ending
            raise
        finally:
            problem = _problem(leaving)
            if problem:
                leaving.cancel()
                await self.driver.close()
                logger.warning("left in bad order", extra={"topic": self._topic, "why": problem})

    async def _agent(self, stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            key = (message.key or b"").decode("utf-8", "replace")
            await self._guarded(
                self.driver.take, Entry(Position(message.offset), key, message.value)
            )

    async def _ticking(self) -> None:
        while not self.app.should_stop:
            await self._guarded(self.driver.tick)
            await self._clock.sleep(TICK_S)

    async def _guarded(self, do: Callable[..., Awaitable[None]], *args: Any) -> None:
        """What no waiting mends ends the worker.

        Faust is not told: it would tear its consumer down while we leave, and tell pages.
        """
        if self._failure is None:
            try:
                await do(*args)
            except Exception as exc:  # noqa: BLE001 - `run` raises it
                self._failure = exc

    async def _seek(self, offset: int) -> None:
        await self.app.consumer.seek(faust.types.TP(self._topic, 0), offset)

    async def _assigned(self, app: Any, assigned: Any, **_: Any) -> None:
        del app
        ours = any(tp.topic == self._topic for tp in assigned)
        if ours and not self.driver.is_assigned:
            logger.info("leads", extra={"role": self._role})
        await self.driver.assigned(ours=ours)

    async def _revoked(self, app: Any, revoked: Any, **_: Any) -> None:
        del app
        if any(tp.topic == self._topic for tp in revoked):
            logger.info("gives its role up", extra={"role": self._role})
            await self.driver.revoked()

    async def _close(self, app: Any, **_: Any) -> None:
        del app
        await self.driver.close()


def _problem(leaving: "asyncio.Future[None]") -> str:
    """Why a worker did not leave in good order, "" = it did."""
    if not leaving.done():
        return f"not done after {LEAVE_S:.0f} s"
    if leaving.cancelled():
        return "cancelled"
    problem = leaving.exception()
    return "" if problem is None else repr(problem)


def _app(settings: WorkerSettings) -> Any:
    install_lz4()
    return faust.App(
        f"{settings.prefix}.books.{settings.name}",
        broker=[f"kafka://{host}" for host in settings.bootstrap.split(",")],
        broker_credentials=credentials_of(settings.security),
        broker_session_timeout=SESSION_S,
        broker_heartbeat_interval=HEARTBEAT_S,
        broker_max_poll_records=BUFFERED,
        consumer_group_instance_id=settings.instance,
        consumer_max_fetch_size=FETCH_BYTES,
        consumer_auto_offset_reset="earliest",
        stream_buffer_maxsize=BUFFERED,
        topic_allow_declare=False,
        topic_disable_leader=True,
        store="memory://",
        datadir=str(settings.data),
        web_enabled=settings.web_port is not None,
        web_port=settings.web_port or UNUSED_PORT,
        web_bind="127.0.0.1",
        autodiscover=False,
    )


def credentials_of(security: Mapping[str, Any]) -> Any:
    """Faust's form of kafka-python's security settings; None = plain text.

    Raises:
        ValueError: a protocol or mechanism that Faust does not speak.
    """
    protocol = security.get("security_protocol", "PLAINTEXT")
    context = _tls(security) if protocol.endswith("SSL") else None
    if protocol == "PLAINTEXT":
        return None
    if protocol == "SSL":
        return faust.SSLCredentials(context)
    mechanism = security.get("sasl_mechanism", "PLAIN")
    if protocol not in ("SASL_PLAINTEXT", "SASL_SSL") or mechanism not in _MECHANISMS:
        raise ValueError(
            f"Kafka security {protocol} {mechanism}: want SSL, SASL_PLAINTEXT or SASL_SSL with "
            f"{', '.join(_MECHANISMS)}"
        )
    return faust.SASLCredentials(
        username=security.get("sasl_plain_username"),
        password=security.get("sasl_plain_password"),
        mechanism=mechanism,
        ssl_context=context,
    )


def _tls(security: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=security.get("ssl_cafile"))
    context.check_hostname = security.get("ssl_check_hostname", True)
    if security.get("ssl_certfile"):
        context.load_cert_chain(
            security["ssl_certfile"],
            keyfile=security.get("ssl_keyfile"),
            password=security.get("ssl_password"),
        )
    return context
