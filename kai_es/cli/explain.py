"""`kai-es explain`: what happened to a pod or a pod group, and why it waited."""

import argparse
import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kai_es.audit.explain import NotYetError, UnknownNameError, explain
from kai_es.audit.story import Line, Story
from kai_es.cli.exits import OK, UsageError
from kai_es.cli.recorded import meant
from kai_es.cli.shown import add_form, print_json, time_text
from kai_es.cli.unused import LOG_IS_ALL, SOURCES, refuse
from kai_es.reader import nearest_world
from kai_es.reader.restore import reaches_back
from kai_es.runtime.settings import DEFAULT_SHARD, add_arguments, from_args
from kai_es.runtime.wiring import open_readable

_EPOCH = datetime.fromtimestamp(0, UTC)
_KINDS = {"pod": "Pod", "podgroup": "PodGroup"}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `explain`."""
    parser = subparsers.add_parser("explain", help="the story of a pod or a pod group")
    parser.add_argument("kind", choices=sorted(_KINDS))
    parser.add_argument("name", metavar="NAME", help="NAME or NAMESPACE/NAME, as in kubectl get")
    until = parser.add_mutually_exclusive_group()
    until.add_argument("--at", metavar="T", help="as it was known then (RFC 3339)")
    until.add_argument("--cycle", type=int, metavar="N", help="up to this cycle")
    parser.add_argument("--shard", metavar="NAME", help=f"whose cycle (default {DEFAULT_SHARD})")
    parser.add_argument("--log", type=Path, metavar="FILE", help="an exported log")
    add_form(parser, "table", "json")
    add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the story; its first line is the dominant reason."""
    if args.shard is not None and args.cycle is None:
        raise UsageError("--shard says whose --cycle is meant: give that too, or leave it out")
    try:
        story = asyncio.run(_story(args))
    except NotYetError as exc:
        until = "--at" if args.cycle is None else "--cycle"
        raise UsageError(
            f"{exc}: it came at {time_text(exc.came_ms)}; give a later {until}, or none"
        ) from exc
    except UnknownNameError as exc:
        raise UsageError(str(exc)) from exc
    if args.output == "json":
        print_json(story._asdict() | {"lines": [line._asdict() for line in story.lines]})
        return OK
    sys.stdout.write(f"{story.dominant}\n\n")
    sys.stdout.write(f"{story.kind} {story.namespace}/{story.name} ({story.uid})\n")
    for line in story.lines:
        sys.stdout.write(_shown(line) + "\n")
    return OK


async def _story(args: argparse.Namespace) -> Story:
    until_ms = None if args.at is None else _ms(args.at)
    if args.log is not None:
        refuse(args, SOURCES, LOG_IS_ALL)
    async with open_readable(from_args(args), args.log) as source:
        until = None
        if args.cycle is not None:
            shard = args.shard or DEFAULT_SHARD
            until = (await meant(source.log, shard=shard, first=args.cycle, last=args.cycle))[-1]
        reaches = await reaches_back(source.log)
        checkpoints = None if reaches else source.checkpoints
        at_most = None
        if checkpoints is not None:
            at_most = min((head.offset for head in await checkpoints.heads()), default=None)
            if until is not None:
                at_most = until.at - 1 if at_most is None else min(at_most, until.at - 1)
        world = await nearest_world(source.log, checkpoints, at_most=at_most)
        if until_ms is not None and world.offset >= 0 and until_ms < world.time:
            raise UsageError(f"--at {args.at}: the log reaches back to {time_text(world.time)}")
        return await explain(
            source.log,
            world,
            kind=_KINDS[args.kind],
            name=args.name,
            until_ms=until_ms,
            until=until,
        )


def _shown(line: Line) -> str:
    runs = f"  (until {time_text(line.until_ms)}, {line.cycles} cycles)" if line.cycles > 1 else ""
    return f"{time_text(line.time_ms)}  {line.what:<12} {line.text}{runs}"


def _ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise UsageError(f"{text!r} is no time: write it as 2026-11-29T03:00:00Z") from exc
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return since // timedelta(milliseconds=1)
