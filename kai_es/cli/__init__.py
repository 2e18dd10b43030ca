"""The command line `kai-es`: parse, call, print.

Each subcommand is a module of this package with `add_parser(subparsers)` and `run(args) -> int`.
Exit codes: 0 done, 1 the answer is "no", 2 bad input (message on stderr names the input and the
fix), 65 a log that is damaged. JSON goes to stdout only, progress to stderr.
"""

from kai_es.cli.exits import BAD_INPUT, NO, OK
from kai_es.cli.main import main

__all__ = ["BAD_INPUT", "NO", "OK", "main"]
