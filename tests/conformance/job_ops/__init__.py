"""Runners of the area `jobs`, a module per group of ops; each has `OPS`: op → run."""

from collections.abc import Callable, Mapping
from typing import Any

from kai_es.scheduler.flags import Flags

Input = Mapping[str, Any]
Result = dict[str, Any]
Run = Callable[[Input, Flags], Result]
