"""`kai-es deadletter list`: versions of records that could not be processed."""

import argparse
import asyncio
import sys

from kai_es.cli.exits import OK
from kai_es.cli.shown import add_form, print_json, print_table
from kai_es.events.snapshot import Parked
from kai_es.reader.restore import nearest_world
from kai_es.reader.roll import roll
from kai_es.runtime.settings import add_arguments, from_args
from kai_es.runtime.wiring import open_readable

COLUMNS = ("kind", "namespace", "name", "uid", "rv", "error", "source")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `deadletter` with its subcommands."""
    parser = subparsers.add_parser("deadletter", help="versions that could not be processed")
    commands = parser.add_subparsers(dest="deadletter_command", metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="what is parked now, and why")
    add_form(listing, "table", "json")
    add_arguments(listing)


def run(args: argparse.Namespace) -> int:
    """Print what is parked."""
    rows = [_row(parked) for parked in asyncio.run(_parked(args))]
    if args.output == "json":
        print_json(rows)
    elif rows:
        print_table(COLUMNS, rows)
    else:
        sys.stderr.write("nothing is parked\n")
    return OK


async def _parked(args: argparse.Namespace) -> list[Parked]:
    async with open_readable(from_args(args), None) as source:
        world = await nearest_world(source.log, source.checkpoints)
        async for _ in roll(source.log, world):
            pass
    found = (entry for _, entry in sorted(world.parking.entries.items()))
    return [entry for entry in found if isinstance(entry, Parked)]


def _row(parked: Parked) -> dict[str, object]:
    return {name: getattr(parked, name) for name in COLUMNS}
