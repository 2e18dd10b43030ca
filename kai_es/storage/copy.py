"""Bulk writes: rows as text lines for COPY, arrays for one UPDATE or DELETE of many rows.

One COPY of 2,000 rows costs a few milliseconds, as many INSERTs a hundred.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import psycopg
from sqlalchemy import Connection

from kai_es.storage.engine import to_time

NULL: Final = "\\N"
INFINITY: Final = "infinity"
_SPECIAL: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\x00": ""})
"""PostgreSQL has no NUL in text; one in a message is somebody's bug and not worth stopping for."""
_CACHED: Final = 8_192


def driver(connection: Connection) -> psycopg.Connection[tuple[object, ...]]:
    """The psycopg connection below an SQLAlchemy one, in the same transaction."""
    # SQLAlchemy begins on its first statement; ours bypass it
    below = connection.connection.driver_connection
    assert isinstance(below, psycopg.Connection)
    return below


def copy_lines(
    connection: Connection, table: str, columns: Sequence[str], lines: Iterable[str]
) -> None:
    """Append rows; each line holds the columns joined by tabs and ends with a newline."""
    data = "".join(lines)
    if not data:
        return
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
    with driver(connection).cursor() as cursor, cursor.copy(statement.encode()) as copy:
        copy.write(data)


def text(value: str) -> str:
    """A text column of a COPY line."""
    return value.translate(_SPECIAL) if not _is_plain(value) else value


def number(value: int | None) -> str:
    """A number column of a COPY line."""
    return NULL if value is None else str(value)


@lru_cache(maxsize=_CACHED)
def stamp(ms: int) -> str:
    """A `timestamptz` column of a COPY line; exact to the millisecond."""
    return to_time(ms).isoformat(sep=" ", timespec="milliseconds")


@lru_cache(maxsize=_CACHED)
def text_array(values: tuple[str, ...]) -> str:
    """A `text[]` column of a COPY line."""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return text("{" + ",".join(f'"{value}"' for value in quoted) + "}")


def _is_plain(value: str) -> bool:
    return value.isprintable() and "\\" not in value
