"""`kai-es demo`: the main job from end to end, in one command."""

import argparse
import asyncio
import math
import shutil
import sys
from pathlib import Path
from typing import Final

from kai_es.cli.exits import NO, OK, UsageError
from kai_es.ports.reports import By
from kai_es.runtime import logs
from kai_es.runtime.demo import Books, Demo, Outcome
from kai_es.runtime.embedded import embedded
from kai_es.runtime.instance import Instance
from kai_es.runtime.settings import add_data_argument, from_args
from kai_es.simulate.counts import positive
from kai_es.simulate.trace import import_trace
from kai_es.simulate.workload import Sizes, Workload, generate
from kai_es.usage.report import as_table

SIZES: Final = Sizes()
ALL_AT_ONCE: Final = "max"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `demo`."""
    parser = subparsers.add_parser(
        "demo", help="cluster, log, decisions, binds, usage report, replay check; ends by itself"
    )
    parser.add_argument(
        "--nodes", type=positive, metavar="N", help=f"to generate (default {SIZES.n_nodes})"
    )
    parser.add_argument(
        "--jobs", type=positive, metavar="N", help=f"to generate (default {SIZES.n_jobs})"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--nodes-file", type=Path, metavar="CSV", help="nodes of a trace")
    parser.add_argument("--trace", type=Path, metavar="CSV", help="pods of a trace")
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="only the first N pods of the trace"
    )
    parser.add_argument(
        "--speed", metavar="X", help="divide the trace's times, or max (default): all at once"
    )
    parser.add_argument("--plain", action="store_true", help="one line per second, no live line")
    parser.set_defaults(config="")
    add_data_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run the demo; exit 0 if everything was right."""
    workload = _workload(args)
    logs.configure(level="warning", json_lines=False)
    return asyncio.run(_run(args, workload))


async def _run(args: argparse.Namespace, workload: Workload) -> int:
    settings = from_args(args)
    if args.data is None:
        _clear(settings.data)
    elif settings.data.is_dir() and any(settings.data.iterdir()):
        raise UsageError(f"--data {args.data} is not empty: name a new folder")
    once = args.trace is not None and args.speed in (None, ALL_AT_ONCE)
    async with embedded(settings) as stack:
        demo = Demo(stack, workload, once=once, out=sys.stdout, plain=args.plain)
        outcome = await demo.run(args.seed)
        _print_outcome(outcome)
        books = await demo.close_books()
    _print_books(books)
    sys.stdout.write(
        f"look around: kai-es explain|cycles|replay|report … --data {settings.data}\n\n"
    )
    _print_verdict(outcome, books)
    right = not (outcome.stalled or outcome.overcommitted or books.violation)
    return OK if right and books.n_identical == books.n_cycles else NO


def _workload(args: argparse.Namespace) -> Workload:
    if (args.trace is None) != (args.nodes_file is None):
        raise UsageError("--trace and --nodes-file go together: name both files")
    if args.trace is None:
        _refuse(args, "speed", "limit", why="is for a trace: name it with --trace and --nodes-file")
        sizes = Sizes(n_nodes=args.nodes or SIZES.n_nodes, n_jobs=args.jobs or SIZES.n_jobs)
        return generate(args.seed, sizes)
    _refuse(args, "nodes", "jobs", why="is for a generated workload: leave it out with --trace")
    speed = _speed(args.speed or ALL_AT_ONCE)
    return import_trace(args.nodes_file, args.trace, speed=speed, limit=args.limit)


def _refuse(args: argparse.Namespace, *options: str, why: str) -> None:
    for option in options:
        if getattr(args, option) is not None:
            raise UsageError(f"--{option} {why}")


def _speed(text: str) -> float | None:
    """None = all at once."""
    if text == ALL_AT_ONCE:
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 < speed < math.inf:
        raise UsageError(f"--speed is {text!r}, want a number above 0, or {ALL_AT_ONCE}")
    return speed


def _clear(data: Path) -> None:
    """Remove what the last demo left in the default folder, if no demo runs there.

    Raises:
        UsageError: it is the log of a real cluster, which `up` makes there when told no other.
    """
    instance = Instance(data)
    if instance.marker.exists():
        with instance.check().hold():
            if instance.log.exists() and not instance.cluster.exists():
                raise UsageError(f"{data} has the log of a real cluster: name a folder with --data")
            shutil.rmtree(data)


def _print_outcome(outcome: Outcome) -> None:
    out = sys.stdout
    if outcome.stalled:
        out.write("stalled: nothing changes any more\n")
    rate = outcome.placed / outcome.seconds
    out.write(f"\n{outcome.placed} pods in {outcome.seconds:.1f} s: {rate:.0f} pods/s\n")
    out.write(outcome.gpus.text() + "\n")
    for reason, n in outcome.waiting.items():
        out.write(f"waiting: {n} pods, {reason}\n")
    for name in outcome.overcommitted:
        out.write(f"OVERCOMMITTED: node {name}\n")
    out.write(f"overcommitted nodes: {len(outcome.overcommitted)}\n\n")


def _print_books(books: Books) -> None:
    sys.stdout.write(as_table(books.sums, By.QUEUE, None) + "\n")
    for difference in books.differences:
        sys.stdout.write(f"DIFFERS {difference}\n")
    sys.stdout.write(f"cycles with a bind: {books.n_binding}\n")


def _print_verdict(outcome: Outcome, books: Books) -> None:
    """The last lines, which scripts rely on."""
    identity = "exact" if books.violation is None else f"VIOLATED: {books.violation}"
    sys.stdout.write(
        f"placed: {outcome.placed} of {outcome.created} pods\n"
        f"usage identity: {identity}\n"
        f"replay: {books.n_identical}/{books.n_cycles} cycles identical\n"
    )
