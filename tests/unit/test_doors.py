import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from kai_es.ports.errors import ConfigError
from kai_es.runtime.doors import doors
from kai_es.runtime.part import Page


async def snapshot():
    return Page(200, "application/zip", b"PK", filename="snapshot.zip")


async def missing():
    return Page(404, "text/plain", b"plugin not found\n")


@pytest.fixture
async def url():
    async with doors(
        address="127.0.0.1:0",
        alive=tuple,
        ready=lambda: ["scheduler: no history"],
        registry=CollectorRegistry(),
        pages={"/get-snapshot": snapshot, "/get-job-order": missing},
    ) as base:
        yield base


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_pages_of_parts_are_served_as_they_are(url, method):
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"{url}/get-snapshot") as answer,
    ):
        assert (answer.status, await answer.read()) == (200, b"PK")
        assert answer.headers["Content-Type"] == "application/zip"
        assert answer.headers["Content-Disposition"] == "attachment; filename=snapshot.zip"


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/get-job-order", 404, "plugin not found\n"),
        ("/healthz", 200, "ok\n"),
        ("/readyz", 503, "scheduler: no history\n"),
    ],
)
async def test_doors_say_what_is_wrong(url, path, status, text):
    async with aiohttp.ClientSession() as session, session.get(f"{url}{path}") as answer:
        assert (answer.status, await answer.text()) == (status, text)


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "127.0.0.1:http", "no.such.host.:0"])
async def test_an_address_that_cannot_be_used_is_named(address):
    with pytest.raises(ConfigError, match=f"--listen {address}: .*(HOST:PORT|free host:port)"):
        async with doors(address=address, alive=tuple, ready=tuple, registry=CollectorRegistry()):
            pass
