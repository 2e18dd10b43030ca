"""`kai-es capture`: one cycle as a file of its own."""

import argparse
import asyncio
import sys
from pathlib import Path

from kai_es.audit.capture import capture
from kai_es.cli.exits import OK, UsageError
from kai_es.cli.recorded import meant
from kai_es.cli.unused import LOG_IS_ALL, SOURCES, refuse
from kai_es.runtime.settings import DEFAULT_SHARD, add_arguments, from_args
from kai_es.runtime.wiring import open_readable


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `capture`."""
    parser = subparsers.add_parser("capture", help="one cycle as a self-contained file")
    parser.add_argument("--cycle", type=int, required=True, metavar="N")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--shard", default=DEFAULT_SHARD, metavar="NAME", help="whose cycle it is")
    parser.add_argument("--log", type=Path, metavar="FILE", help="an exported log")
    add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    data = asyncio.run(_capture(args))
    try:
        args.output.write_bytes(data)
    except OSError as exc:
        raise UsageError(f"-o {args.output}: {exc.strerror}") from exc
    sys.stderr.write(
        f"{len(data)} bytes in {args.output}; `kai-es replay {args.output} --verify` checks it\n"
    )
    return OK


async def _capture(args: argparse.Namespace) -> bytes:
    if args.log is not None:
        refuse(args, SOURCES, LOG_IS_ALL)
    async with open_readable(from_args(args), args.log) as source:
        cycles = await meant(source.log, shard=args.shard, first=args.cycle, last=args.cycle)
        return await capture(source.log, cycles[-1], checkpoints=source.checkpoints)
