"""The database of the settings: the one named, or the instance's embedded PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import Engine

from kai_es.ports.errors import ConfigError
from kai_es.runtime.instance import Instance
from kai_es.runtime.settings import ENV_DATABASE, Settings
from kai_es.storage.embedded import EmbeddedPostgres
from kai_es.storage.engine import connect_to


def has_database(settings: Settings) -> bool:
    """Whether there is one; an instance whose books were never kept has none.

    The books of a log on Kafka are never those of a local instance.
    """
    if settings.database or settings.kafka:
        return bool(settings.database)
    return Instance(settings.data).postgres.exists()


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Engine]:
    """An engine on the database; the embedded server is attached to, or started for as long.

    Raises:
        ConfigError: no instance in the data folder, or a log on Kafka and no database named.
        UnavailableError: the embedded server does not come up.
    """
    if settings.database:
        engine = connect_to(settings.database)
        try:
            yield engine
        finally:
            engine.dispose()
        return
    if settings.kafka:
        raise ConfigError(
            f"--kafka {settings.kafka} without --database: name the PostgreSQL with the books of "
            f"that log, --database URL or ${ENV_DATABASE}"
        )
    postgres = EmbeddedPostgres(Instance(settings.data).check().postgres)
    engine = connect_to(await asyncio.to_thread(postgres.start))
    try:
        yield engine
    finally:
        engine.dispose()
        await asyncio.to_thread(postgres.stop)
