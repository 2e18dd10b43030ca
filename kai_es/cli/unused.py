"""Options that would do nothing: a mistake, not a wish.

What the environment says is for whoever can use it, and never a mistake.
"""

import argparse
import os
import sys
from typing import Final

from kai_es.cli.exits import UsageError
from kai_es.runtime.settings import DEFAULT_PREFIX, ENV_DATABASE, ENV_KAFKA, ENV_PREFIX

SOURCES: Final = ("data", "kafka", "prefix", "database")
"""Options that say where log and database are."""

LOG_IS_ALL: Final = "beside --log, which is the whole log and its checkpoints"

_DEFAULTS: Final = {
    "kafka": (ENV_KAFKA, ""),
    "prefix": (ENV_PREFIX, DEFAULT_PREFIX),
    "database": (ENV_DATABASE, ""),
}


def refuse(args: argparse.Namespace, options: tuple[str, ...], why: str) -> None:
    """Refuse options of these that were given on the command line.

    Raises:
        UsageError: names the first of them, and why it does nothing.
    """
    for option in given(args, options):
        raise UsageError(f"--{option} does nothing {why}: leave it out")


def tell_books_only(args: argparse.Namespace) -> None:
    """Say that a report is made from the database, whatever log is named beside it."""
    named = given(args, ("data", "kafka", "prefix"))
    if args.database and named:
        options = " and ".join(f"--{option}" for option in named)
        what = "is" if len(named) == 1 else "are"
        sys.stderr.write(
            f"kai-es {args.command}: {options} {what} not looked at: all comes from the database\n"
        )


def given(args: argparse.Namespace, options: tuple[str, ...]) -> list[str]:
    """Which of these were given on the command line, as far as that makes a difference."""
    return [option for option in options if _is_given(args, option)]


def _is_given(args: argparse.Namespace, option: str) -> bool:
    value = getattr(args, option, None)
    if value is None or value == "":
        return False
    return option not in _DEFAULTS or value != os.environ.get(*_DEFAULTS[option])
