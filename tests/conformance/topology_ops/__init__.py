"""Runners of the area `topology`, by op."""

from collections.abc import Callable, Mapping
from typing import Any

from kai_es.scheduler.flags import Flags

Input = Mapping[str, Any]
Run = Callable[[Input, Flags], Any]
