"""`kai-es cycles`: recorded cycles."""

import argparse
import asyncio
import csv
import sys
from collections.abc import Sequence
from typing import Any, Final

from kai_es.cli.exits import OK, UsageError
from kai_es.cli.recorded import no_such_shard
from kai_es.cli.shown import add_form, print_json, print_table, time_text
from kai_es.cli.unused import tell_books_only
from kai_es.ports.reports import CycleLine
from kai_es.runtime.database import open_database
from kai_es.runtime.settings import add_arguments, from_args
from kai_es.storage.cycles import LIMIT, cycles, shards
from kai_es.storage.reports import PostgresReports
from kai_es.usage.period import parse_time

COLUMNS: Final = (
    *("shard", "cycle", "offset", "time", "binds", "evictions", "pending", "ms", "digest"),
)
_DIGEST_SHOWN: Final = 12


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `cycles`."""
    parser = subparsers.add_parser(
        "cycles",
        help="list recorded cycles",
        description="Recorded cycles, oldest first; replay one with `kai-es replay --cycle N`.",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="T",
        default="1970-01-01",
        help="2026-03-01T08:00:00Z, 2026-03-01 or how long ago, such as 7d (default: the first)",
    )
    parser.add_argument("--to", dest="end", metavar="T", default="now", help="default now")
    parser.add_argument(
        "-n",
        "--limit",
        type=int,
        default=1_000,
        help=f"the newest so many (default 1000, at most {LIMIT})",
    )
    parser.add_argument("--shard", metavar="NAME", help="of this shard alone (default: of all)")
    add_form(parser)
    add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print them."""
    if not 0 < args.limit <= LIMIT:
        raise UsageError(f"--limit is {args.limit}, want 1 to {LIMIT}")
    _times(args, now_ms=0)  # what is wrong in any case is said before a database is started
    _print(asyncio.run(_lines(args)), args.output)
    return OK


async def _lines(args: argparse.Namespace) -> Sequence[CycleLine]:
    settings = from_args(args)
    tell_books_only(args)
    async with open_database(settings) as engine:
        now_ms = await asyncio.to_thread(PostgresReports(engine).now_ms)
        # the newest cycle lies in the very last batch, so "now" is a moment later
        start_ms, end_ms = _times(args, now_ms=now_ms + 1)
        found = await asyncio.to_thread(
            cycles, engine, start_ms=start_ms, end_ms=end_ms, limit=args.limit, shard=args.shard
        )
        if args.shard is not None and not found:
            there = await asyncio.to_thread(shards, engine)
            if args.shard not in {known.shard for known in there}:
                raise no_such_shard(args.shard, there)
        return found


def _times(args: argparse.Namespace, *, now_ms: int) -> tuple[int, int]:
    try:
        return parse_time(args.start, now_ms=now_ms), parse_time(args.end, now_ms=now_ms)
    except ValueError as exc:
        raise UsageError(str(exc)) from exc


def _print(lines: Sequence[CycleLine], form: str) -> None:
    rows = [_row(line) for line in lines]
    if form == "json":
        print_json(rows)
    elif form == "csv":
        writer = csv.DictWriter(sys.stdout, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        print_table(COLUMNS, [row | {"digest": row["digest"][:_DIGEST_SHOWN]} for row in rows])


def _row(line: CycleLine) -> dict[str, Any]:
    return {
        "shard": line.shard,
        "cycle": line.cycle,
        "offset": line.offset,
        "time": time_text(line.time_ms),
        "binds": line.binds,
        "evictions": line.evictions,
        "pipelines": line.pipelines,
        "pending": line.pending,
        "ms": round(line.ms, 3),
        "gate": line.verdict,
        "digest": line.digest,
    }
