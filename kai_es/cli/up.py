"""`kai-es up --embedded`: the whole platform on this machine, on any cluster."""

import argparse
import asyncio
import sys
from typing import Final

from kai_es.cli.exits import BAD_INPUT, OK, UsageError
from kai_es.ports.errors import ConfigError
from kai_es.ports.race import race
from kai_es.runtime import logs
from kai_es.runtime.binding import add_binder_arguments
from kai_es.runtime.embedded import ALL_PARTS, Stack, embedded
from kai_es.runtime.settings import (
    add_cluster_argument,
    add_data_argument,
    add_part_arguments,
    from_args,
)
from kai_es.runtime.stopping import stop_event

LOOK_S: Final = 0.5
START_S: Final = 30.0
"""A part that has lived this long has had settings that it could work with: it is started anew, as
what it complains of (a file that is being written, a login) may be mended while it runs."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `up`."""
    parser = subparsers.add_parser("up", help="run everything here, embedded, as a service")
    parser.add_argument(
        "--embedded", action="store_true", required=True, help="SQLite log, embedded PostgreSQL"
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:8080",
        metavar="HOST:PORT",
        help="/healthz /readyz /metrics; of the scheduler also /get-snapshot /get-job-order",
    )
    parser.add_argument(
        "--simulate", action="store_true", help="on a simulated API server instead of a cluster"
    )
    add_data_argument(parser)
    add_cluster_argument(parser)
    add_part_arguments(parser)
    add_binder_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run until told to stop."""
    if args.simulate and args.kubeconfig:
        raise UsageError("--simulate makes a cluster of its own: leave out --kubeconfig")
    logs.configure(level="info", json_lines=False)
    asyncio.run(_up(args))
    return OK


async def _up(args: argparse.Namespace) -> None:
    stop = stop_event()
    async with embedded(from_args(args)) as stack:
        if args.simulate:
            await stack.start_cluster(seed=0)
        stack.start_parts(ALL_PARTS, listen=args.listen)
        sys.stderr.write(f"starting kai-es; log lines in {stack.instance.logs}, stop with ^C\n")
        await race(stop.wait(), watch(stack))


async def watch(stack: Stack) -> None:
    """Raise once a child cannot start because its settings are wrong: trying anew does not help.

    Raises:
        ConfigError: with the child's last words.
    """
    while True:
        await asyncio.sleep(LOOK_S)
        for child in stack.supervisor.children:
            if child.last_exit == BAD_INPUT and child.longest_s < START_S:
                log = stack.instance.logs / f"{child.name}.log"
                words = log.read_text(errors="replace").strip().rpartition("\n")[2]
                raise ConfigError(f"{child.name} cannot start: {words} (more in {log})")
