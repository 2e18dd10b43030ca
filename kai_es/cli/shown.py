"""Small things that commands print alike: times, tables, JSON."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

FORMS: Final = ("table", "json", "csv")


def add_form(parser: argparse.ArgumentParser, *forms: str) -> None:
    """`-o table|json|csv`."""
    parser.add_argument("-o", "--output", choices=forms or FORMS, default=(forms or FORMS)[0])


def time_text(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return (
        datetime.fromtimestamp(ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    json.dump(value, sys.stdout, indent=2, sort_keys=True, default=str)
    sys.stdout.write("\n")


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Columns padded to their widest cell; numbers to the right."""
    cells = [[str(row.get(name, "")) for name in columns] for row in rows]
    widths = [
        max(len(name), *(len(line[n]) for line in cells)) if cells else len(name)
        for n, name in enumerate(columns)
    ]
    right = [
        bool(rows) and all(isinstance(row.get(name), int | float) for row in rows)
        for name in columns
    ]
    for line in ([name.upper() for name in columns], *cells):
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        sys.stdout.write("  ".join(padded).rstrip() + "\n")
