"""The command line: parse, call, print.

Each subcommand is a module of this package with `add_parser(subparsers)` and `run(args) -> int`,
entered in `COMMANDS`. Its heavy imports belong into `run`.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

COMMANDS: Final = ("decide",)

OK: Final = 0
NO: Final = 1
BAD_INPUT: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Returns:
        The exit code: 0 done, 1 the answer is "no", 2 bad input (message on stderr).
    """
    parser = argparse.ArgumentParser(prog="kai-es", description="Event-sourced GPU scheduling.")
    subparsers = parser.add_subparsers(dest="command", required=True)
    modules = {name: import_module(f"kai_es.cli.{name}") for name in COMMANDS}
    for module in modules.values():
        module.add_parser(subparsers)
    args = parser.parse_args(argv)
    try:
        return int(modules[args.command].run(args))
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone
        return OK
