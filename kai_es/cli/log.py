"""`kai-es log tail`: the records themselves, decoded."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from kai_es.cli.exits import UsageError
from kai_es.events.catalogue import TOPICS
from kai_es.events.codec import decode, unpack
from kai_es.events.envelope import PoisonError
from kai_es.ports.eventlog import Entry, EventLog, Position
from kai_es.runtime.settings import add_arguments, from_args
from kai_es.runtime.wiring import open_log

TAIL_DEFAULT: Final = 20


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `log` with its subcommands."""
    parser = subparsers.add_parser("log", help="look at the durable log, export it, verify it")
    commands = parser.add_subparsers(dest="log_command", metavar="COMMAND", required=True)
    tail = commands.add_parser("tail", help="print the newest records of a topic, one JSON each")
    tail.add_argument("topic", choices=sorted(TOPICS), nargs="?", default="snapshot")
    tail.add_argument("-n", "--lines", type=int, default=TAIL_DEFAULT, help="records per partition")
    tail.add_argument("-f", "--follow", action="store_true", help="wait for more")
    add_arguments(tail)


def run(args: argparse.Namespace) -> int:
    """Do the subcommand."""
    if args.lines < 0:
        raise UsageError(f"--lines is {args.lines}, want 0 or more")
    asyncio.run(_tail(args))
    return 0


async def _tail(args: argparse.Namespace) -> None:
    async with open_log(from_args(args)) as opened:
        begin, end = await opened.log.begin(args.topic), await opened.log.end(args.topic)
        async with asyncio.TaskGroup() as tasks:
            for partition in sorted(end):
                start = Position(max(int(begin[partition]), int(end[partition]) - args.lines))
                tasks.create_task(
                    _print_all(opened.log, args.topic, partition, start, follow=args.follow)
                )


async def _print_all(
    log: EventLog, topic: str, partition: int, start: Position, *, follow: bool
) -> None:
    chunks: AsyncIterator[Any] = log.read(topic, partition, start, follow=follow)
    async for chunk in chunks:
        for entry in chunk:
            line = msgspec.json.encode(_shown(topic, partition, entry), enc_hook=str)
            sys.stdout.write(line.decode() + "\n")
        sys.stdout.flush()


def _shown(topic: str, partition: int, entry: Entry) -> dict[str, object]:
    shown: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "position": int(entry.position),
        "key": entry.key,
    }
    if entry.value is None:
        return shown | {"tombstone": True}
    try:
        envelope = decode(entry.value)
        record = unpack(envelope)
    except PoisonError as exc:
        return shown | {"undecodable": str(exc)}
    return shown | {
        "schema": envelope.schema,
        "id": envelope.id,
        "time": datetime.fromtimestamp(envelope.event_time / 1000, UTC).isoformat(),
        "producer": envelope.producer,
        "data": msgspec.to_builtins(record),
    }
