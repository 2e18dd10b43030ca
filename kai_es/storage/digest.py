"""A value of all rows of some tables: equal rows, stored in any order, give an equal digest."""

import hashlib
from collections.abc import Sequence

import sqlalchemy
from sqlalchemy import Connection, Engine

from kai_es.ports.books import Digest
from kai_es.storage.engine import mapped


def digest_of(engine: Engine, tables: Sequence[str]) -> Digest:
    """Digest of whole tables. Two 64-bit hashes of each row are summed: no sort, no memory."""
    with mapped("computing a digest"), engine.connect() as connection:
        connection.execute(
            sqlalchemy.text(
                "SELECT set_config('DateStyle', 'ISO', false), set_config('bytea_output', 'hex',"
                " false), set_config('extra_float_digits', '1', false)"
            )
        )
        return _digest(connection, tables)


def _digest(connection: Connection, tables: Sequence[str]) -> Digest:
    total, digest = 0, hashlib.sha256()
    for table in tables:
        n_rows, first, second = connection.execute(
            sqlalchemy.text(
                f"SELECT count(*), coalesce(sum(hashtextextended(t::text, 1)), 0),"
                f" coalesce(sum(hashtextextended(t::text, 2)), 0) FROM {table} AS t"
            )
        ).one()
        total += n_rows
        digest.update(f"{table}:{n_rows}:{first}:{second}\n".encode())
    return Digest(n_rows=total, digest=digest.hexdigest())
