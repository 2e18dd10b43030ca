"""`kai-es log tail|export|verify`: the durable log itself."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Final

import msgspec

from kai_es.audit.export import export_log
from kai_es.audit.findings import Report
from kai_es.audit.verify import verify
from kai_es.cli.exits import NO, OK, UsageError
from kai_es.cli.shown import add_form, print_json, time_text
from kai_es.cli.unused import LOG_IS_ALL, SOURCES, refuse
from kai_es.events.catalogue import TOPICS
from kai_es.events.codec import decode, unpack
from kai_es.events.envelope import PoisonError
from kai_es.ports.eventlog import Entry, Position, ReadableLog
from kai_es.ports.stores import CheckpointStore, StoredCheckpoint
from kai_es.runtime.settings import add_arguments, from_args
from kai_es.runtime.wiring import open_readable

TAIL_DEFAULT: Final = 20
WIDER: Final = 8
"""How much further back the next look for the last entries goes."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `log` with its subcommands."""
    parser = subparsers.add_parser("log", help="look at the durable log, export it, verify it")
    commands = parser.add_subparsers(dest="log_command", metavar="COMMAND", required=True)
    tail = commands.add_parser("tail", help="print the newest records of a topic, one JSON each")
    tail.add_argument("topic", choices=sorted(TOPICS), nargs="?", default="snapshot")
    tail.add_argument(
        "-n", "--lines", type=int, default=TAIL_DEFAULT, help=f"how many (default {TAIL_DEFAULT})"
    )
    tail.add_argument("-f", "--follow", action="store_true", help="wait for more")
    add_arguments(tail)
    export = commands.add_parser("export", help="write the log into one file")
    export.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    export.add_argument("--topic", action="append", choices=sorted(TOPICS), help="default: all")
    export.add_argument(
        "--checkpoint", action="store_true", help="put the newest checkpoint into the file, too"
    )
    add_arguments(export)
    check = commands.add_parser("verify", help="look for anything in the log that must not be")
    check.add_argument("--log", type=Path, metavar="FILE", help="an exported log")
    add_form(check, "table", "json")
    add_arguments(check)


def run(args: argparse.Namespace) -> int:
    """Do the subcommand."""
    match args.log_command:
        case "tail":
            if args.lines < 0:
                raise UsageError(f"--lines is {args.lines}, want 0 or more")
            asyncio.run(_tail(args))
            return OK
        case "export":
            n_entries = asyncio.run(_export(args))
            sys.stderr.write(f"{n_entries} entries in {args.output}\n")
            return OK
        case _:
            report = asyncio.run(_verify(args))
            _print_report(report, args.output)
            return OK if report.holds else NO


async def _export(args: argparse.Namespace) -> int:
    async with open_readable(from_args(args), None) as source:
        stored = await _newest(source.checkpoints) if args.checkpoint else ()
        try:
            return await export_log(
                source.log, args.output, topics=args.topic or TOPICS, checkpoints=stored
            )
        except OSError as exc:
            raise UsageError(f"-o {args.output}: {exc.strerror}") from exc


async def _newest(checkpoints: CheckpointStore | None) -> tuple[StoredCheckpoint, ...]:
    newest = await checkpoints.newest() if checkpoints is not None else None
    if newest is None:
        raise UsageError("--checkpoint: no checkpoint was taken yet; they come every 5 minutes")
    return (newest,)


async def _verify(args: argparse.Namespace) -> Report:
    if args.log is not None:
        refuse(args, SOURCES, LOG_IS_ALL)
    async with open_readable(from_args(args), args.log) as source:
        await _check_anything(source.log)
        return await verify(source.log, checkpoints=source.checkpoints)


async def _check_anything(log: ReadableLog) -> None:
    """What is not there passes every test: most likely the log is another one."""
    for topic in TOPICS:
        if any((await log.end(topic)).values()):
            return
    raise UsageError(
        "nothing was ever written to this log; is it the right one (--data, --kafka, --prefix)?"
    )


def _print_report(report: Report, form: str) -> None:
    if form == "json":
        print_json(
            report._asdict()
            | {"holds": report.holds, "violations": [v._asdict() for v in report.violations]}
        )
        return
    for what, n in report.checked.items():
        sys.stdout.write(f"checked {n:>9}  {what}\n")
    for note in report.notes:
        sys.stdout.write(f"note     {note}\n")
    for violation in report.violations:
        sys.stdout.write(f"VIOLATED {violation.invariant}  {violation.where}: {violation.text}\n")
    sys.stdout.write(f"verify: {report.n_violations} violations\n")


async def _tail(args: argparse.Namespace) -> None:
    async with open_readable(from_args(args), None) as source:
        if not args.follow:
            await _check_anything(source.log)
        begin, end = await source.log.begin(args.topic), await source.log.end(args.topic)
        found = [
            (time_ms, partition, entry)
            for partition in sorted(end)
            for time_ms, entry in await last_entries(
                source.log,
                (args.topic, partition),
                (begin[partition], end[partition]),
                args.lines,
            )
        ]
        found.sort(key=lambda one: one[0])  # stable: in a partition the order is the log's
        for _, partition, entry in found[max(0, len(found) - args.lines) :]:
            _print(args.topic, partition, entry)
        sys.stdout.flush()
        if not args.follow:
            return
        async with asyncio.TaskGroup() as tasks:
            for partition, start in sorted(end.items()):
                tasks.create_task(_follow(source.log, args.topic, partition, start))


async def last_entries(
    log: ReadableLog, where: tuple[str, int], bounds: tuple[Position, Position], n: int
) -> list[tuple[int, Entry]]:
    """The last n entries before `bounds[1]` of a partition, each with its time.

    Positions may have gaps (Kafka counts the ends of transactions), so it looks further back until
    there are enough. An entry without a time has that of the one before it.
    """
    begin, end = bounds
    window = n
    while True:
        start = max(begin, end - window)
        found: list[Entry] = []
        if start < end and n:
            async for chunk in log.read(*where, Position(start), follow=False):
                found += [entry for entry in chunk if entry.position < end]
        if len(found) >= n or start == begin:
            break
        window *= WIDER
    timed: list[tuple[int, Entry]] = []
    for entry in found:
        before_ms = timed[-1][0] if timed else 0
        timed.append((max(before_ms, _time_ms(entry)), entry))
    return timed[-n:] if n else []


def _time_ms(entry: Entry) -> int:
    """0 = it has none, or cannot be read."""
    try:
        return 0 if entry.value is None else decode(entry.value).event_time
    except PoisonError:
        return 0


async def _follow(log: ReadableLog, topic: str, partition: int, start: Position) -> None:
    async for chunk in log.read(topic, partition, start, follow=True):
        for entry in chunk:
            _print(topic, partition, entry)
        sys.stdout.flush()


def _print(topic: str, partition: int, entry: Entry) -> None:
    line = msgspec.json.encode(_shown(topic, partition, entry), enc_hook=str)
    sys.stdout.write(line.decode() + "\n")


def _shown(topic: str, partition: int, entry: Entry) -> dict[str, object]:
    shown: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "position": int(entry.position),
        "key": entry.key,
    }
    if entry.value is None:
        return shown | {"tombstone": True}
    try:
        envelope = decode(entry.value)
        record = unpack(envelope)
    except PoisonError as exc:
        return shown | {"undecodable": str(exc)}
    return shown | {
        "schema": envelope.schema,
        "id": envelope.id,
        "time": time_text(envelope.event_time),
        "producer": envelope.producer,
        "data": msgspec.to_builtins(record),
    }
