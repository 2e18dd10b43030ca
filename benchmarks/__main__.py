"""`python -m benchmarks NAME ...`: one JSON object per line; `all` runs every shape.

A shape is entered in `SHAPES` with a module of this package that has `run() -> dict`; a module with
several has `run_shape(name) -> dict`. Peak memory is that
of the process, loading included, unless the shape says otherwise; give a shape a run of its own
where it matters.
"""

import argparse
import json
import resource
import sys
from importlib import import_module

from benchmarks.clusters import SHAPES as CYCLES

SHAPES = {
    "apiserver": "benchmarks.apiserver",
    "binds": "benchmarks.cluster_parts",
    "books": "benchmarks.books",
    "intake": "benchmarks.cluster_parts",
    "log": "benchmarks.log",
    "log-kafka": "benchmarks.log_kafka",
    "rows": "benchmarks.rows",
    "stream": "benchmarks.stream",
    **dict.fromkeys(CYCLES, "benchmarks.cycles"),
}


def main() -> int:
    """Run the named shapes and print their results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="+", choices=[*SHAPES, "all"])
    names = parser.parse_args().name
    for name in SHAPES if "all" in names else dict.fromkeys(names):
        module = import_module(SHAPES[name])
        result = module.run_shape(name) if hasattr(module, "run_shape") else module.run()
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({"name": name, "peak_mb": peak_mb, **result}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
