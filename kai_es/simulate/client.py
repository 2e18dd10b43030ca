"""Raw requests on an API server: for the loader and for kubelets of their own process."""

from types import TracebackType
from typing import Final, Self

import aiohttp

from kai_es.cluster.endpoint import Endpoint
from kai_es.ports.errors import UnavailableError

REQUEST_S: Final = 30.0
CONNECTIONS: Final = 32
"""More do not make one API server quicker."""


class Client:
    """A connection pool; belongs to one event loop."""

    def __init__(self, endpoint: Endpoint, user_agent: str) -> None:
        self._endpoint = endpoint
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS),
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=REQUEST_S),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def call(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """Status and body of the answer.

        Raises:
            UnavailableError: no answer; what became of the request is unknown.
        """
        headers = {**await self._endpoint.headers(), "Content-Type": content_type}
        try:
            async with self._session.request(
                method,
                self._endpoint.url + path,
                data=body or None,
                headers=headers,
                ssl=self._endpoint.tls if self._endpoint.tls is not None else True,
                server_hostname=self._endpoint.server_name,
            ) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"{method} {path}: {error!r}") from error
