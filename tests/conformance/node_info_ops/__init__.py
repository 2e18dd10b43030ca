"""Runners of the area `node_info`: one module per data file, named like it.

Each has `OPS`: op → run; `FLAGS`, if some of its ops need flags of docs/differences.md; and
`compare(case, got) -> str | None`, if `first_difference` is not what the README says of its cases.
Modules that no data file is named like hold what several of them share.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kai_es.scheduler.flags import Flags

Input = Mapping[str, Any]
Run = Callable[[Input, Flags], Any]
