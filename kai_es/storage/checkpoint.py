"""Checkpoints of the snapshot stream: inserted, never updated."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy
from sqlalchemy import Connection, Engine

from kai_es.ports.stores import CheckpointHead, DivergedError, StoredCheckpoint
from kai_es.storage.engine import mapped, to_ms, to_time

_HEAD: Final = '"offset", version, digest, time'
_INSERT: Final = sqlalchemy.text(
    'INSERT INTO checkpoint ("offset", version, digest, time, payload)'
    " VALUES (:offset, :version, :digest, :time, :payload) ON CONFLICT DO NOTHING"
)
_DIGEST: Final = sqlalchemy.text(
    'SELECT digest FROM checkpoint WHERE "offset" = :offset AND version = :version'
)
_NEWEST: Final = sqlalchemy.text(
    f"SELECT {_HEAD}, payload FROM checkpoint"
    ' WHERE CAST(:at_most AS bigint) IS NULL OR "offset" <= :at_most'
    ' ORDER BY "offset" DESC, version DESC LIMIT 1'
)
_HEADS: Final = sqlalchemy.text(f'SELECT {_HEAD} FROM checkpoint ORDER BY "offset", version')


class PostgresCheckpoints:
    """`CheckpointStore` in the table `checkpoint`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(self, checkpoint: StoredCheckpoint) -> None:
        """Insert. The same key with the same digest again is no change.

        Raises:
            DivergedError: the key is there with another digest.
        """
        await asyncio.to_thread(self._put, checkpoint)

    async def newest(self, at_most: int | None = None) -> StoredCheckpoint | None:
        """The checkpoint with the highest offset, not above `at_most`; None = there is none."""
        return await asyncio.to_thread(self._newest, at_most)

    async def heads(self) -> Sequence[CheckpointHead]:
        """All checkpoints without their payload, by rising offset."""
        return await asyncio.to_thread(self._heads)

    def _put(self, checkpoint: StoredCheckpoint) -> None:
        with mapped("writing a checkpoint"), self._engine.begin() as connection:
            insert(connection, checkpoint)

    def _newest(self, at_most: int | None) -> StoredCheckpoint | None:
        with mapped("reading a checkpoint"), self._engine.connect() as connection:
            row = connection.execute(_NEWEST, {"at_most": at_most}).one_or_none()
        return StoredCheckpoint(_head(row), bytes(row[4])) if row is not None else None

    def _heads(self) -> Sequence[CheckpointHead]:
        with mapped("listing checkpoints"), self._engine.connect() as connection:
            return [_head(row) for row in connection.execute(_HEADS)]


def insert(connection: Connection, checkpoint: StoredCheckpoint) -> None:
    """Insert one checkpoint in the transaction of `connection`.

    Raises:
        DivergedError: the key is there with another digest.
    """
    head = checkpoint.head
    # the log is trimmed on the strength of it, so it must be on disk
    connection.execute(sqlalchemy.text("SELECT set_config('synchronous_commit', 'on', true)"))
    values = {
        "offset": head.offset,
        "version": head.version,
        "digest": head.digest,
        "time": to_time(head.time_ms),
        "payload": checkpoint.payload,
    }
    if connection.execute(_INSERT, values).rowcount == 1:
        return
    stored = connection.execute(_DIGEST, values).scalar_one()
    if stored != head.digest:
        raise DivergedError(
            f"checkpoint at snapshot {head.offset} (version {head.version}) is stored with digest "
            f"{stored}, this fold has {head.digest}: two readers of one log disagree"
        )


def _head(row: Sequence[Any]) -> CheckpointHead:
    return CheckpointHead(offset=row[0], version=row[1], digest=row[2], time_ms=to_ms(row[3]))
