"""How far each projection has come: the row that makes it exactly once.

Every commit of rows begins with a compare-and-set of the projection's offset. A second writer, a
zombie, a repeated batch: all find another offset and write nothing.
"""

import logging
from typing import Final

import psycopg
import sqlalchemy
from sqlalchemy import Connection, Engine
from sqlalchemy import exc as sqlalchemy_exc

from kai_es.ports.books import Place
from kai_es.storage.engine import to_ms, to_time

logger = logging.getLogger(__name__)

USAGE: Final = "usage"
HISTORY: Final = "history"

_READ: Final = sqlalchemy.text(
    'SELECT "offset", time, state FROM projection_offset WHERE projection = :projection'
)
_CREATE: Final = sqlalchemy.text(
    'INSERT INTO projection_offset (projection, "offset", time)'
    " VALUES (:projection, -1, :time) ON CONFLICT DO NOTHING"
)
_ADVANCE: Final = sqlalchemy.text(
    'UPDATE projection_offset SET "offset" = :offset, time = :time, state = :state'
    ' WHERE projection = :projection AND "offset" = :expected'
)
SILENT_S: Final = 5
_END: Final = sqlalchemy.text(
    "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))"
    " FROM pg_stat_activity JOIN pg_locks USING (pid)"
    " WHERE relation = 'projection_offset'::regclass AND mode = 'RowExclusiveLock'"
    " AND datname = current_database() AND usename = current_user AND wait_event_type = 'Client'"
    " AND state_change < now() - make_interval(secs => :silent_s)"
)
"""Ends the writers that the server waits for, as in the middle of a COPY: that, unlike a
transaction in which nothing runs, it does by itself only after `STATEMENT_TIMEOUT_S`."""


def read(connection: Connection, projection: str) -> Place:
    """Where a projection stands; before its first batch at offset −1."""
    row = connection.execute(_READ, {"projection": projection}).one_or_none()
    if row is None:
        return Place(offset=-1, time_ms=0, state=b"")
    return Place(offset=row[0], time_ms=to_ms(row[1]), state=bytes(row[2]))


def advance(connection: Connection, projection: str, *, expected: int, to: Place) -> bool:
    """Take a projection from `expected` to a place; False = it was not there, roll back.

    A writer that keeps us from it and says nothing is ended: its process stands still, or its
    machine is gone. The next try finds the row free.
    """
    values = {
        "projection": projection,
        "expected": expected,
        "offset": to.offset,
        "time": to_time(to.time_ms),
        "state": to.state,
    }
    try:
        if expected == -1:
            connection.execute(_CREATE, values)
        return connection.execute(_ADVANCE, values).rowcount == 1
    except sqlalchemy_exc.OperationalError as exc:
        if isinstance(exc.orig, psycopg.errors.LockNotAvailable):
            _end_silent(connection.engine)
        raise


def put(connection: Connection, projection: str, place: Place) -> None:
    """Set a projection's place, whatever it was."""
    connection.execute(
        sqlalchemy.text(
            'INSERT INTO projection_offset (projection, "offset", time, state)'
            " VALUES (:projection, :offset, :time, :state) ON CONFLICT (projection) DO UPDATE"
            ' SET "offset" = EXCLUDED."offset", time = EXCLUDED.time, state = EXCLUDED.state'
        ),
        {
            "projection": projection,
            "offset": place.offset,
            "time": to_time(place.time_ms),
            "state": place.state,
        },
    )


def _end_silent(engine: Engine) -> None:
    with engine.connect() as connection:
        n_ended = connection.execute(_END, {"silent_s": SILENT_S}).scalar_one()
    if n_ended:
        logger.warning("ended writers that stood still", extra={"sessions": n_ended})
