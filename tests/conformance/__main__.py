"""`python -m tests.conformance AREA [FILE_OR_DIR …] [--compat]`: behaviour cases of one area.

Cases are JSON arrays in files; without paths those in `tests/conformance/data/<area>` are run. An
area is a module `tests.conformance.areas.<area>` with

    def check(case, flags) -> str | None      # first difference, None = as expected
    def flags_of(case) -> frozenset[str]      # flags of docs/differences.md that the case needs

or, where cases are not JSON arrays, `def main(paths, flags) -> tuple[passed, failed]`.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from kai_es.scheduler import flags as rule_flags

HERE = Path(__file__).parent
DATA = HERE / "data"
AREAS = sorted(path.stem for path in (HERE / "areas").glob("[a-z]*.py"))

Case = dict[str, Any]


def area_of(name: str) -> ModuleType:
    return importlib.import_module(f"tests.conformance.areas.{name}")


def cases_in(paths: Sequence[Path]) -> Iterator[Case]:
    """All cases of files and folders, in order of their names."""
    for path in paths:
        files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        for file in files:
            yield from json.loads(file.read_text())


def difference(area: ModuleType, case: Case, flags: rule_flags.Flags) -> str | None:
    """First difference of one case; the flags it needs by `docs/differences.md` are added."""
    try:
        return area.check(case, flags | area.flags_of(case))
    except Exception as exc:  # noqa: BLE001 - one broken case must not hide the others
        return f"{type(exc).__name__}: {exc}"


def run_cases(name: str, paths: Sequence[Path], flags: rule_flags.Flags) -> tuple[int, int]:
    """Number of cases passed and failed; failures are printed."""
    area = area_of(name)
    if hasattr(area, "main"):
        return area.main(paths, flags)
    passed = failed = 0
    for case in cases_in(paths):
        found = difference(area, case, flags)
        if found is None:
            passed += 1
        else:
            failed += 1
            print(f"FAILED {case['id']}: {found}")
    return passed, failed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("area", choices=AREAS)
    parser.add_argument("paths", nargs="*", type=Path, metavar="FILE_OR_DIR")
    parser.add_argument("--compat", action="store_true", help="all rule flags in force")
    options = parser.parse_args(argv)
    paths = options.paths or [DATA / options.area]
    for path in paths:
        if not path.exists():
            print(f"{path}: no such file or folder", file=sys.stderr)
            return 2
    flags = rule_flags.ALL if options.compat else rule_flags.NONE
    passed, failed = run_cases(options.area, paths, flags)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
