"""What a cycle ran on: noted with it, so that a digest that differs can be explained."""

import platform
from functools import cache
from typing import Any

import numpy as np


@cache
def machine_note() -> str:
    """Versions of Python and NumPy, and the CPU features that NumPy uses here."""
    config: Any = np.show_config(mode="dicts")
    simd = config.get("SIMD Extensions", {})
    used = [*simd.get("baseline", ()), *simd.get("found", ())]
    return (
        f"python {platform.python_version()} numpy {np.__version__} "
        f"{platform.machine()} {' '.join(used)}"
    )
