"""Ops of the controllers area, one module per group of case files.

A module has `OPS` (name -> run), and may have `EXACT`: the ops whose result may have nothing that a
case does not name.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from kai_es.scheduler.flags import Flags

Input = Mapping[str, Any]
Result = dict[str, Any]
Run = Callable[[Input, Flags], Result]


def all_ops() -> tuple[dict[str, Run], frozenset[str]]:
    """The ops of every module in this package, and which of them are exact."""
    found: dict[str, Run] = {}
    exact: set[str] = set()
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found |= module.OPS
        exact.update(getattr(module, "EXACT", ()))
    return found, frozenset(exact)
