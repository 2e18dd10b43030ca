"""How far each projection has come: the row that makes it exactly once.

Every commit of rows begins with a compare-and-set of the projection's offset. A second writer, a
zombie, a repeated batch: all find another offset and write nothing.
"""

from typing import Final

import sqlalchemy
from sqlalchemy import Connection

from kai_es.ports.books import Place
from kai_es.storage.engine import to_ms, to_time

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


def read(connection: Connection, projection: str) -> Place:
    """Where a projection stands; before its first batch at offset −1."""
    row = connection.execute(_READ, {"projection": projection}).one_or_none()
    if row is None:
        return Place(offset=-1, time_ms=0, state=b"")
    return Place(offset=row[0], time_ms=to_ms(row[1]), state=bytes(row[2]))


def advance(connection: Connection, projection: str, *, expected: int, to: Place) -> bool:
    """Take a projection from `expected` to a place; False = it was not there, roll back."""
    values = {
        "projection": projection,
        "expected": expected,
        "offset": to.offset,
        "time": to_time(to.time_ms),
        "state": to.state,
    }
    if expected == -1:
        connection.execute(_CREATE, values)
    return connection.execute(_ADVANCE, values).rowcount == 1


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
