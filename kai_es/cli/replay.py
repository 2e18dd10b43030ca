"""`kai-es replay`: decide again from the log, or from a captured file, and compare."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from kai_es.audit.capture import CaptureError, check_capture
from kai_es.audit.cycles import Recorded
from kai_es.audit.errors import DamagedFileError
from kai_es.audit.replay import Replayed, replay
from kai_es.cli.exits import NO, OK, UsageError
from kai_es.cli.recorded import meant
from kai_es.cli.shown import time_text
from kai_es.cli.unused import LOG_IS_ALL, SOURCES, refuse
from kai_es.ports.eventlog import ReadableLog
from kai_es.ports.stores import CheckpointStore
from kai_es.runtime.settings import DEFAULT_SHARD, add_arguments, from_args
from kai_es.runtime.wiring import open_readable


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `replay`."""
    parser = subparsers.add_parser("replay", help="decide recorded cycles again and compare")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a captured cycle")
    what.add_argument("--cycle", type=int, metavar="N", help="one cycle")
    what.add_argument("--from", dest="first", type=int, metavar="A", help="first cycle of a range")
    what.add_argument("--all", action="store_true", help="every recorded cycle")
    parser.add_argument("--to", dest="last", type=int, metavar="B", help="last cycle of a range")
    parser.add_argument(
        "--verify", action="store_true", help="exit 1 unless every cycle is identical"
    )
    parser.add_argument(
        "--shard",
        metavar="NAME",
        help=f"whose cycles (default {DEFAULT_SHARD}, with --all every one)",
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="an exported log")
    add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Replay and print; with --verify the last line says how many cycles are identical."""
    if args.last is not None and args.first is None:
        raise UsageError("--to needs --from")
    if args.last is not None and args.last < args.first:
        raise UsageError(f"--from {args.first} is after --to {args.last}: swap them")
    if args.file is not None:
        refuse(args, ("log", "shard", *SOURCES), "for a captured cycle, which has all it needs")
        tally = Tally()
        tally.add(_captured(args.file))
    else:
        tally = asyncio.run(_recorded(args))
    sys.stdout.write(tally.verdict() + "\n")
    return NO if args.verify and tally.n_identical < tally.n else OK


class Tally:
    """Counts replayed cycles and prints those that differ."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.n = self.n_identical = 0
        self._out = sys.stdout if out is None else out

    def add(self, replayed: Replayed) -> None:
        """One more."""
        self.n += 1
        self.n_identical += replayed.is_identical
        if not replayed.is_identical:
            cycle = replayed.recorded
            self._out.write(
                f"cycle {cycle.shard}/{cycle.cycle} at {time_text(cycle.inputs.now_ms)} differs: "
                f"{replayed.difference}\n"
            )

    def verdict(self) -> str:
        """`replay: N/M cycles identical`."""
        return f"replay: {self.n_identical}/{self.n} cycles identical"


def _captured(path: Path) -> Replayed:
    try:
        return check_capture(path.read_bytes())
    except OSError as exc:
        raise UsageError(f"{path}: {exc.strerror}") from exc
    except CaptureError as exc:
        raise UsageError(f"{path}: {exc}") from exc
    except DamagedFileError as exc:
        raise DamagedFileError(f"{path}: {exc}") from exc


async def _recorded(args: argparse.Namespace) -> Tally:
    first = args.cycle if args.cycle is not None else args.first
    last = args.cycle if args.cycle is not None else args.last
    shard = args.shard or (None if args.all else DEFAULT_SHARD)
    if args.log is not None:
        refuse(args, SOURCES, LOG_IS_ALL)
    async with open_readable(from_args(args), args.log) as source:
        cycles = await meant(source.log, shard=shard, first=first, last=last)
        return await replay_all(source.log, cycles, source.checkpoints)


async def replay_all(
    log: ReadableLog, cycles: Sequence[Recorded], checkpoints: CheckpointStore | None
) -> Tally:
    """Replay cycles one after another."""
    tally = Tally()
    async for replayed in replay(log, cycles, checkpoints=checkpoints):
        tally.add(replayed)
    return tally
