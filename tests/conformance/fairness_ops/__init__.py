"""Runners of the area `fairness`, one module per group of files."""

from collections.abc import Callable, Mapping
from typing import Any

from kai_es.scheduler.flags import Flags

Input = Mapping[str, Any]
Result = dict[str, Any]
Run = Callable[[Input, Flags], Result]
