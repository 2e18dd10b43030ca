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
from pathlib import Path

from benchmarks.clusters import SHAPES as CYCLES
from benchmarks.trace import NODES_FILE, PODS_FILE, files

SHAPES = {
    "apiserver": "benchmarks.apiserver",
    "binds": "benchmarks.cluster_parts",
    "books": "benchmarks.books",
    **dict.fromkeys(
        ("e2e-fill", "e2e-live", "e2e-gang", "e2e-idle", "e2e-full"), "benchmarks.end_to_end"
    ),
    "intake": "benchmarks.cluster_parts",
    "latency": "benchmarks.latency",
    "latency-kafka": "benchmarks.latency",
    "log": "benchmarks.log",
    "log-kafka": "benchmarks.log_kafka",
    "overload": "benchmarks.overload",
    "rebuild": "benchmarks.books",
    "rows": "benchmarks.rows",
    "status": "benchmarks.statuses",
    "stream": "benchmarks.stream",
    "trace": "benchmarks.trace",
    **dict.fromkeys(CYCLES, "benchmarks.cycles"),
}


def main() -> int:
    """Run the named shapes and print their results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="+", choices=[*SHAPES, "all"])
    parser.add_argument("--nodes-file", type=Path, help=f"CSV for shape trace, or ${NODES_FILE}")
    parser.add_argument("--trace", type=Path, help=f"CSV for shape trace, or ${PODS_FILE}")
    options = parser.parse_args()
    names = SHAPES if "all" in options.name else dict.fromkeys(options.name)
    trace = files(options.nodes_file, options.trace)
    if trace is None and "trace" in names:
        message = "shape trace needs --nodes-file and --trace"
        if "all" not in options.name:
            parser.error(message)
        print(f"left out: {message}", file=sys.stderr)
        names = [name for name in names if name != "trace"]
    for name in names:
        module = import_module(SHAPES[name])
        if name == "trace":
            assert trace is not None
            result = module.run(*trace)
        else:
            result = module.run_shape(name) if hasattr(module, "run_shape") else module.run()
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({"name": name, "peak_mb": peak_mb, **result}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
