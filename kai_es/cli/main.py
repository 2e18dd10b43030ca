"""Dispatch to subcommands, and the one place where their errors become exit codes."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, Protocol, cast

from kai_es import __version__
from kai_es.audit.export import ExportError
from kai_es.audit.replay import NotReplayableError
from kai_es.cli.exits import BAD_INPUT, UsageError
from kai_es.events.envelope import PoisonError
from kai_es.ports.errors import ConfigError, CorruptLogError, UnavailableError
from kai_es.reader.restore import HistoryGoneError
from kai_es.snapshot.errors import BrokenHistoryError

EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141

BAD_INPUT_ERRORS: Final = (
    UsageError,
    ConfigError,
    UnavailableError,
    CorruptLogError,
    PoisonError,
    ExportError,
    NotReplayableError,
    HistoryGoneError,
    BrokenHistoryError,
)
"""What the input (arguments, files, the log, the servers) can be blamed for; the text says how."""

COMMANDS: Final = (
    *("demo", "up", "run", "decide", "cycles", "replay", "explain", "report", "capture"),
    *("rebuild", "log", "deadletter"),
)
"""Subcommands in the order of the help text; each is the module `kai_es.cli.<name>`."""


class Command(Protocol):
    """A subcommand module."""

    def add_parser(self, subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        """Add the subcommand's parser."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `kai-es`; the exit code."""
    commands = {name: _load(name) for name in COMMANDS}
    parser = argparse.ArgumentParser(
        prog="kai-es",
        description="Event-sourced scheduling for GPU clusters: decide, prove, replay, account.",
    )
    parser.add_argument("--version", action="version", version=f"kai-es {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands.values():
        command.add_parser(subparsers)
    args = parser.parse_args(argv)
    try:
        return commands[args.command].run(args)
    except BAD_INPUT_ERRORS as exc:
        print(f"kai-es {args.command}: {exc}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def _load(name: str) -> Command:
    return cast(Command, importlib.import_module(f"kai_es.cli.{name}"))
