"""`kai-es deadletter list|show|retry|discard`: versions of objects that could not be processed."""

import argparse
import asyncio
import getpass
import sys
from typing import Final

import msgspec

from kai_es.cli.exits import NO, OK, UsageError
from kai_es.cli.shown import add_form, print_json, print_table
from kai_es.events.codec import decode, unpack
from kai_es.events.envelope import PoisonError
from kai_es.events.objects import ObjectSeen, ParkedAction
from kai_es.events.snapshot import Parked
from kai_es.intake.parked import Raw, StillUnusableError, discard, live_object, retry
from kai_es.ports.eventlog import Position, ReadableLog
from kai_es.reader.restore import nearest_world
from kai_es.reader.roll import roll
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.settings import Settings, add_arguments, add_cluster_argument, from_args
from kai_es.runtime.wiring import holder, open_cluster, open_existing, open_readable
from kai_es.snapshot.world import World

COLUMNS: Final = ("kind", "namespace", "name", "uid", "rv", "error", "source")

_HELP: Final = """\
A version of an object that cannot be processed is parked: the last valid version stays in force
and everything else goes on. A newer valid version, or the object's delete, ends the parking by
itself. `retry` brings the object as the API server has it now; `discard` gives the version up.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `deadletter` with its subcommands."""
    parser = subparsers.add_parser(
        "deadletter",
        help="versions that could not be processed",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="deadletter_command", metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="what is parked now, and why")
    add_form(listing, "table", "json")
    add_arguments(listing)
    add_cluster_argument(listing)
    for name, text in (
        ("show", "one parked version, its object as far as it can be read"),
        ("retry", "process the object again, as the API server has it now"),
        ("discard", "give the version up; the last valid one stays in force"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("name", metavar="NAME", help="uid, name or namespace/name")
        command.add_argument("--kind", help="where several kinds have that name")
        if name == "retry":
            command.add_argument(
                "--from-log",
                action="store_true",
                help="process the parked version itself, e.g. after an upgrade",
            )
        add_arguments(command)
        add_cluster_argument(command)


def run(args: argparse.Namespace) -> int:
    """Do the subcommand; "no" if a retry cannot help."""
    settings = from_args(args)
    match args.deadletter_command:
        case "list":
            _print_all([_row(entry) for entry in asyncio.run(_parked(settings))], args.output)
        case "show":
            print_json(asyncio.run(_show(settings, args)))
        case _:
            try:
                sys.stderr.write(asyncio.run(_answer(settings, args)) + "\n")
            except StillUnusableError as exc:
                sys.stderr.write(f"{exc}\n")
                return NO
    return OK


def _print_all(rows: list[dict[str, object]], form: str) -> None:
    if form == "json":
        print_json(rows)
    elif rows:
        print_table(COLUMNS, rows)
    else:
        sys.stderr.write("nothing is parked\n")


async def _parked(settings: Settings) -> list[Parked]:
    return _entries(await _world(settings))


async def _show(settings: Settings, args: argparse.Namespace) -> dict[str, object]:
    world = await _world(settings)
    entry = _named(_entries(world), args)
    valid = world.objects.live.get(entry.kind, {}).get(entry.uid)
    async with open_readable(settings, None) as source:
        raw = await _recorded(source.log, entry)
    return {
        **_row(entry),
        "closes_node": next(
            (node for node, uids in world.parking.closed.items() if entry.uid in uids), ""
        ),
        "valid_rv": valid.rv if valid is not None else None,
        "object": raw,
    }


async def _answer(settings: Settings, args: argparse.Namespace) -> str:
    entry = _named(await _parked(settings), args)
    clock, producer = SystemClock(), f"operator/{getpass.getuser()}@{holder()}"
    what = f"{entry.kind} {entry.namespace}/{entry.name} ({entry.uid})"
    async with open_existing(settings) as opened:
        if args.deadletter_command == "discard":
            await discard(opened.log, entry, clock=clock, producer=producer)
            return f"discarded version {entry.rv} of {what}"
        if args.from_log:
            raw = await _recorded(opened.log, entry)
            if not isinstance(raw, dict):
                raise StillUnusableError(f"the record {entry.source} cannot be read: {raw}")
        else:
            async with open_cluster(settings) as cluster:
                raw = await live_object(cluster, entry)
        await retry(opened.log, entry, raw, clock=clock, producer=producer)
    return f"retried {what}: the snapshot stream takes it from here"


async def _world(settings: Settings) -> World:
    async with open_readable(settings, None) as source:
        world = await nearest_world(source.log, source.checkpoints)
        async for _ in roll(source.log, world):
            pass
    return world


def _entries(world: World) -> list[Parked]:
    found = (entry for _, entry in sorted(world.parking.entries.items()))
    return [entry for entry in found if isinstance(entry, Parked)]


def _named(entries: list[Parked], args: argparse.Namespace) -> Parked:
    """The one entry that is meant.

    Raises:
        UsageError: none, or several.
    """
    found = [
        entry
        for entry in entries
        if args.name in (entry.uid, entry.name, f"{entry.namespace}/{entry.name}")
        and args.kind in (None, entry.kind)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"{args.name!r} is not parked: `kai-es deadletter list` shows what is")
    several = ", ".join(f"{e.kind} {e.namespace}/{e.name} ({e.uid})" for e in found)
    raise UsageError(f"{args.name!r} names several: {several}; give the uid or --kind")


async def _recorded(log: ReadableLog, entry: Parked) -> Raw | str:
    """The object in the record that was parked; as text where it cannot be decoded, or why not."""
    topic, partition, position = entry.source.split("/")
    start = Position(int(position))
    begin = await log.begin(topic)
    if start < begin[int(partition)]:
        return "the record is older than the log goes back"
    async for chunk in log.read(topic, int(partition), start, follow=False):
        for found in chunk:
            if found.position != start or found.value is None:
                break
            try:
                record = unpack(decode(found.value))
            except PoisonError:
                return found.value.decode(errors="backslashreplace")
            if isinstance(record, ObjectSeen | ParkedAction) and record.object is not None:
                return record.object
            return msgspec.json.encode(record).decode()
        break
    return "the record is not in the log"


def _row(parked: Parked) -> dict[str, object]:
    return {name: getattr(parked, name) for name in COLUMNS}
