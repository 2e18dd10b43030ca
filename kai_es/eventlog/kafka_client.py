"""Settings shared by all Kafka clients of a log, and the threads that blocking clients live in."""

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar

from kai_es.ports.errors import UnavailableError

T = TypeVar("T")

REQUEST_MS: Final = 5_000
"""A broker that does not answer in this time is asked again; a healthy one needs milliseconds."""

_COMMON: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "request_timeout_ms": REQUEST_MS,
        "reconnect_backoff_ms": 50,
        # kafka-python's 30 s would keep clients away for up to 13 s after a broker's restart.
        "reconnect_backoff_max_ms": 500,
        # 100 ms would be added to a transaction that meets the end of its predecessor.
        "retry_backoff_ms": 10,
    }
)

SECURITY: Final = ("security_protocol", "ssl_", "sasl_")
"""How the names of settings begin that are handed to the clients as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Where the log is and how to get in.

    bootstrap:   `host:port`, several joined by commas.
    prefix:      of topics, groups and transactional ids; one cluster = one prefix.
    replication: of topics that are made, −1 = the broker's default.
    connect_s:   how long a new client looks for a broker before the log is unavailable.
    security:    settings of kafka-python whose names begin with `security_protocol`, `ssl_` or
                 `sasl_`, e.g. {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", …}.
    """

    bootstrap: str
    prefix: str = "kai"
    replication: int = -1
    connect_s: float = 5.0
    security: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(name for name in self.security if not name.startswith(SECURITY))
        assert not unknown, f"not a security setting of a Kafka client: {', '.join(unknown)}"

    def topic(self, name: str) -> str:
        """A topic's name on the broker."""
        return f"{self.prefix}.{name}"

    def client(self, **more: Any) -> dict[str, Any]:
        """Arguments of a client."""
        servers = [server.strip() for server in self.bootstrap.split(",")]
        return {
            **_COMMON,
            "bootstrap_servers": servers,
            "bootstrap_timeout_ms": round(self.connect_s * 1000),
            **self.security,
            **more,
        }


def _seen(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()


class Worker:
    """A thread that does one blocking call after another.

    It is a daemon: a call that never returns (a commit that no broker answers) must not keep the
    process from ending.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._stopped = False
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, call: Callable[[], T], *, timeout_s: float) -> T:
        """What the call returns.

        Raises:
            TimeoutError: it has not returned in time; it goes on, and the next one waits for it.
        """
        if self._stopped:
            raise UnavailableError("this log is closed")
        future: Future[T] = Future()
        self._calls.put((future, call))
        done = asyncio.wrap_future(future)
        done.add_done_callback(_seen)  # nobody may be waiting any more when it fails
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(done)

    def stop(self, last: Callable[[], None] | None = None) -> None:
        """End after the calls that are waiting, and after this last one."""
        self._stopped = True
        if last is not None:
            self._calls.put((Future(), last))
        self._calls.put(None)

    def _work(self) -> None:
        while (job := self._calls.get()) is not None:
            future, call = job
            try:
                future.set_result(call())
            except BaseException as exc:  # noqa: BLE001 - it belongs to whoever waits
                future.set_exception(exc)
