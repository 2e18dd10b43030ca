"""Whether the books could be written now."""

from typing import Final

import sqlalchemy
from sqlalchemy import Engine

from kai_es.ports.errors import UnavailableError
from kai_es.storage.engine import READ_ONLY, mapped

ANSWER_MS: Final = 3_000
_ASK: Final = sqlalchemy.text(
    "SELECT current_setting('transaction_read_only') = 'on', count(*) FROM projection_offset"
)


def look(engine: Engine) -> None:
    """Ask over a connection of its own: one that is held open may outlive its server's health.

    Raises:
        UnavailableError: the database is away, refuses us, is not migrated, locked or read-only.
    """
    fresh = sqlalchemy.create_engine(
        engine.url,
        poolclass=sqlalchemy.NullPool,
        connect_args={
            "connect_timeout": ANSWER_MS // 1000,
            "application_name": "kai-es health",
            "options": f"-c statement_timeout={ANSWER_MS} -c lock_timeout={ANSWER_MS - 1_000}",
        },
    )
    with mapped("looking at the database"), fresh.connect() as connection:
        is_read_only = connection.execute(_ASK).one()[0]
    if is_read_only:
        raise UnavailableError(f"looking at the database: {READ_ONLY}")
