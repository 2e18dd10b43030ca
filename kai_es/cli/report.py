"""`kai-es report usage`: who used what, from the books."""

import argparse
import asyncio
import sys
from typing import Final

from kai_es.cli.exits import OK, UsageError
from kai_es.cli.unused import tell_books_only
from kai_es.ports.reports import Bucket, By, UsageReports, UsageSums
from kai_es.runtime.database import open_database
from kai_es.runtime.settings import add_arguments, from_args
from kai_es.storage.reports import PostgresReports
from kai_es.usage.period import parse_time
from kai_es.usage.report import FORMS, render

SINCE: Final = "24h"

_HELP: Final = """\
Usage from the database, exact to the millisecond, in unit-hours: cpu in core-hours, memory in
GiB-hours, gpu in GPU-hours.

  requested   what was held or waited for
  allocated   what was held on nodes that were up; a pod runs from the moment it is seen bound
  quota       guaranteed share × time (by queue only; "unlimited" if it was so at some time)
  over_quota  what was held above the quota (by queue only)
  idle, down  of the cluster and of node groupings: offered and not held, not usable

An inner queue holds its subtree, so queues do not add up to the cluster; other groups do.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `report` with its subcommands."""
    parser = subparsers.add_parser("report", help="usage by queue, user, node pool, …")
    commands = parser.add_subparsers(dest="report_command", metavar="COMMAND", required=True)
    usage = commands.add_parser(
        "usage",
        help="allocated, requested and idle amounts over time",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    usage.add_argument("--by", choices=[by.value for by in By], default=By.QUEUE.value)
    usage.add_argument(
        "--from",
        dest="start",
        metavar="T",
        default=SINCE,
        help=f"2026-03-01T08:00:00Z, 2026-03-01 or how long ago, such as 7d (default {SINCE})",
    )
    usage.add_argument("--to", dest="end", metavar="T", default="now", help="default now")
    usage.add_argument(
        "--bucket", choices=[bucket.value for bucket in Bucket], help="cut into (UTC) buckets"
    )
    usage.add_argument("-o", "--output", choices=FORMS, default=FORMS[0])
    add_arguments(usage)


def run(args: argparse.Namespace) -> int:
    """Print the report."""
    by = By(args.by)
    bucket = Bucket(args.bucket) if args.bucket else None
    _times(args.start, args.end, now_ms=0)  # what is wrong in any case is said before all else
    sums = asyncio.run(_sums(args, by, bucket))
    sys.stdout.write(render(sums, by, bucket, args.output))
    return OK


async def _sums(args: argparse.Namespace, by: By, bucket: Bucket | None) -> UsageSums:
    settings = from_args(args)
    tell_books_only(args)
    async with open_database(settings) as engine:
        return await asyncio.to_thread(
            ask, PostgresReports(engine), by, bucket, start=args.start, end=args.end
        )


def ask(reports: UsageReports, by: By, bucket: Bucket | None, *, start: str, end: str) -> UsageSums:
    """The sums for times as they were typed; "now" is how far the books are.

    Raises:
        UsageError: a time that is none, or an empty stretch.
    """
    start_ms, end_ms = _times(start, end, now_ms=reports.now_ms())
    if start_ms > end_ms:
        raise UsageError(f"--from {start} is after --to {end}: swap them")
    return reports.usage(by, start_ms=start_ms, end_ms=end_ms, bucket=bucket)


def _times(start: str, end: str, *, now_ms: int) -> tuple[int, int]:
    try:
        return parse_time(start, now_ms=now_ms), parse_time(end, now_ms=now_ms)
    except ValueError as exc:
        raise UsageError(str(exc)) from exc
