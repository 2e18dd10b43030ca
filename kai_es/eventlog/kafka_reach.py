"""Whether anything listens where the broker should be; names a fault before the clients give up."""

import socket
from typing import Final

from kai_es.eventlog.kafka_client import Worker

CONNECT_S: Final = 1.0


class Reach:
    """Connects to the bootstrap addresses and hangs up.

    A broker that is only slow accepts the connection: its machine does that.

    Args:
        bootstrap: `host:port`, several joined by commas.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._addresses = [_parts(address) for address in bootstrap.split(",")]
        self._worker = Worker("log-reach")

    async def problem(self) -> str:
        """Why no address can be reached, "" = one can."""
        try:
            # One timeout more, as looking a name up has none.
            why = await self._worker.run(
                self._try_all, timeout_s=CONNECT_S * (len(self._addresses) + 1)
            )
        except TimeoutError:
            why = "no answer"
        return why and f"cannot reach the broker at {self._bootstrap}: {why}"

    def close(self) -> None:
        """End the thread."""
        self._worker.stop()

    def _try_all(self) -> str:
        why = ""
        for address in self._addresses:
            try:
                socket.create_connection(address, timeout=CONNECT_S).close()
            except OSError as exc:
                why = exc.strerror or str(exc)
            else:
                return ""
        return why


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.strip().rpartition(":")
    return host.strip("[]"), int(port)
