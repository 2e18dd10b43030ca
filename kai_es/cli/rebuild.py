"""`kai-es rebuild usage|history`: fold the log into the database again."""

import argparse
import asyncio
import sys
from typing import Final

from sqlalchemy import Engine

from kai_es.cli.exits import NO, OK, UsageError
from kai_es.events.catalogue import SNAPSHOT
from kai_es.ports.clock import Clock
from kai_es.ports.eventlog import EventLog
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.database import open_database
from kai_es.runtime.settings import add_arguments, from_args
from kai_es.runtime.wiring import open_existing
from kai_es.storage.checkpoint import PostgresCheckpoints
from kai_es.storage.history import PostgresHistory
from kai_es.storage.identity import Violation, check_identity
from kai_es.storage.schema import upgrade
from kai_es.storage.usage import PostgresUsage
from streams.projection import history_projection, usage_projection
from streams.rebuild import Rebuilt, rebuild
from streams.rollup import RollUps

NAMES: Final = ("usage", "history")

_HELP: Final = """\
Takes a projection's rows back to a snapshot offset and folds everything after it again. The same
log gives the same rows: the digest printed is that of all rows, and stays the same. A running
instance may go on meanwhile. Months that are closed are frozen and not computed again.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `rebuild`."""
    parser = subparsers.add_parser(
        "rebuild",
        help="fold the log into the database again",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("projection", choices=NAMES)
    parser.add_argument(
        "--from",
        dest="start",
        type=int,
        default=-1,
        metavar="OFFSET",
        help="snapshot offset to go back to (default: before the first)",
    )
    add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Do it, print rows and digest; "no" if the books do not add up afterwards."""
    if args.start < -1:
        raise UsageError(f"--from is {args.start}, want a snapshot offset, 0 or more")
    found, violation = asyncio.run(_rebuilt(args))
    sys.stdout.write(f"{args.projection}: {found.n_rows} rows, digest {found.digest}\n")
    if violation is not None:
        sys.stderr.write(f"usage identity: {violation}\n")
        return NO
    return OK


async def _rebuilt(args: argparse.Namespace) -> tuple[Rebuilt, Violation | None]:
    settings = from_args(args)
    async with open_existing(settings) as opened, open_database(settings) as engine:
        end = int((await opened.log.end(SNAPSHOT))[0])
        if args.start >= end:
            raise UsageError(
                f"--from {args.start}: {SNAPSHOT} ends at {end}, so nothing would be folded again"
            )
        await asyncio.to_thread(upgrade, engine)
        return await rebuilt(args.projection, opened.log, engine, SystemClock(), start=args.start)


async def rebuilt(
    name: str, log: EventLog, engine: Engine, clock: Clock, *, start: int
) -> tuple[Rebuilt, Violation | None]:
    """Rebuild the projection of a name; usage with its roll-ups and a check of the identity."""
    checkpoints = PostgresCheckpoints(engine)
    if name == "history":
        history = history_projection(PostgresHistory(engine), clock)
        return await rebuild(log, checkpoints, history, clock, start=start), None
    store = PostgresUsage(engine)
    usage = usage_projection(store, clock)
    rollups = RollUps(store, usage, clock)
    found = await rebuild(log, checkpoints, usage, clock, start=start, rollups=rollups)
    return found, await asyncio.to_thread(check_identity, engine)
