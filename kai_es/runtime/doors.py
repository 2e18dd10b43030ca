"""The HTTP doors of a process: /healthz, /readyz, /metrics and what its parts serve.

On loopback unless told otherwise.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from kai_es.ports.errors import ConfigError
from kai_es.runtime.part import NO_PAGES, Page, Pages

LOOPBACK: Final = "127.0.0.1"
PORT_MAX: Final = 65_535

Problems = Callable[[], Sequence[str]]
"""What is wrong now, one line each; empty = fine."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def doors(
    *,
    address: str,
    alive: Problems,
    ready: Problems,
    registry: CollectorRegistry,
    pages: Pages = NO_PAGES,
) -> AsyncIterator[str]:
    """Serve the doors at `host:port` (port 0 = any free one); yields the base URL.

    Raises:
        ConfigError: the address cannot be used.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise ConfigError(f"--listen {address}: want HOST:PORT, such as {LOOPBACK}:8080")
    app = web.Application()
    app.router.add_get("/healthz", _verdict(alive))
    app.router.add_get("/readyz", _verdict(ready))
    app.router.add_get("/metrics", _metrics(registry))
    for path, page in pages.items():
        app.router.add_route("*", path, _page(page))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or LOOPBACK, int(port))
        await site.start()
    except (OSError, ValueError) as exc:
        await runner.cleanup()
        raise ConfigError(f"--listen {address}: {exc}; name a free host:port") from exc
    try:
        bound_host, bound_port = runner.addresses[0][:2]
        yield f"http://{bound_host}:{bound_port}"
    finally:
        await runner.cleanup()


def _verdict(problems: Problems) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        found = problems()
        return web.Response(status=503 if found else 200, text="\n".join(found or ("ok",)) + "\n")

    return handle


def _page(make: Callable[[], Awaitable[Page]]) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        page = await make()
        headers = {"Content-Type": page.content_type}
        if page.filename:
            headers["Content-Disposition"] = f"attachment; filename={page.filename}"
        return web.Response(status=page.status, body=page.body, headers=headers)

    return handle


def _metrics(registry: CollectorRegistry) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    return handle
