"""Dispatch to subcommands, and the one place where their errors become exit codes."""

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

from kai_es import __version__
from kai_es.audit.errors import DamagedFileError, ExportError, NotReplayableError
from kai_es.cli.exits import BAD_INPUT, DAMAGED, UsageError
from kai_es.events.envelope import PoisonError
from kai_es.ports.errors import ConfigError, CorruptLogError, RefusedError, UnavailableError
from kai_es.reader.restore import HistoryGoneError
from kai_es.runtime import logs
from kai_es.snapshot.checkpoint import CheckpointError
from kai_es.snapshot.errors import BrokenHistoryError

GC_THRESHOLD: Final = (50_000, 50, 50)
"""Frozen structs make no cycles, and there are a million of them: looking at them for garbage as
often as Python does costs 40 % of the fold (10,300 against 17,600 pods/s)."""

EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141

BAD_INPUT_ERRORS: Final = (
    UsageError,
    ConfigError,
    UnavailableError,
    RefusedError,
    ExportError,
    NotReplayableError,
    HistoryGoneError,
)
"""What the input (arguments, files, the servers) can be blamed for; the text says how."""

DAMAGED_ERRORS: Final = (
    PoisonError,
    CorruptLogError,
    BrokenHistoryError,
    CheckpointError,
    DamagedFileError,
)
"""The log, or a file of it, is there and cannot be read on."""

COMMANDS: Final = (
    *("demo", "up", "run", "decide", "cycles", "replay", "explain", "report", "capture"),
    *("rebuild", "log", "deadletter", "simulate", "resource-reservation"),
)
"""Subcommands in the order of the help text; each is the module `kai_es.cli.<name>`."""


class Command(Protocol):
    """A subcommand module."""

    def add_parser(self, subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        """Add the subcommand's parser."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the exit code."""


def parser_of(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="kai-es",
        description="Event-sourced scheduling for GPU clusters: decide, prove, replay, account.",
    )
    parser.add_argument("--version", action="version", version=f"kai-es {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands.values():
        command.add_parser(subparsers)
    return parser


def load_commands(names: Sequence[str] = COMMANDS) -> Mapping[str, Command]:
    """Subcommands by name."""
    return {name: _load(name) for name in names}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `kai-es`; the exit code."""
    gc.set_threshold(*GC_THRESHOLD)
    logs.quiet_others()
    words = sys.argv[1:] if argv is None else argv
    wanted = [name for name in COMMANDS if name in words[:1]]
    commands = load_commands(wanted or COMMANDS)  # all of them take 1 s, and one is used
    args = parser_of(commands).parse_args(words)
    try:
        return commands[args.command].run(args)
    except (*BAD_INPUT_ERRORS, *DAMAGED_ERRORS) as exc:
        return _blame(args.command, exc)
    except ExceptionGroup as group:
        blamed, others = group.split((*BAD_INPUT_ERRORS, *DAMAGED_ERRORS))
        if blamed is None or others is not None:
            raise
        return _blame(args.command, _first(blamed))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def _blame(command: str, exc: BaseException) -> int:
    """Tell what was wrong; the exit code for it."""
    print(f"kai-es {command}: {exc}", file=sys.stderr)
    return DAMAGED if isinstance(exc, DAMAGED_ERRORS) else BAD_INPUT


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of tasks that failed together one tells the story."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _load(name: str) -> Command:
    return cast(Command, importlib.import_module(f"kai_es.cli.{name.replace('-', '_')}"))
